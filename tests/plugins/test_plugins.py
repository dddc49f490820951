"""A package of somebody else adds a method: at the command line, in the application, and where it is damaged."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from textual.widgets import OptionList, Static

from engines import methods
from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.errors import RunFailed
from engines.methods.drafter import Drafter, Resources
from engines.report.events import Origin
from engines.request import Request
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.widgets.field import Field
from tests.cli.conftest import cli
from tests.cli.test_commands import no_probe
from tests.session.inprocess import InProcessClient

__all__ = ["cli", "no_probe"]  # fixtures

SENTENCES = [
    "the method 'damaged' of spec-tui-damaged cannot be loaded: its weights are gone",
    "the method 'exiting' of spec-tui-exiting cannot be loaded: SystemExit: 2",
    "the method 'leaving' of spec-tui-faulty cannot be loaded: nobody is to catch this",
    "the method 'lookup' of spec-tui-taken has the id 'pld', which is taken",
    "the method 'mistyped' of spec-tui-faulty cannot be used: origins is not of the type tuple[OriginKind, ...]",
    "the method 'ranged' of spec-tui-faulty cannot be used: option n=9 is out of range: n takes 1..8 (default 9)",
    "the method 'unsayable' of spec-tui-faulty cannot be loaded: Unsayable",
]


def spec_tui(site, *arguments):
    """The command line in a process of its own, in which the packages are installed."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "spec_tui", *arguments], env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def test_the_list_of_engines_has_it_with_its_options(site):
    with spec_tui(site, "engines") as text, spec_tui(site, "engines", "--format", "json") as data:
        (listed, said), (found, _) = text.communicate(), data.communicate()
    assert "repeat  Repeat" in listed and "Most copies drafted." in listed and "1..8" in listed
    assert said.splitlines() == ["faulty methods are imported", *(f"note: {sentence}" for sentence in SENTENCES)]
    titles = {spec["id"]: spec["title"] for spec in json.loads(found)}
    (repeat,) = (spec for spec in json.loads(found) if spec["id"] == "repeat")
    assert [option["name"] for option in repeat["options"]] == ["budget", "num_tokens"]
    assert titles["pld"] == "Prompt lookup"


@pytest.mark.thorough
def test_a_run_with_it_is_lossless(site, sample):
    prompt = "0 0 0 0 0 0 0 0"
    settings = ("--engine", "repeat", "--set", "num_tokens=3", "--set", "budget=paper")
    with spec_tui(site, "run", prompt, "--max-new-tokens", "24", "--format", "json", *settings) as process:
        *_, plain = sample.run(Request((("user", prompt),), "autoregressive", max_new_tokens=24))
        out, said = process.communicate()
    assert process.returncode == 0, said
    found = json.loads(out)
    assert found["engine"] == "repeat" and found["lossless"] and found["stats"]["drafted"] > 3
    assert (tuple(found["tokens"]), found["text"]) == (plain.tokens, plain.text) and len(plain.tokens) > 8


def test_an_option_out_of_range_is_refused(installed, cli):
    done = cli("run", "x", "--engine", "repeat", "--set", "num_tokens=9")
    assert done.code == 2 and "1..8" in done.err


def test_what_cannot_be_used_is_reported_and_breaks_nothing(installed, cli, no_probe):
    assert list(methods.problems()) == SENTENCES
    facts = json.loads(cli("doctor", "--format", "json").out)["engines"]
    assert facts["problems"] == SENTENCES and facts["found"] == [spec.id for spec in methods.specs()]
    text = " ".join(cli("doctor").out.split())
    assert "pld, " in text and ", repeat" in text and "its weights are gone" in text and "which is taken" in text


def test_without_such_packages_nothing_is_said(cli):
    assert cli("engines").err == "" and methods.known("repeat") is None


async def until(pilot, condition, timeout=40.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)
    await pilot.pause()


def shown(screen):
    rows = (row for panel in screen.query("StripPanel") if panel.display for row in panel.text_rows())
    return " ".join(" ".join(rows).split())


async def test_the_application_has_it_with_options_tree_and_explanation(installed, tiny):
    client = InProcessClient(lambda *_: tiny)
    app = SpecTui(client, LoadRequest(), initial_request_options=Request((), engine="pld", max_new_tokens=24))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.session.phase == "ready")
        await pilot.press("ctrl+e")
        await pilot.pause()
        assert isinstance(app.screen, EngineScreen)
        engines = app.screen.query_one("#engines", OptionList)
        engines.highlighted = engines.get_option_index("repeat")
        await until(pilot, lambda: "Repeat" in str(app.screen.query_one("#options-title", Static).content))
        fields = {field.option.name: field for field in app.screen.query(Field)}
        assert "Drafts the last token" in str(app.screen.query_one("#about", Static).content)
        fields["num_tokens"].put(3)
        fields["budget"].put("paper")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, EngineScreen))

        chat = app.screen
        chat.prompt.put("aaaa")
        chat.prompt.focus()
        await pilot.press("enter")
        await until(pilot, lambda: app.session.last is not None and app.session.last.run.finished is not None)
        run = app.session.last.run
        assert run.started.engine == "repeat" and run.started.options["num_tokens"] == 3
        assert len(run.rounds[0].draft.tokens) == 3
        await pilot.press("escape", "home", "x")  # x: everything that the panels know
        await until(pilot, lambda: "copies drafted 3" in shown(chat))

        await pilot.press("full_stop")
        await until(pilot, lambda: isinstance(app.screen, StepScreen))
        for _ in range(8):  # through the phases of the prefill, where the first token is of it
            if "simply said again, 3 times over" in shown(app.screen):
                break
            await pilot.press("full_stop")
        assert "simply said again, 3 times over" in shown(app.screen)


