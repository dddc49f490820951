"""Parts of the screen that are plain functions: commands, settings, plots, tree, numbers, copying, words."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.color import Color

from engines.datastores.datastore_events import Built
from engines.errors import UsageProblem
from engines.folders import sample_model
from engines.methods import find, specs
from engines.report.events import DatastoreInfo, Draft, Emitted, LoadedHead, Origin, Prefilled, Round, Trial
from engines.report.run_state import RunState, TokenState, fold_all
from engines.request import Request
from spec_tui.export.svg import portable
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.present import token_styles as marks
from spec_tui.present.styles import all_styles
from spec_tui.present.text import cells
from spec_tui.present.token_facts import fate, marked_text
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.settings import ChatSettings, changed, unavailable
from spec_tui.tui import chat_text as words
from spec_tui.tui import slash
from spec_tui.tui.app import SpecTui, themes
from spec_tui.tui.legible import BACKGROUNDS, contrast
from spec_tui.tui.race_controller import usual_lanes
from spec_tui.tui.screens.export import save
from spec_tui.tui.screens.help import help_text
from spec_tui.tui.screens.inspector import explain
from spec_tui.tui.widgets.speed_panel import SpeedPanel, number, percent, telemetry
from spec_tui.tui.widgets.strip_panel import bar, clip, fit, shortened, size, title_row
from spec_tui.tui.widgets.strip_plot import columns, nice_top, spark
from spec_tui.tui.widgets.tree_panel import TreePanel
from tests.tui.fakes import ANSWER, READY, FakeClient, script


def run_of(engine: str = "draft", law: str = "exact") -> RunState:
    return fold_all(script(Request((("user", "hi"),), engine=engine, law=law), ANSWER))


def flat(rows) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


# -- settings and commands ------------------------------------------------------------------------


def test_settings_become_a_request_with_all_options():
    settings = ChatSettings(system="Be brief.").with_engine("pld").with_option("pld", "max_ngram", "4")
    request = settings.with_sampling("temperature", "0.7").request((("user", "x"),), READY)
    assert request.conversation == (("system", "Be brief."), ("user", "x"))
    assert request.options["max_ngram"] == 4 and request.options["num_tokens"] == 32
    assert request.temperature == 0.7
    assert ChatSettings.from_request(request).request((("user", "x"),), READY) == request


def test_settings_say_what_differs_from_the_defaults():
    settings = ChatSettings().with_engine("pld").with_option("pld", "num_tokens", 8)
    assert settings.summary(READY) == "Prompt lookup · num_tokens 8 · exact · greedy · max 256"
    assert changed("pld", settings.options("pld")) == ["num_tokens 8"]
    hot = settings.with_sampling("temperature", 0.8).with_sampling("top_k", 40)
    assert "T 0.8 top-k 40" in hot.summary(READY) and "seed 0" in hot.summary(READY)


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", -1), ("top_p", 0), ("top_k", "x"), ("law", "murphy"), ("max_new_tokens", 0)]
)
def test_bad_sampling_states_the_range(name, value):
    with pytest.raises(UsageProblem) as error:
        ChatSettings().with_sampling(name, value)
    assert error.value.hint


def test_two_slashes_send_a_text_that_starts_with_one():
    assert slash.is_command("/help") and not slash.is_command("//help") and not slash.is_command("a /help")
    assert not slash.is_command("/a\nb")


@pytest.mark.parametrize("text", ["/* x */ what", "/1+1", "//", "/ x", "a /help"])
def test_a_text_without_a_letter_after_its_slash_is_no_command(text):
    assert not slash.is_command(text)


@pytest.mark.parametrize("prompt", ["hello", "/etc/hosts", "//x", "/1+1", "/", "/a\nb", "/help"])
def test_what_is_typed_for_a_prompt_sends_it(prompt):
    assert not slash.is_command(slash.typed(prompt)) and slash.sent(slash.typed(prompt)) == prompt


def test_typos_get_a_suggestion():
    with pytest.raises(UsageProblem) as error:
        slash.execute("/egine pld", ChatSettings(), READY)
    assert "did you mean /engine" in error.value.hint


def test_completions_only_complete():
    for text in ("/", "/s", "/engine ", "/set ", "/law ", "/view s", "hello", "/nope "):
        assert all(line.startswith(text) for line in slash.complete(text, ChatSettings(), READY))
    assert list(slash.complete("/law r", ChatSettings(), READY)) == ["/law rejection", "/law redraw"]
    assert "/set shape=tree" in slash.complete("/set shape", ChatSettings().with_engine("draft"), READY)
    for name in slash.COMMANDS:
        assert slash.describe("/" + name)


# -- plots and numbers ----------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(1, 8))
def test_plots_start_at_zero_and_fit(values, height):
    top = nice_top(max(values))
    rows = columns(values, top, height)
    assert top >= max(1, *values) and len(rows) == height and {len(r) for r in rows} == {len(values)}
    for n, value in enumerate(values):
        full = sum(" ▁▂▃▄▅▆▇█".index(row[n]) for row in rows)
        assert full == pytest.approx(value / top * height * 8, abs=0.51)


def test_equal_values_give_equal_full_columns():
    assert spark([3, 3, 3]) == "███" and spark([0, 0]) == "  " and spark([]) == ""


@given(st.text(alphabet="ab漢🙂", max_size=20), st.integers(1, 15))
def test_fit_is_exact(text, width):
    assert cells(fit(text, width)) == width


def test_small_helpers():
    assert bar(0.5, 4) == "██" and bar(2, 2) == "██" and bar(-1, 2) == ""
    assert percent(None) == "   — " and percent(0.995) == " 100%" and len(percent(0.05)) == 5
    assert number(None, 6, 1) == "     —" and number(12.34, 6, 1) == "  12.3"
    assert size(clip([("abcdef", "text"), ("gh", "text")], 4)) == 4
    assert cells(flat([title_row(30, "draft tree", "round 7")])[0]) == 30


@pytest.mark.parametrize("text, width, shown", [
    ("exact · greedy · max 256", 24, "exact · greedy · max 256"),
    ("exact · greedy · max 256", 23, "exact · greedy · max…"),
    ("exact · greedy · max 256", 18, "exact · greedy…"),
    ("it stops · * again", 15, "it stops…"), ("tokens per step (M), even", 21, "tokens per step (M)…"),
    ("incomprehensibilities", 8, "incompr…"), ("ab", 1, "…"), ("ab", 0, ""),
])
def test_what_does_not_fit_is_cut_between_words(text, width, shown):
    assert shortened(text, width) == shown and fit(text, width).strip() == shown
    assert clip([("› ", "text"), (text, "muted")], width + 2)[1:] in ([(shown, "muted")], [("…", "muted")], [])


def test_speed_panel_keeps_its_places_while_numbers_change():
    """Nothing jumps: every label stands on the same row and column from the first round to the last."""
    events = script(Request((("user", "hi"),), engine="draft"), ANSWER)
    panel, places = SpeedPanel(), None
    panel.detailed = True
    for stop in range(4, len(events), 5):
        panel.show_run(fold_all(events[:stop]), None, None)
        rows = flat(panel.rows(50, 23))
        assert len(rows) <= 23 and all(cells(r) <= 50 for r in rows)
        labels = {
            label: (y, row.index(label)) for label in ("tokens/s", "verify", "time per round", "KV", "prefill")
            for y, row in enumerate(rows) if label in row and (label != "tokens/s" or y < 3)
        }
        assert places in (None, labels)
        places = labels


@pytest.mark.parametrize("height", [6, 10, 14, 23, 40, 53])
def test_speed_panel_fits_any_height(height):
    for run in (RunState(), run_of(), run_of("autoregressive")):
        for detailed in (False, True):
            panel = SpeedPanel()
            panel.show_run(run, None, None)
            panel.detailed = detailed
            rows = flat(panel.rows(50, height))
            assert any("tokens/s" in row for row in rows[:3])
    assert all(cells(row) <= 80 for row in flat(telemetry(run_of(), None, 1024, 80)))


# -- tree -----------------------------------------------------------------------------------------


def tree_rows(event: Round, width: int = 40, height: int = 30) -> list[str]:
    first = Prefilled(1, 0, 0.1, Emitted(1, "So", "So", "target"), 1)
    panel = TreePanel()
    panel.show_round(fold_all([first, event]), 0)
    panel.detailed = True
    return flat(panel.rows(width, height))


def a_round(draft: Draft, path: tuple[int, ...], *emitted: Emitted) -> Round:
    return Round(1, 1, draft, path, emitted, 0.001, 0.01, 0.0, 5, {"match": 3, "nothing": None})


def test_a_chain_is_one_line_and_shows_what_the_target_chose():
    draft = Draft((1, 2, 3), (-1, 0, 1), (" a", " b", " c"), (0.9, 0.8, None), (0, 0, 1),
                  (Origin("draft"), Origin("prompt")))
    event = a_round(draft, (0,), Emitted(1, " a", " a", "accepted", 0), Emitted(9, " z", " z", "corrected", -1, 0.62))
    rows = tree_rows(event, 60)
    assert "round   1" in rows[0] and rows[1] == "◌ So"
    assert rows[2] == "└─● ·a .90D "
    assert rows[3] == "  ├─◐ ·z .62T target instead"
    assert rows[4] == "  └─✗ ·b .80D ○ ·c P "
    assert rows[-2].split() == ["3", "drafted", "1", "accepted", "depth", "3"] and rows[-1].strip() == "match 3"


def test_sixty_four_nodes_fit_forty_columns():
    parents = tuple((n - 1) // 3 if n else -1 for n in range(64))
    draft = Draft(tuple(range(64)), parents, (" longish_token",) * 64, (0.5,) * 64, (0,) * 64, (Origin("draft"),))
    rows = tree_rows(a_round(draft, (), Emitted(9, "x", "x", "corrected", -1)), 40, 20)
    assert len(rows) == 20 and all(cells(row) <= 40 for row in rows)
    assert any("more" in row for row in rows)


def test_nothing_drafted_is_said():
    rows = tree_rows(a_round(Draft(), (), Emitted(9, "x", "x", "target", -1, 0.5)))
    assert rows[2] == "└─◐ x .50T target" and "nothing drafted" in rows[-2]


def test_hostile_pieces_are_harmless_in_tree_and_inspector():
    bad = "\x1b]0;owned\x07\u202e[red]\n"
    draft = Draft((1,), (-1,), (bad,), (0.9,), (0,), (Origin("retrieval", 1, bad, 2),))
    event = a_round(draft, (0,), Emitted(1, bad, bad, "accepted", 0, trials=(Trial(0, 0.5, 0.5, 0.1, True),)))
    text = "\n".join(tree_rows(event)) + str(explain(fold_all(
        [Prefilled(1, 0, 0.1, Emitted(1, bad, bad, "target"), 1), event]), 1))
    assert not set(text) & {"\x1b", "\x07", "\u202e"} and "[red]" in text


# -- marks, words, copying ------------------------------------------------------------------------


def test_every_view_styles_every_token_and_the_legend_explains_it():
    run = run_of()
    for view in marks.VIEWS:
        names = marks.present(run.tokens, view)
        assert names <= set(all_styles())
        explained = {name for name, _ in marks.legend(names, view)}
        assert explained == (set() if view == "plain" else names)


def test_styles_differ_without_colour():
    """Within a view, no two styles have the same attributes, but for the two that mean "nothing special"."""
    for names in (("accepted", "corrected", "bonus", "ghost"), ("sure", "likely", "unsure", "guess"),
                  ("by-draft", "by-retrieval", "by-prompt", "by-output", "by-target")):
        attributes = [all_styles()[name].attributes for name in names]
        assert len(set(attributes)) == len(attributes)


@pytest.mark.parametrize("theme", [name for name in themes() if "ansi" not in name])
def test_words_can_be_read_in_every_theme(theme):
    """What colours the terminal's own are is not known."""
    colours = SpecTui(FakeClient(), LoadRequest(), theme=theme).get_css_variables()

    def least(name: str, *backs: str) -> float:
        return min(contrast(Color.parse(colours[name]), Color.parse(colours[back])) for back in backs)

    low = {name: least(name, *BACKGROUNDS) for name in {style.colour for style in all_styles().values()} - {"border"}}
    assert min(low.values()) > 4.4, low
    assert least("footer-key-foreground", "footer-background") > 3


