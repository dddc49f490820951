"""The search for sublayers to leave out: it finds what is best, goes on after an interruption, believes no file."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import RunFailed, UsageProblem
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.draft_verify.layer_search.search import TrialRunner, extend_search
from engines.methods.draft_verify.layer_search.search_store import (
    Identity,
    Machine,
    Search,
    SearchSettings,
    SearchTrial,
)
from engines.model.skipped_layers import SkippedLayers
from engines.report.events import Draft, Emitted, Origin, Prefilled, Round

MACHINE = Machine("Linux", "a processor", 2, "cpu")


def new(layers: int, seed: int = 0) -> Search:
    return Search("a model", Identity("f" * 32, "float32", layers, MACHINE), SearchSettings(3, "digest", 32, seed))


def everything(layers: int) -> SkippedLayers:
    return SkippedLayers(tuple(range(1, layers + 1)), tuple(range(1, layers + 1)))


def speed_up(removed: SkippedLayers, costly: frozenset[str]) -> float:
    """A world in which every sublayer left out gains a tenth, and some lose more than all others gain."""
    names = [f"a{n}" for n in removed.attention] + [f"m{n}" for n in removed.mlp]
    return 1.1 ** len(names) * 0.3 ** len(costly & set(names))


class World:
    """Measures in it, and notes what was asked; interrupts itself at a trial, if told to."""

    def __init__(self, costly: set[str], stop: int = -1, noise: float = 0.0) -> None:
        self.costly, self.stop, self.noise, self.asked = frozenset(costly), stop, noise, []

    def __call__(self, removed: SkippedLayers) -> SearchTrial:
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        self.asked.append(str(removed))
        value = speed_up(removed, self.costly) * (1 + self.noise * random.Random(len(self.asked)).uniform(-1, 1))
        return SearchTrial(str(removed), value, 100 * value, 100.0, 0.5)


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    return tmp_path / "layers"


@given(st.frozensets(st.integers(1, 99)), st.frozensets(st.integers(1, 99)))
def test_a_set_is_read_as_it_was_written(attention, mlp):
    removed = SkippedLayers(tuple(sorted(attention)), tuple(sorted(mlp)))
    assert SkippedLayers.parse(str(removed), 99) == removed and len(removed) == len(attention) + len(mlp)


def test_sets_are_written_short_and_read_with_patience():
    assert str(SkippedLayers((3, 5, 6, 7), (4,))) == "a3,a5-7,m4"
    assert SkippedLayers.parse(" M4 a5-7, a3,a6 ", 7) == SkippedLayers((3, 5, 6, 7), (4,))


@pytest.mark.parametrize("text", ["3", "a", "a0", "a9", "a5-3", "b2", "a3;m4", "a-1", "a٣", "[bold]", "a99999"])
def test_what_names_no_sublayer_of_the_model_is_refused(text):
    with pytest.raises(UsageProblem) as caught:
        SkippedLayers.parse(text, 8)
    assert "a3,a5-7,m4" in caught.value.hint


def test_a_small_space_is_searched_through_and_the_best_is_found():
    world = World({"a2", "m1"})
    found = extend_search(new(2), everything(2), 100, world, lambda _: None)
    tried = [trial.skipped for trial in found.trials]
    names = ["a1", "a2", "m1", "m2"]
    sets = chain.from_iterable(combinations(names, size) for size in range(1, 5))
    assert len(tried) == len(set(tried)) == len(list(sets)) == 15
    assert found.found.skipped == "a1,m2" and found.found.speed_up == pytest.approx(1.21)


def test_of_a_large_space_it_finds_what_chance_would_not():
    costly = {"a1", "a2", "a8", "m1", "m3", "m5", "m8"}
    best = speed_up(SkippedLayers((3, 4, 5, 6, 7), (2, 4, 6, 7)), costly)
    found = extend_search(new(8), everything(8), 70, World(costly, noise=0.02), lambda _: None)
    dice = random.Random(1)
    guesses = (SkippedLayers(*(tuple(n for n in range(1, 9) if dice.random() < 0.5) for _ in "am")) for _ in range(70))
    chance = max(speed_up(guess, costly) for guess in guesses if guess)
    reached = speed_up(SkippedLayers.parse(found.found.skipped, 8), costly)
    assert reached >= best / 1.1**2 > chance
    assert len({trial.skipped for trial in found.trials}) == 70


def test_sublayers_that_cannot_be_left_out_never_are():
    found = extend_search(new(3), SkippedLayers((2,), (1, 3)), 50, World(set()), lambda _: None)
    assert len(found.trials) == 7 and found.found.skipped == "a2,m1,m3"


@pytest.mark.parametrize("stop", [0, 5, 16, 24, 27])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(home, stop):
    whole = World({"a2", "m3", "m4"})
    expected = extend_search(new(4), everything(4), 25, whole, lambda _: None)
    first = World(whole.costly, stop)
    with pytest.raises(KeyboardInterrupt):
        extend_search(new(4), everything(4), 25, first, search_store.save)
    halfway = search_store.find(new(4).identity) or new(4)
    assert [trial.skipped for trial in halfway.trials] == whole.asked[: min(stop, 25)]
    second = World(whole.costly)
    assert extend_search(halfway, everything(4), 25, second, search_store.save) == expected
    assert search_store.find(new(4).identity) == expected
    assert extend_search(expected, everything(4), 25, World(set(), stop=0), search_store.save) == expected


KILLED = """
import os, signal, sys
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.draft_verify.layer_search.search import extend_search
from tests.engines.test_layersearch import World, everything, new
replace, saved = os.replace, []
def kill(*names):
    saved.append(names)
    if len(saved) > 7:
        os.kill(os.getpid(), signal.SIGKILL)  # the new file is written, and has not its name yet
    replace(*names)