class Strange(Drafter):
    """Proposes what its test says."""

    def __init__(self, resources, propose):
        super().__init__(resources)
        self._propose = propose

    def propose(self, context, limits):
        return self._propose(context)


ORIGIN = Origin("draft", place=np.int64(3))


@pytest.mark.parametrize("propose", [
    lambda context: DraftTree.chain([np.int64(context[-1])], ORIGIN, [np.float32(0.5)]),
    lambda context: DraftTree.chain([torch.tensor(context[-1])], ORIGIN, [torch.tensor(0.5)]),
    lambda context: DraftTree.chain(np.array(context[-1:]), ORIGIN, np.array([0.5])),
])
def test_numbers_of_numpy_and_torch_are_taken(propose):
    tree = Strange(Resources(law=None, vocab_size=9), propose).draft([1, 2], DraftLimits(4, 8))
    assert [type(n) for n in (*tree.tokens, *tree.parents, *tree.origin)] == [int] * 3 and tree.tokens == [2]
    assert type(tree.probs[0]) is float and type(tree.origins[0].place) is int
    tree.check(9)


@pytest.mark.parametrize("propose, said", [
    (lambda context: None, r"propose\(\) returned NoneType, not a DraftTree"),
    (lambda context: DraftTree.chain([2.5], ORIGIN), "float"),
    (lambda context: DraftTree.chain([2], ORIGIN, [7.5]), "probability"),
    (lambda context: DraftTree.chain([2], ORIGIN, [math.nan]), "probability"),
    (lambda context: DraftTree([2], [-1], [None], [1], [ORIGIN]), "origin"),
    (lambda context: DraftTree([2], [-1], [None], [0], [ORIGIN], [1]), "origin"),
    (lambda context: DraftTree([2], [-1], [None], [0], [ORIGIN], [-1, -1]), "unequal length"),
    (lambda context: context.append(2) or DraftTree(), "context"),
    (lambda context: context.clear() or DraftTree(), "context"),
    (lambda context: context.__setitem__(0, 9) or DraftTree(), "context"),
    (lambda context: DraftTree(note={"found": 3}), "its note is of type dict, not Note"),
    (lambda context: DraftTree(budget=3), "its budget is of type int, not BudgetChoice"),
    (lambda context: DraftTree(retrieval=0.1), "its retrieval is of type float, not Retrieval"),
    (lambda context: DraftTree.chain([2], ORIGIN, dists={-1: np.ones(9)}), "no distribution over a vocabulary of 9"),
    (lambda context: DraftTree.chain([2], ORIGIN, dists={-1: np.ones(3) / 3}), "no distribution"),
    (lambda context: DraftTree.chain([2], ORIGIN, dists={-1: np.full(9, math.nan)}), "no distribution"),
    (lambda context: DraftTree.chain([2], ORIGIN, dists={7: np.ones(9) / 9}), "a key that is no node"),
    (lambda context: DraftTree.chain([2, 3], ORIGIN, draws={-1: [1]}), "another parent"),
    (lambda context: DraftTree.chain([2, 3], ORIGIN, draws={-1: [-1]}), "another parent"),
])
def test_what_would_break_a_run_later_is_told_at_once(propose, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Strange(Resources(law=None, vocab_size=9), propose).draft([1, 2], DraftLimits(4, 8)).check(9)


@pytest.mark.parametrize("members, said", [
    ({"features": "all"}, "features is not of the type FeatureRequest"),
    ({"searched": None}, "searched is not of the type"),
    ({"remark": lambda self: 3}, "remark() returned int"),
    ({"layers": 3}, "layers is not of the type"),
    ({"draft": lambda self, context, limits: None}, "draft() returned NoneType, not a DraftTree"),
    ({"draft": lambda self, context, limits: context.append(5) or DraftTree()}, "draft() changed the context"),
    ({"propose": lambda self, context, limits: self.resources.target.truncate(0) or DraftTree()}, "it left 0 rows"),
    ({"propose": lambda self, context, limits: DraftTree.chain(
        [int(self.resources.target.forward(context[-1:], [-1])[0].argmax())], ORIGIN)}, "and 1 pending"),
    ({"follow": lambda self, outcome: setattr(outcome, "verify_seconds", "x")}, "follow() changed the outcome"),
])
def test_what_breaks_a_run_is_said_of_the_engine(tiny, monkeypatch, members, said):
    class Faulty(Drafter):
        locals().update(members)

        def __init__(self, resources, **options):
            super().__init__(resources)
            self.__dict__.update({name: value for name, value in members.items() if not callable(value)})

    monkeypatch.setattr(methods.MethodSpec, "load_drafter", lambda spec: Faulty)
    with pytest.raises(RunFailed) as failed:
        list(tiny.run(Request((("user", "hello"),), "pld", max_new_tokens=8)))
    assert "the engine failed" in failed.value.message and said in failed.value.message