def test_marked_text_strips_to_the_answer():
    import re

    run = run_of()
    marked = marked_text(run)
    plain = re.sub(r"\{~~(.*?)~>(.*?)~~\}", r"\2", marked, flags=re.DOTALL)
    assert re.sub(r"\{\+\+(.*?)\+\+\}", r"\1", plain, flags=re.DOTALL) == ANSWER


def test_pictures_are_private_and_never_overwrite(tmp_path):
    svg = '<svg><!-- by --><style>@font-face { src: url("https://cdnjs.x/y") } a{font-family: Fira Code}</style></svg>'
    assert "http" not in portable(svg) and "<!--" not in portable(svg)
    first, second = save(b"x", "svg", tmp_path), save(b"x", "svg", tmp_path)
    assert first != second and first.exists() and second.exists()


def test_showcases_are_a_dozen_of_four_kinds():
    assert len(SHOWCASES) == 12
    assert {s.kind for s in SHOWCASES} == {"copying", "code", "story", "arithmetic"}
    assert len({s.name for s in SHOWCASES}) == 12 and all(len(s.shows) < 110 and s.prompt for s in SHOWCASES)


def test_inspector_explains_every_token():
    for run in (run_of(), run_of("autoregressive"), run_of(law="rejection")):
        for index, token in enumerate(run.tokens):
            text = str(explain(run, index))
            assert str(token.emitted.token) in text and "target says" in text
            assert ("random draw" in text) == bool(token.emitted.trials)


