"""The layers panel: one cell a sublayer, the rules of the next answer by key, whether it is faster."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods import find
from engines.methods.admg.rules import leave_out
from engines.report.events import Layers, Prefilled
from engines.report.run_state import fold_all
from engines.request import Request
from spec_tui.present import price_text as price
from spec_tui.present.speed_verdict import judged
from spec_tui.present.step.phases import StepPosition
from spec_tui.present.text import cells
from spec_tui.tui import layers_view as layers
from spec_tui.tui.layers_view import LayersView, Payoff, removed, stepped
from spec_tui.tui.screens.inspector import explain
from spec_tui.tui.widgets import layers_panel, step_panels
from spec_tui.tui.widgets.layers_panel import AGAIN, RULES, RUNS, STAYS
from spec_tui.tui.widgets.speed_panel import SpeedPanel
from tests.tui.fakes import READY, script

COSINES = (0.581, 0.93, 0.97, 0.985, 0.99, 0.999, 0.95, 0.96, 0.4, 0.991, 0.998, 0.7)


def some_layers(attention: str, mlp: str, cosines=COSINES, **more) -> Layers:
    """Layers by letter: c, i, b, s for what is left out, a dot for what runs."""
    names = {letter: rule for rule, letter in RULES.items()} | {".": ""}
    given = {"attention_cosine": tuple(cosines), "positions": 100, "alpha": 0.985, "m": 3, "n": 2, **more}
    return Layers(tuple(names[x] for x in attention), tuple(names[x] for x in mlp), **given)


USED = some_layers("..icci..ic..", "..i..i..i...")


def a_payoff(fraction: float = 0.6, kept: int = 63, judged: int = 93, second: float = 1.0) -> Payoff:
    price = CostCurve(((1, 0.01), (2, 0.01 * second), (64, 0.01 * second)))
    each = 0.01 * fraction
    return Payoff(fraction, kept, judged, SpeedupModel(price, each, each, most=12, chances=(kept / judged,)))


def flat(look: LayersView, width: int = 51, height: int = 14) -> list[str]:
    rows = layers_panel.rows(look, width, height)
    assert len(rows) <= height
    out = ["".join(text for text, _ in row) for row in rows]
    assert all(cells(row) <= width for row in out)
    return out


def rowed(out: list[str], name: str) -> str:
    """The cells of attention or of MLP, over all bands."""
    return " ".join(row[layers_panel.LABEL:] for row in out if row.startswith(name))


def said(look: LayersView, width: int = 120) -> str:
    return "".join(text for text, _ in layers_panel.verdict(look, width))


# -- the cells ---------------------------------------------------------------------------------------

GLYPHS = RUNS + STAYS + AGAIN + "cibsCIBS"


@st.composite
def any_layers(draw) -> Layers:
    count = draw(st.integers(1, 90))
    rules = st.sampled_from(["", *RULES])
    cosine = st.one_of(st.none(), st.floats(-1, 1), st.just(math.nan))
    column = lambda of: tuple(draw(st.lists(of, min_size=count, max_size=count)))  # noqa: E731
    return Layers(column(rules), column(rules), column(cosine), draw(st.sampled_from([(), column(cosine)])), 9,
                  draw(st.sampled_from([None, 0.985, 0.0, 1.0])), 3, draw(st.sampled_from([None, 0, 2, 99])))


@settings(max_examples=40)
@given(any_layers(), st.data(), st.sampled_from([(51, 13), (51, 16), (74, 20), (116, 30), (200, 50)]))
def test_every_sublayer_has_exactly_one_cell_in_order(used, data, size):
    planned = data.draw(st.sampled_from([None, replace(used, attention=used.mlp, mlp=used.attention)]))
    look, count = LayersView("admg", used, planned, payoff=a_payoff()), len(used.attention)
    out, room = flat(look, *size), size[0] - layers_panel.LABEL
    bands = [row for row in out if row.startswith("attn")]
    wide = max(1, next((n for n, x in enumerate(bands[0][layers_panel.LABEL:], 1) if x == " "), 1))
    if count > 1 and len(bands[0]) - layers_panel.LABEL < 2 * wide:
        wide = 1
    for name, kind in (("attn", "attention"), ("MLP", "mlp")):
        line = "".join(row[layers_panel.LABEL:] for row in out if row.startswith(name))
        assert len(line) == count * wide <= len(bands) * room
        assert all(line[n * wide: (n + 1) * wide] == "".join(t for t, _ in layers_panel.cell(look, kind, n, wide))
                   for n in range(count))


@pytest.mark.parametrize("count, size", [(24, (51, 14)), (32, (51, 14)), (48, (51, 14)), (80, (51, 14)), (80, (78, 18)),
                                         (80, (118, 32)), (126, (51, 16))])
def test_many_layers_fit_with_their_plot_and_the_verdict(count, size):
    used = some_layers("." * count, "." * count, [0.9] * count)
    out = flat(LayersView("admg", used, payoff=a_payoff(0.9)), *size)
    assert sum(x in (RUNS, STAYS) for row in out if row.startswith(("attn", "MLP")) for x in row) >= 2 * count
    assert any("α" in row for row in out[1:]) and any(row.startswith("—") for row in out)


def test_which_rule_left_it_out_and_which_layers_stay():
    out = flat(LayersView("admg", USED), 51, 14)
    assert rowed(out, "attn").split() == ["■■", "■■", "i·", "c·", "c·", "i·", "■■", "■■", "i·", "c·", "▣▣", "▣▣"]
    assert rowed(out, "MLP").split() == ["■■", "■■", "i·"] * 3 + ["■■", "▣▣", "▣▣"]
    assert "α 0.985  m 3  n 2" in out[0]
    assert any("skipped: 6 attention and 3 MLP of 12" in row for row in out)
    legend = out[-1]
    assert all(words in legend for words in ("■ runs", "▣ last n", "c cosine", "i interval")) and "both" not in legend


def test_a_preview_shows_what_goes_and_what_comes_back():
    planned = some_layers("...b..i.....", "...i..i.....", alpha=0.97, m=4, n=4)
    look = LayersView("admg", USED, planned)
    assert look.changes
    out = flat(look)
    assert rowed(out, "attn").split()[2:7] == [AGAIN * 2, "b·", AGAIN * 2, AGAIN * 2, "I·"]
    assert rowed(out, "MLP").split()[2:7] == [AGAIN * 2, "I·", "■■", AGAIN * 2, "I·"]
    assert "next: α 0.97  m 4  n 4" in out[0]
    assert any("skipped next: 6→2 attention and 3→2 MLP of 12" in row for row in out)
    changed = {text for row in layers_panel.rows(look, 51, 14) for text, style in row if style == "changed"}
    assert changed == {AGAIN * 2, "I·"}


def test_the_threshold_is_a_line_and_cosines_near_1_are_told_apart():
    heights = [layers_panel.nines(c) for c in (-1.0, 0.0, 0.9, 0.985, 0.99, 0.999, 1.0)]
    assert heights == sorted(heights) and heights[0] == heights[1] == 0
    assert [heights[2], heights[4], heights[5]] == pytest.approx([1, 2, 3])


@given(st.lists(st.floats(-1, 1), min_size=12, max_size=12), st.floats(0.1, 1), st.sampled_from([14, 22, 30]))
def test_a_bar_crosses_the_line_of_the_threshold_where_the_rule_leaves_attention_out(cosines, alpha, height):
    used = leave_out(Layers(("",) * 12, ("",) * 12, tuple(cosines)), alpha, 3, 0, interval=False)
    out = flat(LayersView("admg", used), 60, height)
    line = next(row for row in out[1:] if "α" in row[:6])[layers_panel.LABEL:]
    room = len(rowed(out, "attn")) // 12
    assert [line[n * room] != "┄" for n in range(12)] == [rule == "cosine" for rule in used.attention]


def test_numbers_stand_below_wide_cells():
    out = flat(LayersView("admg", replace(USED, mlp_cosine=tuple(1 - c / 4 for c in COSINES))), 116, 30)
    numbers = [row[layers_panel.LABEL:].split() for row in out if row.startswith("  C")]
    assert numbers[0] == [f"{c:.3f}"[1:] for c in COSINES]
    assert numbers[1][0] == ".854" and len(numbers) == 2  # .85475: cut, not rounded
    rows = flat(LayersView("admg", USED), 55, 30)
    narrow = [row[layers_panel.LABEL:].split() for row in rows if row.startswith("  C")]
    assert narrow[0][4:6] == [".99", ".99"] and narrow[0][3] == ".98"
    assert not any(row.startswith("  C") for row in flat(LayersView("admg", USED)))


def test_before_anything_was_measured_the_panel_says_how_to_measure():
    assert "l and enter measure it for the typed prompt" in " ".join(flat(LayersView("admg")))
    assert "not recorded" in " ".join(flat(LayersView("admg", asks=False)))
    other = " ".join(flat(LayersView("pld")))
    assert "leaves out no layers" in other and other.count("/engine admg") == 1
    assert flat(LayersView("draft-verify", replace(USED, alpha=None, m=None, n=None)))[0].endswith("a fixed set ")


def test_a_fixed_set_is_no_rule():
    used = some_layers("ss..ssssss..", "...s....s...", (), alpha=None, m=None, n=None)
    out = flat(LayersView("draft-verify", used))
    assert rowed(out, "attn").split()[:3] == ["s·", "s·", "■■"] and "s as set" in out[-1]
    assert not any("α" in row or "┤" in row for row in out) and not any(row.startswith("  C") for row in out)


def test_what_rules_left_out_is_not_called_a_fixed_set_before_one_was_used():
    head = flat(LayersView("draft-verify", USED))[0]
    assert head.endswith("α 0.985  m 3  n 2  next: a fixed set ")


def test_steps_of_the_threshold_are_small_near_1_and_lead_back():
    up = [0.98]
    while up[-1] < 1:
        up.append(stepped(up[-1], 1))
    assert up[:4] == [0.98, 0.985, 0.99, 0.991] and len(up) == 13
    down = [1.0]
    while down[-1] > 0.98:
        down.append(stepped(down[-1], -1))
    assert down == up[::-1]


def test_removed_tells_the_sublayers():
    assert removed(USED)[0] == tuple(x != "." for x in "..icci..ic..")


# -- whether it is faster -----------------------------------------------------------------------------------


def test_without_a_baseline_there_is_no_verdict():
    look = LayersView("admg", USED, payoff=a_payoff(0.93, 71, 100))
    assert said(look) == "— agreement .71, break-even .93 (forecast)"
    assert said(replace(look, payoff=a_payoff(1.2))) == "— agreement .68, slower even with all accepted (forecast)"


@pytest.mark.parametrize("payoff, speed, words", [
    (None, None, "— an answer measures whether this is faster"),
    (a_payoff(1.2), 0.7, "✗ slower (0.70x ±0.02): agreement .68, slower even with all accepted"),
    (a_payoff(0.3), 1.4, "✓ 1.40x faster (±0.02): agreement .68, break-even .30"),
    (a_payoff(0.3), 1.01, "≈ no difference (1.01x ±0.02): agreement .68, break-even .30"),
    (a_payoff(0.3), 0.9, "✗ slower (0.90x ±0.02): agreement .68, break-even .30, forecast: faster with drafts of 2"),
    (a_payoff(0.9), 1.2, "✓ 1.20x faster (±0.02): agreement .68, break-even .90"),  # the drafts stopped in time
])
def test_the_verdict(payoff, speed, words):
    look = LayersView("admg", USED, payoff=payoff, verdict=judged(speed, speed and 0.02))
    assert said(look).startswith(words)
    for width in range(30, 100):
        assert cells(said(look, width)) <= width and "…" not in said(look, width)


def test_cost_agreement_and_break_even_stand_on_one_scale():
    rows = ["".join(text for text, _ in row) for row in layers_panel.scale(a_payoff(0.5, 75, 100), 53)]
    room = 20
    cost, agreement, even = (row[14:14 + room] for row in rows)
    assert cost.index("┃") == agreement.index("┃") == even.index("┃") == room // 2
    assert agreement.rstrip("·") == "█" * 10 + "┃" + "█" * 4 and set(cost[11:]) == {"·"}
    assert rows[0].endswith(".50 of a whole") and rows[1].endswith(".75 of 100 judged") and ".50 agreement" in rows[2]


def test_what_can_never_pay_has_no_mark_on_the_scale():
    rows = ["".join(text for text, _ in row) for row in layers_panel.scale(a_payoff(1.3), 53)]
    assert not any("┃" in row for row in rows) and "never" in rows[2] and "1.30 of a whole" in rows[0]
    assert all(cells(row) <= 53 for row in rows)


# -- beside a real engine, and in the inspector --------------------------------------------------------


def test_a_preview_is_what_the_engine_then_leaves_out(tiny):
    """By cosines of a single measurement, for rules of every kind."""

    def measured(**options) -> Layers:
        request = Request((("user", "Tom bought 4 apples."),), "admg", options, max_new_tokens=1)
        return next(event.layers for event in tiny.run(request) if isinstance(event, Prefilled))

    first, spec = measured(), find("admg")
    low, high = sorted(first.attention_cosine)[1:3]
    some, rules = (low + high) / 2, set()  # a last bit decides nothing
    for options in ({"alpha": some, "n": 0}, {"alpha": some, "n": 1, "m": 2}, {"m": 1, "n": 2}, {"m": 5, "n": 12},
                    {"cosine": False, "m": 2, "n": 0}, {"interval": False, "alpha": 0.0, "n": 0},
                    {"cosine": False, "interval": False}):
        preview, found = spec.layer_rules(first, spec.parse(options, tiny.target.name)), measured(**options)
        assert (preview.attention, preview.mlp) == (found.attention, found.mlp)
        assert (preview.alpha, preview.m, preview.n) == (found.alpha, found.m, found.n)
        rules |= {*found.attention, *found.mlp}
    assert rules == {"", "cosine", "interval", "both"}


def test_what_a_model_cannot_do_without_stays_in_a_preview():
    bound = replace(USED, attention_stays=(5, 6), mlp_stays=(3,))
    found = find("admg").layer_rules(bound, find("admg").parse({"alpha": 0.5, "m": 3, "n": 0}))
    assert not any((found.attention[4], found.attention[5], found.mlp[2])) and found.attention[3] and found.mlp[5]


def test_the_inspector_says_which_part_of_the_target_drafted():
    run = fold_all(script(Request((("user", "hi"),), "admg", find("admg").parse({}))))
    index = next(n for n, token in enumerate(run.tokens) if token.kind == "accepted")
    text = str(explain(run, index))
    assert "Proposed (part of target)" in text
    assert "the target without 6 attention and 3 MLP sublayers of its 12 layers" in text and "draft model" not in text


@pytest.mark.parametrize(("engine", "who", "not_so"), [
    ("admg", "part of target", "draft model"), ("draft", "draft model", "part of target")])
def test_who_drafted_is_said_where_drafts_are_counted_and_listed(engine, who, not_so):
    run = fold_all(script(Request((("user", "hi"),), engine, find(engine).parse({}))))
    speed = SpeedPanel()
    speed.detailed = True
    speed.show_run(run, None, None)
    number = next(n for n, event in enumerate(run.rounds, 1) if event.draft.tokens)
    listed = step_panels.phase_rows(run, StepPosition(number, "draft"), 80, 24)
    for rows in (speed.rows(80, 60), listed):
        text = "\n".join("".join(part for part, _ in row) for row in rows)
        assert who in text and not_so not in text


def test_the_price_of_a_run_that_drafts_with_its_target():
    """A forward for each token, at this run's own time; before a run nothing is claimed."""
    options = find("admg").parse({})
    run = fold_all(script(Request((("user", "hi"),), "admg", options)))
    found = price.outlook(run.started, "admg", options, run)
    each = run.metrics.draft_seconds / sum(len(r.draft.tokens) for r in run.rounds)
    assert found.forecast.first == found.forecast.each == found.forward == pytest.approx(each)
    assert found.unit == "token" and found.paper == 12
    look = layers.look(run, None, "admg", options, None)
    assert look.payoff.fraction == pytest.approx(found.dear)
    assert look.payoff.needed == pytest.approx(found.forecast.pays_from, abs=1e-3)
    assert price.outlook(READY, "admg", options) is None