os.replace = kill
with search_store.locked(new(4).identity.id):
    extend_search(new(4), everything(4), 25, World({"a2", "m3", "m4"}), search_store.save)
"""


def test_a_search_that_was_killed_goes_on(home):
    """kill -9 amid a write: what was saved is whole, the lock is free, nothing is left behind."""
    whole = World({"a2", "m3", "m4"})
    expected = extend_search(new(4), everything(4), 25, whole, lambda _: None)
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", KILLED], cwd=root).returncode == -signal.SIGKILL
    [entry] = search_store.listing()
    assert [trial.skipped for trial in entry.search.trials] == whole.asked[:7]
    assert len(list(home.glob(".*.json.*"))) == 1
    with search_store.locked(entry.id):
        assert extend_search(entry.search, everything(4), 25, World(whole.costly), search_store.save) == expected
    assert [file.name for file in home.iterdir() if not file.name.endswith(".lock")] == [f"{entry.id}.json"]


def test_a_locked_name_that_is_a_link_is_refused(home, tmp_path):
    """Opening a lock empties it: the file that a link leads to would be lost."""
    (tmp_path / "diary").write_text("dear diary")
    home.mkdir()
    (home / ".aaaaaaaaaaaa.lock").symlink_to(tmp_path / "diary")
    with pytest.raises(UsageProblem, match="cannot be saved"):
        search_store.locked("a" * 12).__enter__()
    assert (tmp_path / "diary").read_text() == "dear diary"


def test_another_seed_tries_other_sets():
    tried = [extend_search(new(6, seed), everything(6), 5, World(set()), lambda _: None).trials for seed in (1, 2)]
    assert tried[0] != tried[1]


def test_the_best_is_measured_again_before_it_is_believed():
    """A trial that was lucky once loses to one that is good every time."""
    lucky = []

    def measure(removed: SkippedLayers) -> SearchTrial:
        value = {"a1": 1.3, "m1": 1.2}.get(str(removed), 0.5)
        if str(removed) == "a1" and lucky:
            value = 0.9 + 0.1 * len(lucky)
        lucky.extend(["a1"] * (str(removed) == "a1"))
        return SearchTrial(str(removed), value, value, 1.0)

    found = extend_search(new(1), everything(1), 9, measure, lambda _: None).found
    assert (found.skipped, found.speed_up, found.low, found.high) == ("m1", 1.2, 1.2, 1.2)


def test_progress_tells_the_best_so_far_and_how_far_it_is():
    seen = []
    extend_search(new(3), everything(3), 20, World({"m2"}), lambda _: None, seen.append)
    trials = [p for p in seen if p.step.stage == "trials"]
    assert [p.step.done for p in trials] == list(range(1, 21)) and all(p.step.total == 20 for p in trials)
    best = [p.best.speed_up for p in trials]
    assert best == sorted(best) and [p.step.done for p in seen if p.step.stage != "trials"] == list(range(1, 10))


def test_a_busy_machine_is_told():
    trials = tuple(SearchTrial("a1", 1.0, 100.0, baseline) for baseline in (100.0, 99.0, 70.0, 101.0))
    assert replace(new(2), trials=trials).busy_trials == 1 and new(2).busy_trials == 0


def test_searches_are_kept_by_model_and_machine(home):
    here = new(4)
    other_model = replace(here, identity=replace(here.identity, fingerprint="0" * 32))
    other_machine = replace(here, identity=replace(here.identity, machine=replace(MACHINE, cpus=64)))
    assert search_store.find(here.identity) is None and search_store.listing() == []
    for search_ in (other_model, other_machine):
        search_store.save(search_)
    assert search_store.find(here.identity) is None
    assert search_store.searches_elsewhere(here.identity) == [other_machine]
    search_store.save(here)
    assert search_store.find(here.identity) == here and len(search_store.listing()) == 3
    search_store.remove(here.identity.id)
    assert search_store.find(here.identity) is None and len(search_store.listing()) == 2


def damage(text: str, dice: random.Random) -> str:
    record = json.loads(text)
    return dice.choice([
        lambda: text[: dice.randrange(len(text))],
        lambda: json.dumps(record | {"trials": [record["trials"][0] | {"skipped": "a99"}]}),
        lambda: json.dumps(record | {"trials": [record["trials"][0] | {"speed_up": "1e999"}]}),
        lambda: json.dumps(record | {"trials": [record["trials"][0] | {"speed_up": None}]}),
        lambda: json.dumps(record | {"trials": [record["trials"][0] | {"skipped": ""}]}),
        lambda: json.dumps(record | {"format": 2}),
        lambda: json.dumps(record | {"identity": record["identity"] | {"layers": 10**9}}),
        lambda: "[" * 100_000,
        lambda: "\x00\xff",
    ])()


def test_a_damaged_file_is_refused_and_listed_as_such(home):
    found = extend_search(new(3), everything(3), 2, World(set()), search_store.save)
    file = home / f"{found.identity.id}.json"
    sound, dice = file.read_text(), random.Random(0)
    for _ in range(40):
        file.write_text(damage(sound, dice), "latin-1")
        with pytest.raises(UsageProblem) as caught:
            search_store.find(found.identity)
        assert "--fresh" in caught.value.hint
        (entry,) = search_store.listing()
        assert entry.search is None and entry.problem
    file.write_text(sound)
    assert search_store.find(found.identity) == found


@pytest.mark.parametrize("name", ["", "../../etc", "f" * 12, "*", "a" * 400])
def test_only_searches_can_be_removed(home, name):
    search_store.save(new(3))
    with pytest.raises(UsageProblem, match="no search"):
        search_store.remove(name)
    assert len(search_store.listing()) == 1


def test_two_searches_of_one_model_do_not_mix(home):
    name = new(3).identity.id
    with search_store.locked(name), pytest.raises(UsageProblem, match="already"), search_store.locked(name):
        pass


def test_a_place_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "file"))
    for attempt in (lambda: search_store.save(new(3)), lambda: search_store.locked("x").__enter__()):
        with pytest.raises(UsageProblem) as caught:
            attempt()
        assert "SPEC_TUI_DATA_DIR" in caught.value.hint




class Clockwork:
    """A runtime whose answers take what they are told to: a tenth of a second a token, and drafts half of that."""

    def __init__(self) -> None:
        self.asked, self.forgotten = [], 0

    def forget_acceptance(self) -> None:
        self.forgotten += 1

    def run(self, request):
        self.asked.append((request.conversation[0][1], request.engine, request.options.get("layers")))
        word = Emitted(1, "x", "x", "target")
        yield Prefilled(1, 0, 100.0, word, 1)
        if "silent" in request.conversation[0][1]:
            return
        for index in range(1, (request.max_new_tokens + 1) // 2):
            drafted = request.engine == "draft-verify"
            draft = Draft((1, 2), (-1, 0), ("x", "y"), (None, None), (0, 0), (Origin("draft"),)) if drafted else Draft()
            emitted = (word, replace(word, kind="accepted", node=0)) if drafted else (word, word)
            path = (0,) if drafted else ()
            yield Round(index, 1, draft, path, emitted, 0.03 * drafted, 0.06 if drafted else 0.19, 0.01, 1)


def test_a_trial_is_tokens_a_second_over_those_without_a_draft():
    bench = TrialRunner(Clockwork(), ["one", "two"], 33, everything(2))
    trial = bench(SkippedLayers((2,), (1,)))
    assert (trial.skipped, trial.acceptance) == ("a2,m1", 0.5)
    assert (trial.speed_up, trial.tokens_per_second, trial.baseline) == pytest.approx((2.0, 20.0, 10.0))


def test_both_ways_are_measured_in_turns_and_from_the_same_state():
    clockwork = Clockwork()
    bench = TrialRunner(clockwork, ["one", "two"], 9, everything(2))
    warm, clockwork.asked = clockwork.asked, []
    assert [engine for _, engine, _ in warm] == ["autoregressive", "autoregressive", "draft-verify"]
    for _ in range(2):
        bench(SkippedLayers((2,)))
    plain, drafted = (("autoregressive", None), ("draft-verify", "a2"))
    there, back = [("one", *drafted), ("one", *plain)], [("two", *plain), ("two", *drafted)]
    again = [("one", *plain), ("one", *drafted), ("two", *drafted), ("two", *plain)]
    assert clockwork.asked == [*there, *back, *again] and clockwork.forgotten == 2


def test_a_model_with_nothing_to_say_is_told():
    bench = TrialRunner(Clockwork(), ["silent"], 9, everything(2))
    with pytest.raises(RunFailed, match="ends its answers at once"):
        bench(SkippedLayers((1,)))