# -- hygiene --------------------------------------------------------------------------------------


def test_importing_the_screens_loads_no_torch():
    code = ("import sys, spec_tui.tui.app, spec_tui.tui.screens.engine, spec_tui.tui.screens.inspector\n"
            "bad = {'torch', 'transformers', 'numpy'} & set(sys.modules)\nassert not bad, bad")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


def test_help_wraps_a_list_of_marks_between_them():
    lines = help_text(72).plain.splitlines()
    assert any("◐ what the target chose" in line for line in lines) and any("L earlier logits" in x for x in lines)
    assert any("b both" in line for line in lines), "a part that is too long is wrapped between its words"


def test_every_binding_has_an_id_and_a_help_text():
    from spec_tui.tui.app import SpecTui
    from spec_tui.tui.screens.branch import BranchScreen
    from spec_tui.tui.screens.chat import ChatScreen
    from spec_tui.tui.screens.data import DataScreen
    from spec_tui.tui.screens.engine import EngineScreen
    from spec_tui.tui.screens.evaluate import EvaluateScreen
    from spec_tui.tui.screens.explain import ExplainScreen
    from spec_tui.tui.screens.help import HelpScreen
    from spec_tui.tui.screens.inspector import Inspector
    from spec_tui.tui.screens.lessons import LessonScreen
    from spec_tui.tui.screens.modal import SpecModal
    from spec_tui.tui.screens.price import PriceScreen
    from spec_tui.tui.screens.race import RaceScreen
    from spec_tui.tui.screens.showcase import ShowcaseScreen
    from spec_tui.tui.screens.step import StepScreen
    from spec_tui.tui.widgets.prompt_box import PromptBox
    from spec_tui.tui.widgets.transcript import Transcript

    owners = (SpecTui, ChatScreen, PromptBox, Transcript, TreePanel, EngineScreen, HelpScreen, Inspector, SpecModal,
              ShowcaseScreen, PriceScreen, DataScreen, StepScreen, LessonScreen, BranchScreen, RaceScreen,
              ExplainScreen, EvaluateScreen)
    ids = []
    for owner in owners:
        for binding in owner.__dict__["BINDINGS"]:
            assert binding.id and binding.tooltip, binding
            assert not {"ctrl+m", "ctrl+i", "ctrl+h", "ctrl+b", "ctrl+a", "ctrl+t", "ctrl+n", "ctrl+w"} & set(
                binding.key.split(","))
            ids.append(binding.id)
        for action in owner.__dict__.get("ACTIONS", ()):
            owned = getattr(owner, f"action_{action.method}", None)
            assert owned is not None or "." in action.method, action
            assert action.id and action.help and action.label and not action.help.endswith(".")
    assert len(ids) == len(set(ids))


def test_under_the_rejection_law_the_inspector_speaks_of_dice():
    accepted = Emitted(1, "a", "a", "accepted", 0, 0.4, trials=(Trial(0, 0.4, 0.8, 0.25, True),))
    refused = Emitted(2, "b", "b", "corrected", -1, 0.1, trials=(Trial(0, 0.1, 1.0, 0.9, False),))
    event = a_round(Draft((1,), (-1,), ("a",), (0.8,), (0,), (Origin("draft"),)), (0,), accepted)
    said = fate(RunState(), TokenState("a", "a", "accepted", "draft", 0.4, 0, accepted), event)
    assert "0.250" in said and "p/q, 0.500" in said and "target chose" not in said
    said = fate(RunState(), TokenState("b", "b", "corrected", "target", 0.1, 0, refused), event)
    assert "rejected" in said and "max(0, p - q)" in said


def explained(law: str, emitted: Emitted) -> str:
    """The inspector's words on a token of a round with two drafted siblings."""
    draft = Draft((1, 2), (-1, -1), ("a", "b"), (0.6, 0.3), (0, 0), (Origin("draft"),))
    path = (emitted.node,) if emitted.node >= 0 else ()
    started = script(Request((("user", "x"),), law=law), "x")[0]
    event = replace(a_round(draft, path, emitted), bias=None if started.lossless else 0.25)
    first = Prefilled(1, 0, 0.1, Emitted(1, "So", "So", "target"), 1)
    return str(explain(fold_all([started, first, event]), 1))


def test_the_inspector_explains_drawn_siblings():
    trials = (Trial(0, 0.1, 0.6, 0.9, False), Trial(0, 0.0, 0.6, 0.5, False), Trial(1, 0.4, 0.3, 0.2, True))
    said = explained("rejection", Emitted(2, "b", "b", "accepted", 1, 0.3, trials=trials))
    assert "tried after 2 others" in said and "rejected, drawn again" in said and "p is the residual" in said
    assert "LOSSY" not in said and "bias" not in said


def test_the_inspector_explains_redrawing():
    trials = (Trial(0, 0.5, 1.0, 0.9, False), Trial(0, 0.5, 1.0, 0.2, True), Trial(1, 0.3, 1.0, 0.1, True))
    said = explained("redraw", Emitted(1, "a", "a", "accepted", 0, 0.5, trials=trials))
    assert "1 of 2 paths through it drew it" in said and "is 0.750 where the target has 0.500" in said
    assert said.count("LOSSY") >= 3 and "0.250 in this round" in said and "p/q" not in said
    missed = (Trial(0, 0.5, 1.0, 0.9, False),)
    said = explained("redraw", Emitted(9, "z", "z", "corrected", -1, 0.2, trials=missed))
    assert "drawn again" in said and "LOSSY" in said


def test_the_inspector_explains_typical_acceptance():
    trials = (Trial(0, 0.5, 1.0, 0.09, True), Trial(1, 0.01, 1.0, 0.09, False))
    said = explained("typical", Emitted(1, "a", "a", "accepted", 0, 0.5, trials=trials))
    assert "gives it 0.500, above the threshold 0.090" in said and "as if it had probability 1" in said
    assert "draw 0" not in said and "fails" in said and "LOSSY" in said
    said = explained("typical", Emitted(9, "z", "z", "corrected", -1, 0.2, trials=trials[1:]))
    assert "Nothing that was drafted here passed" in said


def test_long_lists_of_trials_are_cut():
    trials = (Trial(0, 0.5, 1.0, 0.9, False),) * 40
    said = explained("redraw", Emitted(9, "z", "z", "corrected", -1, 0.2, trials=trials))
    assert "… 28 more" in said and len(said.splitlines()) < 35


@pytest.mark.parametrize("height", [6, 10, 14, 23, 40, 53])
def test_a_lossy_run_is_marked_on_every_panel(height):
    panel, run = SpeedPanel(), run_of(law="redraw")
    panel.show_run(run, None, None)
    rows = flat(panel.rows(50, height))
    assert any("LOSSY: bias 0.250 per round" in row for row in rows) and all(cells(row) <= 50 for row in rows)
    assert any("LOSSY 0.250" in row for row in flat(telemetry(run, None, 1024, 80)))
    assert all(cells(row) <= 80 for row in flat(telemetry(run, None, 1024, 80)))
    tree = TreePanel()
    tree.show_round(run, 3)
    assert any("LOSSY: bias 0.250 in this round" in row for row in flat(tree.rows(40, max(height, 10))))


def test_a_lossless_run_is_marked_nowhere():
    panel, run = SpeedPanel(), run_of(law="rejection")
    panel.show_run(run, None, None)
    assert not any("LOSSY" in row for row in [*flat(panel.rows(50, 40)), *flat(telemetry(run, None, 1024, 80))])


def test_the_mark_stands_out():
    assert marks.spans("law redraw LOSSY · T 1", "muted") == [
        ("law redraw ", "muted"), ("LOSSY", "lossy"), (" · T 1", "muted")]
    assert marks.spans("exact", "text") == [("exact", "text")]
    assert "reverse" in all_styles()["lossy"].attributes, "without colour, too"


def test_laws_that_are_not_lossless_say_so_wherever_they_can_be_chosen():
    outcome = slash.execute("/law typical", ChatSettings(), READY)
    assert outcome.message.startswith("law set to typical LOSSY: ")
    assert "typical LOSSY" in outcome.settings.summary(READY)
    assert "redraw (LOSSY) | typical (LOSSY)" in slash.describe("/law ")
    with pytest.raises(UsageProblem, match="law=murphy") as error:
        slash.execute("/law murphy", ChatSettings(), READY)
    assert "exact | rejection | block | redraw (LOSSY)" in error.value.hint
    assert "LOSSY" not in slash.execute("/law rejection", ChatSettings(), READY).message


@pytest.mark.parametrize(("engine", "way"), [("rest", "the next answers search it"), ("pld", "d chooses it")])
def test_what_is_built_is_searched_or_to_be_chosen(engine, way):
    ready = replace(READY, datastores=(DatastoreInfo("notes", sparse=True, default=True),))
    session = SimpleNamespace(settings=ChatSettings(engine), ready=ready)
    assert words.stocked(Built("notes", "sparse", 3, 1, 0, 30, 0.1), session).endswith(f"; {way}")


def test_an_engine_without_its_datastore_says_what_to_build():
    sparse, dense = DatastoreInfo("dense", sparse=True), DatastoreInfo("b", dense=True)
    for stores, missing in ((), {"rest", "dresd"}), ((sparse,), {"dresd"}), ((dense,), {"rest"}), (
        (sparse, DatastoreInfo("c", sparse=True, dense=True)), set()
    ):
        ready = replace(READY, datastores=stores)
        for engine in ("rest", "dresd"):
            reason = unavailable(find(engine), ready)
            assert ("datastore build" in reason) == (engine in missing), (stores, engine)
    with pytest.raises(UsageProblem, match="DReSD is not available") as refused:
        ChatSettings().with_engine("dresd", READY)
    assert "--kind dense" in refused.value.hint


def test_a_datastore_that_is_built_when_searched_is_offered_by_name_and_not_taken_for_one_that_fits():
    """With a model of another tokenizer there is only the one that can be built: the engine does not search it unasked,
    and the default race held it all the same."""
    offered = replace(READY, datastores=(DatastoreInfo("python-stdlib", sparse=True, built=False),))
    spec, usual = find("rest"), ChatSettings().options("rest")
    reason = unavailable(spec, offered, usual)
    assert "choose python-stdlib as its datastore" in reason and "datastore build --kind sparse" in reason
    assert not unavailable(spec, offered) and not unavailable(spec, offered, usual, ["python-stdlib"])
    assert not unavailable(spec, offered, usual, ["built since"])
    assert "fits" in unavailable(find("dresd"), offered, ChatSettings().options("dresd"), ["python-stdlib"])
    assert "rest" not in [lane.engine for lane in usual_lanes(ChatSettings(), offered)]
    named = ChatSettings(datastores=("python-stdlib",))
    assert "rest" in [lane.engine for lane in usual_lanes(named, offered)]


def test_what_is_needed_and_searched_follows_the_options():
    rasd, empty = ChatSettings().with_option("rasd", "retrieval", "pld"), replace(READY, datastores=())
    assert unavailable(find("rasd"), empty, ChatSettings().options("rasd")).endswith("or set retrieval=pld")
    assert unavailable(find("rasd"), empty, rasd.options("rasd")) == "" == unavailable(find("rasd"), empty)
    alone = replace(empty, draft_model=None)
    reason = unavailable(find("rasd"), alone, rasd.options("rasd"))
    assert "no draft model" in reason and "no EAGLE head" in reason
    alone = replace(alone, heads={"EAGLE head": LoadedHead("own")})
    assert unavailable(find("rasd"), alone, rasd.options("rasd")) == "", "the head drafts"
    asked = rasd.with_option("rasd", "drafter", "draft").options("rasd")
    assert unavailable(find("rasd"), alone, asked).endswith("or set drafter=eagle")
    searched = {engine: ChatSettings(engine).retrieves(empty) for engine in ("pld", "rest", "dresd", "rasd", "hybrid")}
    assert searched == {"pld": False, "rest": True, "dresd": True, "rasd": True, "hybrid": True}
    assert not replace(rasd, engine="rasd").retrieves(empty)
    chosen = replace(rasd, engine="rasd", datastores=("notes",))
    assert "notes" not in chosen.summary(empty) and "notes" in replace(chosen, engine="hybrid").summary(empty)
    assert "set retrieval=pld" in slash.execute("/engine rasd", ChatSettings(), empty).message


async def test_rasd_can_be_chosen_without_a_datastore_if_it_retrieves_from_the_text(session):
    async with session(client=FakeClient(ready=replace(READY, datastores=()))) as s:
        await s.pilot.press("ctrl+e")
        form = s.app.screen
        engines = form.query_one("#engines")
        engines.highlighted = [spec.id for spec in specs()].index("rasd")
        await s.pilot.pause()
        assert "Not with these options: no sparse datastore" in str(form.query_one("#about").content)
        await s.pilot.press("ctrl+s")
        assert s.app.screen is form and "set retrieval=pld" in str(form.query_one("#hint").content)
        field = next(f for f in form.query("#options Field") if f.option.name == "retrieval")
        field.put("pld")
        await s.pilot.press("ctrl+s")
        await s.pilot.pause()
        assert s.chat.session.settings.resolved(None) == "rasd"
        assert s.chat.session.settings.options("rasd")["retrieval"] == "pld"


def test_the_trees_remarks_are_whole_or_not_there():
    from spec_tui.tui.widgets.tree_panel import _whole

    notes = ["the budget verifies 12 of 60", "draft forwards 5", "best of 128"]
    assert _whole(notes[:], 80) == " · ".join(notes)
    assert _whole(notes[:], 49) == "the budget verifies 12 of 60 · draft forwards 5"


def test_a_preset_goes_by_the_loaded_model():
    spec = find("admg")
    shipped = ChatSettings("admg", model=str(sample_model("target")))
    tuned, paper = (spec.parse({"preset": preset}) for preset in ("sample", "paper"))
    assert tuned["alpha"] != paper["alpha"]
    assert shipped.options("admg") == shipped.request((("user", "x"),), None).options == tuned
    assert replace(shipped, model="other/model").options("admg") == paper
    moved = shipped.with_option("admg", "alpha", paper["alpha"])
    assert moved.options("admg") == tuned | {"alpha": paper["alpha"]}
    assert moved.with_option("admg", "alpha", tuned["alpha"]) == replace(shipped, given={"admg": {}})
