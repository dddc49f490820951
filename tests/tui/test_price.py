"""The price of verification on the screen: the break-even row, t(n), the view of the price, what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.cost.curve import CostCurve
from engines.methods import find, specs
from engines.report.events import Ready, Round
from engines.report.run_state import RunState, fold_all
from engines.request import Request
from spec_tui.present import price_text as price
from spec_tui.present.price_text import why
from spec_tui.present.speed_verdict import Speed, of_runs
from spec_tui.present.text import cells
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.screens.inspector import explain
from spec_tui.tui.screens.price import EVERY, PriceScreen
from spec_tui.tui.widgets import price_panel
from spec_tui.tui.widgets.price_panel import PricePanel, column_of, cost_plot, cost_top
from spec_tui.tui.widgets.speed_panel import SpeedPanel, telemetry
from spec_tui.tui.widgets.tree_panel import TreePanel
from tests.tui.fakes import ANSWER, DRAFT_PRICE, PRICE, READY, FakeClient, script

CURVE = CostCurve(PRICE)
DEAR = replace(READY, draft_price=((1, 0.05), (64, 0.06)))


def events_of(engine: str = "draft", **options) -> list:
    return script(Request((("user", "hi"),), engine=engine, options=find(engine).parse(options)), ANSWER)


def run_of(engine: str = "draft", slower: float = 1.0, dear: bool = False, **options) -> RunState:
    """A run; ``slower`` stretches the time of its rounds beyond what one row takes."""
    events = events_of(engine, **options)
    if dear:
        events[0] = replace(events[0], draft_price=DEAR.draft_price)
    return fold_all(replace(e, draft_seconds=e.draft_seconds * slower) if isinstance(e, Round) else e for e in events)


def of(run: RunState, ready: Ready = READY, settings: ChatSettings | None = None, baseline: RunState | None = None
       ) -> price.SpeedEstimate | None:
    return price.outlook_of(run, ready, (settings or ChatSettings()).chosen(ready), baseline)


def flat(rows) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def words(row) -> str:
    return flat([row])[0]


# -- the break-even row -------------------------------------------------------------------------------


def baseline_of(ratio: float) -> RunState:
    """A baseline beside which ``run_of()`` is so many times as fast."""
    rate = run_of().metrics.tokens_per_second
    run = run_of("autoregressive")
    factor = run.metrics.tokens_per_second / (rate / ratio)
    return fold_all(replace(e, verify_seconds=e.verify_seconds * factor, other_seconds=e.other_seconds * factor)
                    if isinstance(e, Round) else e for e in events_of("autoregressive"))


def test_a_run_says_what_a_step_makes_and_needs_and_without_a_baseline_gives_no_verdict():
    run = run_of()
    even = run.metrics.break_even
    assert words(why(run, None, of(run))) == (
        f"{even.makes:.2f} tokens per verify step (M), break-even ≈{even.needs:.2f}")
    assert of_runs(run, None).speed is Speed.UNMEASURED and of_runs(run, None).mark == "—"


@pytest.mark.parametrize(("measured", "mark", "end"), [
    (0.68, "✗", "slower (0.68x ±"), (1.01, "≈", "no difference (1.01x ±"), (1.8, "✓", "1.80x faster (±")])
def test_what_was_measured_against_the_baseline_decides_everywhere(measured, mark, end):
    run, baseline = run_of(), baseline_of(measured)
    found = of_runs(run, baseline)
    assert found.mark == mark and found.words.startswith(end) and found.noise >= 0.03 * measured
    panel = SpeedPanel()
    panel.show_run(run, baseline, 9)
    told = (panel.rows(51, 10)[1], telemetry(run, baseline, 9, 80)[0],
            panel_of(run, baseline=baseline).rows(116, 30)[0])
    assert all(f"{mark} {end}" in words(row) for row in told)
    # a step needs what the baseline says: break-even and verdict never contradict each other
    m = run.metrics
    assert f"break-even {m.mean_generated_length / measured:.2f}" in words(why(run, baseline, None))


def test_a_ratio_above_m_is_a_wrong_baseline():
    run = run_of()
    found = of_runs(run, baseline_of(run.metrics.mean_generated_length * 1.3))
    assert found.speed is Speed.IMPOSSIBLE and found.ratio is None and "only" in found.reason
    panel = SpeedPanel()
    panel.show_run(run, baseline_of(run.metrics.mean_generated_length * 1.3), 9)
    rows = flat(panel.rows(80, 10))
    assert "! wrong baseline" in rows[1] and rows[2].startswith("F7 measures the baseline again")


@pytest.mark.parametrize("run", [run_of(), run_of(slower=60), run_of(slower=900, dear=True), RunState()],
                         ids=["faster", "slower", "never", "before"])
@pytest.mark.parametrize("ready", [READY, DEAR], ids=["cheap", "dear"])
def test_the_row_fits_a_narrow_window(run, ready):
    assert cells(words(why(run, None, of(run, ready), brief=True))) <= 42


def test_engines_that_cannot_be_faster_are_said_to_be_so_before():
    drafting = ChatSettings().with_engine("draft")
    before = words(why(RunState(), None, of(RunState(), DEAR, drafting)))
    assert before.startswith("forecast: slower") and before.endswith("with all accepted") and cells(before) <= 51
    said = price.conclusion(of(RunState(), DEAR, drafting))
    assert "slower at any acceptance" in said and "413% of the time of the target's" in said


def test_before_a_run_the_row_says_what_it_takes_and_nothing_is_invented():
    found = of(RunState())
    assert words(why(RunState(), None, found)) == (
        f"forecast: faster from {price.percent(found.forecast.pays_from)} acceptance per token")
    assert "an answer measures" in words(why(RunState(), None, None))
    assert cells(words(why(RunState(), None, None, brief=True))) <= 35, "it is not cut at 80 columns"
    assert "not measured yet" in price.conclusion(found)
    baseline = run_of("autoregressive")
    assert words(why(baseline, None, of(baseline))) == "one token per verification step"


def test_old_traces_without_a_price_have_no_break_even():
    events = events_of()
    run = fold_all([replace(events[0], price=()), *events[1:]])
    assert of(run) is None and words(why(run, None, None)).endswith("tokens per verify step (M)")


# -- the outlook ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slower", [0.1, 1, 7])
def test_the_forecast_at_the_runs_own_size_is_the_runs_own_time(slower):
    """Every fake round that drafts has 5 forwards; scaled to this run's times they take what drafting took."""
    run = run_of(slower=slower)
    f, m = of(run).forecast, run.metrics
    assert f.first + 4 * f.each == pytest.approx(m.draft_seconds / sum(bool(r.draft.tokens) for r in run.rounds))
    assert f.scale == pytest.approx(m.verify_scale) and f.other == pytest.approx(m.other_seconds / m.target_forwards)
    assert f.seconds(0) / f.needs(0) == pytest.approx(m.verify_scale * CURVE.at(1) + f.other)


@pytest.mark.parametrize("ratio", [0.3, 0.83, 1.8])
def test_forecast_and_verdict_have_one_baseline(ratio):
    """A busy machine slows the run and not its baseline: a forecast by the run's own pace would say "faster" below
    "slower"."""
    run, baseline = run_of(), baseline_of(ratio)
    alone, f = of(run).forecast, of(run, baseline=baseline).forecast
    m = run.metrics
    assert m.mean_generated_length / (m.decode_seconds / m.target_forwards / f.seconds(0)) == pytest.approx(
        of_runs(run, baseline).ratio)
    for depth in (1, 5):
        assert f.speed_up(depth) == pytest.approx(alone.speed_up(depth) * f.seconds(0) / alone.seconds(0))
    assert f.speed_up(0) == 1 and (f.best == 0) == all(f.speed_up(n) <= 1 for n in range(1, f.most + 1))


def test_a_wrong_baseline_is_no_basis_of_a_forecast():
    assert of(run_of(), baseline=baseline_of(90)) == of(run_of())


def test_forwards_times_their_mean_is_the_time_of_drafting():
    """Wide forwards of a tree are dearer than the first: the numbers in one row must agree."""
    events = events_of(shape="tree", top_k=8)
    run = fold_all([replace(events[0], draft_price=((1, 0.001), (8, 0.004), (64, 0.03))), *events[1:]])
    found, m = of(run), run.metrics
    assert found.forward * m.draft_forwards == pytest.approx(m.draft_seconds)
    assert found.dear == pytest.approx(found.forward / (m.verify_scale * CURVE.at(1)))
    each = f"passes of {found.forward * 1000:.2f} ms ({price.percent(found.dear)}"
    assert any(each in row for row in flat(panel_of(run).rows(116, 38)))


def test_a_draft_model_costs_a_forward_a_token_and_a_tree_a_wide_one_a_level():
    cheap = CostCurve(DRAFT_PRICE)
    chain = price.outlook(READY, "draft", find("draft").parse({}))
    assert (chain.unit, chain.paper, chain.forecast.first, chain.forecast.each) == (
        "token", 5, cheap.at(1), cheap.at(1))
    tree = price.outlook(READY, "draft", find("draft").parse({"shape": "tree", "top_k": 8}))
    assert (tree.unit, tree.paper, tree.forecast.first, tree.forecast.each) == ("level", 6, cheap.at(1), cheap.at(8))
    assert tree.published.rows * tree.paper == pytest.approx(59) and tree.published.each == pytest.approx(cheap.at(10))
    assert "published tree" in price.conclusion(tree, 0.9)


def test_a_hybrid_with_a_draft_model_costs_its_passes():
    found = price.outlook(READY, "hybrid", find("hybrid").parse({}))
    alone = price.outlook(READY, "hybrid", find("hybrid").parse({"model": "false"}))
    assert found.forecast.first == CostCurve(DRAFT_PRICE).at(1) and not alone.forecast.first
    assert found.forecast.pays_from > alone.forecast.pays_from


def test_looking_up_costs_what_it_was_measured_to_cost():
    run = fold_all(replace(e, note={"match": 3}) if isinstance(e, Round) else e for e in events_of("pld"))
    found = of(run)
    assert found.forecast.first == pytest.approx(run.metrics.draft_seconds / len(run.rounds))
    assert found.paper == 10 and found.forecast.most == 32 and found.dear is None and not found.forecast.each
    assert not of(RunState(), READY, ChatSettings(engine="pld")).forecast.first


def test_every_engine_has_an_outlook_or_drafts_nothing():
    for spec in specs():
        found = price.outlook(READY, spec.id, spec.parse({}))
        assert (found is None) == (not spec.options or spec.self_speculative)
        if found is not None:
            assert price.conclusion(found) and price.conclusion(found, 0.5)


def test_the_conclusion_names_what_is_best_by_the_same_numbers():
    found = of(run_of())
    f = found.forecast
    said = price.conclusion(found)
    assert f"Forecast: drafts of {f.best} levels are best, {f.speed_up(f.best):.2f}x" in said
    assert f"The published size, 5, would give {f.speed_up(5):.2f}x" in said
    assert ("no draft that deep" in said) == (f.best > len(f.chances))
    assert "drafting does not pay" in price.conclusion(found, 0.01)
    assert price.conclusion(found, 0.9).startswith("Forecast at 90% acceptance per level")


def test_at_load_changes_for_other_settings_only():
    settings = ChatSettings()
    assert price.at_load(RunState(), READY, settings.with_engine("pld").chosen(READY)).engine == "Prompt lookup"
    run = run_of()
    assert price.at_load(run, READY, settings.chosen(READY)) == price.at_load(
        replace(run, finished=None), READY, settings.chosen(READY))
    assert not price.at_load(run, READY, settings.chosen(READY)).forecast.chances


def test_notes_from_a_file_are_only_numbers_where_numbers_belong():
    bad = {"draft_forwards": float("nan")}
    run = fold_all([replace(e, note=bad) if isinstance(e, Round) else e for e in events_of()])
    assert run.metrics.draft_forwards == 0 and of(run).forecast.first > 0


# -- plots ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [20, 41, 69, 190])
@pytest.mark.parametrize("height", [1, 3, 12])
def test_the_curve_is_to_scale_and_the_round_is_on_it(width, height):
    run = run_of()
    event = run.rounds[-1]
    top = cost_top(CURVE, event.verify_seconds)
    assert top >= CURVE.at(64) * 1000
    rows = flat(cost_plot(CURVE, top, width, height, event))
    assert len(rows) == height + 1 and all(len(row) == width for row in rows)
    room, bare = width - price_panel.LABEL, flat(cost_plot(CURVE, top, width, height))
    for rows_verified in (1, 8, 32, 64):
        column = column_of(rows_verified, room)
        at = 1 + column * 63 / (room - 1)
        full = sum(" ▁▂▃▄▅▆▇█".index(row[price_panel.LABEL + column]) for row in bare[:height])
        assert full == pytest.approx(CURVE.at(at) * 1000 / top * height * 8, abs=0.51)
    y = next(y for y, row in enumerate(rows) if "◆" in row)
    assert rows[y].index("◆") - price_panel.LABEL == column_of(1 + len(event.draft.tokens), room)
    assert height - 1 - y == int(event.verify_seconds * 1000 / top * height)


def test_a_forward_far_off_the_curve_neither_flattens_it_nor_gets_lost():
    event = replace(run_of().rounds[-1], verify_seconds=1.0)
    top = cost_top(CURVE, 1.0)
    assert top <= 3 * CURVE.at(64) * 1000 and "▲" in flat(cost_plot(CURVE, top, 60, 5, event))[0]


def test_a_round_beyond_the_axis_stands_at_its_end():
    assert column_of(200, 50) == column_of(64, 50) == 49


@pytest.mark.parametrize("width", [40, 76, 190])
def test_expected_speed_is_to_scale_from_zero_with_a_line_at_one(width):
    found = of(run_of())
    f, height = found.forecast.assuming(0.5), 10
    rows = flat(price_panel.speed_plot(found, f, width, height))
    assert len(rows) == height + 2 and all(len(row) == width for row in rows)
    step = max(1, min(8, (width - price_panel.LABEL) // (f.most + 1)))
    top = float(rows[0].split()[0])
    for depth in range(f.most + 1):
        column = price_panel.LABEL + price_panel.best_column(depth, step)
        full = sum(" ▁▂▃▄▅▆▇█".index(row[column].replace("┄", " ")) for row in rows[:height])
        assert full == pytest.approx(f.speed_up(depth) / top * height * 8, abs=0.51)
    assert sum("┄" in row and row.startswith("    1 ┤") for row in rows) == 1
    below = {glyph: rows[-1].index(glyph) for glyph in "★P"}
    assert below == {glyph: price_panel.LABEL + price_panel.best_column(n, step) for glyph, n in
                     (("★", f.best), ("P", found.paper))}


# -- panels --------------------------------------------------------------------------------------------


def panel_of(run: RunState, found: price.SpeedEstimate | None = None,
             baseline: RunState | None = None) -> PricePanel:
    panel = PricePanel()
    panel.show_price(run, -1, price.curve(run, READY), found or of(run), baseline)
    return panel


@pytest.mark.parametrize("busy", [True, False])
def test_before_a_run_a_curve_of_a_busy_machine_is_called_one(busy):
    panel, run = PricePanel(), RunState()
    panel.show_price(run, -1, price.curve(run, replace(READY, price_busy=busy)), of(run))
    assert any(price.BUSY in row for row in flat(panel.rows(160, 38))) == busy


@pytest.mark.parametrize("size", [(56, 14), (76, 22), (116, 38), (196, 58)])
@pytest.mark.parametrize("assumed", [None, 0.0, 0.45, 1.0])
def test_the_view_fits_every_size(size, assumed):
    for run in (RunState(), run_of(), run_of("pld"), run_of("autoregressive"), run_of(shape="tree"),
                run_of(slower=900, dear=True)):
        panel = panel_of(run)
        panel.assumed = assumed
        rows = flat(panel.rows(*size))
        assert len(rows) <= size[1] and all(cells(row) <= size[0] for row in rows)
        small = size == (56, 14)  # where the table leaves no room for a plot
        assert any("t(n)" in row or (small and row.startswith("forecast speed-up")) for row in rows)


def table_of(panel: PricePanel, width: int = 116) -> dict[str, list[str]]:
    rows = flat(panel.rows(width, 38))
    start = next(y for y, row in enumerate(rows) if row.startswith(("tokens drafted", "levels drafted")))
    table = {row[:22].strip(): row[22:].replace("★", " ").replace("P", " ").split() for row in rows[start : start + 8]}
    return {name.replace("tokens drafted", "levels drafted"): cells for name, cells in table.items()}


def test_the_table_holds_the_forecast():
    run = run_of()
    found, table = of(run), table_of(panel_of(run))
    sizes, f = [int(n) for n in table["levels drafted"]], found.forecast
    assert {1, found.paper, f.best, f.most} <= set(sizes) and sizes == sorted(sizes)
    assert table["break-even tokens"] == [f"{f.needs(n):.2f}" for n in sizes]
    assert table["forecast tokens"] == [f"{f.expected(n):.2f}" for n in sizes]
    assert table["forecast speed-up"] == [f"{f.speed_up(n):.2f}x" for n in sizes]
    assert table["of tokens judged"][:5] == [str(n) for n in run.metrics.depth_tried[:5]]


def test_before_a_run_the_table_has_dashes_for_what_is_not_measured():
    table = table_of(panel_of(RunState()))
    assert set(table["forecast speed-up"]) == set(table["forecast tokens"]) == set(table["of tokens judged"]) == {"—"}
    assert "—" not in table["break-even tokens"]


def test_what_if_changes_the_expectation_and_nothing_that_was_seen():
    panel = panel_of(run_of())
    before = table_of(panel)
    panel.assumed = 0.3
    after = table_of(panel)
    same = {"levels drafted", "of tokens judged", "ms per round", "break-even tokens"}
    assert all(before[name][:5] == after[name][:5] for name in same)
    assert before["forecast speed-up"] != after["forecast speed-up"]


@pytest.mark.parametrize("height", [4, 7, 14, 30])
def test_the_first_look_at_the_speed_panel_answers_one_question(height):
    """How fast, against what, and why; the numbers behind it only in detail."""
    for run in (RunState(), run_of()):
        panel = SpeedPanel()
        panel.show_run(run, baseline_of(1.8) if run.started else None, 9, outlook=of(run))
        rows = flat(panel.rows(49, height))
        assert (len(rows) <= height and "tokens/s" in rows[1] and "baseline" in rows[2]) or "autoregressive" in rows[2]
        assert "tokens per verify step (M)" in rows[3] or "forecast: faster from" in rows[3]
        assert not any("accepted by depth" in row or "prefill" in row for row in rows)
        panel.detailed = True
        assert any("prefill" in row for row in flat(panel.rows(49, 40)))


def test_the_scale_of_a_slow_run_is_said():
    events = [replace(e, verify_seconds=e.verify_seconds * 1.5) if isinstance(e, Round) else e for e in events_of()]
    run = fold_all(events)
    scale = run.metrics.verify_scale
    assert price_panel.of_curve(scale) == (f"this run: {scale:.2f} times t(n)", "warn")
    assert price_panel.of_curve(1.02)[1] == "muted"
    for shown_run, said in ((run, True), (run_of(), False)):
        for size in ((76, 20), (116, 38), (136, 40), (196, 56)):
            assert ("price --fresh measures it again" in "\n".join(flat(panel_of(shown_run).rows(*size)))) == said


def test_the_budget_says_how_many_rounds_it_speaks_of():
    events = events_of(budget="auto")
    first = next(n for n, event in enumerate(events) if isinstance(event, Round) and event.budget)
    count = sum(isinstance(event, Round) for event in events)
    assert f"of {count} rounds: expected" not in "\n".join(flat(panel_of(fold_all(events)).rows(116, 38)))
    events[first] = replace(events[first], budget=None)
    assert f"{count - 1} of {count} rounds: expected" in "\n".join(flat(panel_of(fold_all(events)).rows(116, 38)))


def test_telemetry_has_the_verdict_in_sixty_columns():
    run = run_of()
    for width in (60, 78, 99):
        rows = flat(telemetry(run, baseline_of(1.8), 1024, width, of(run)))
        assert "✓ 1.80x faster" in rows[0] and all(cells(row) <= width for row in rows)


def test_in_the_smallest_window_the_table_is_whole():
    rows = flat(panel_of(run_of()).rows(56, 13))
    assert len(rows) <= 13 and any(row.startswith("forecast speed-up") for row in rows)


def test_the_budget_is_told_in_tree_and_inspector():
    run = run_of()
    panel = TreePanel()
    panel.show_round(run, -1)
    assert "expected" not in flat(panel.rows(49, 12))[-1]  # the first look
    panel.detailed = True
    foot = flat(panel.rows(49, 12))[-2:]
    drafted = len(run.rounds[-1].draft.tokens)
    assert "expected 2.40" in foot[0] and foot[1].startswith(f"the budget verifies {drafted} of 12")
    assert f"verifies {drafted} of 12, expected 2.40 tokens" in str(explain(run, len(run.tokens) - 1))


# -- the application -----------------------------------------------------------------------------------


def shown(screen) -> str:
    return "\n".join(screen.query_one(PricePanel).text_rows())


@pytest.mark.parametrize("way", ["p", "f10", "/price"])
async def test_the_view_opens_by_key_and_command_and_closes(session, way):
    async with session() as s:
        await s.ask("hi")
        if way == "p":
            await s.pilot.press("escape")
        if way.startswith("/"):
            s.chat.prompt.put(way)
            await s.pilot.press("enter")
        else:
            await s.pilot.press(way)
        await s.pilot.pause()
        assert isinstance(s.app.screen, PriceScreen) and "break-even" in shown(s.app.screen)
        await s.pilot.press("escape")
        assert s.app.screen is s.chat


async def test_arrows_assume_and_zero_measures_again(session):
    async with session() as s:
        await s.ask("hi")
        await s.pilot.press("f10")
        measured = shown(s.app.screen)
        await s.pilot.press("left", "left")
        panel, m = s.app.screen.query_one(PricePanel), s.chat.session.last.run.metrics
        rate = sum(m.depth_accepted) / sum(m.depth_tried)
        assert panel.assumed == pytest.approx(round(rate / 0.05) * 0.05 - 0.1) and "Forecast at " in shown(s.app.screen)
        await s.pilot.press(*["right"] * 30)
        assert panel.assumed == 1.0
        await s.pilot.press("backspace")
        assert panel.assumed is None and shown(s.app.screen) == measured


async def test_the_view_follows_the_run(session):
    async with session() as s:
        await s.ask("hi", feed=6)
        await s.pilot.press("f10")
        first = shown(s.app.screen)
        s.client.feed(8)
        await s.settle()
        await s.pilot.pause(1.5 * EVERY)
        assert shown(s.app.screen) != first


async def test_before_a_run_the_view_speaks_of_the_next_answer(session):
    async with session(request=Request((), engine="pld")) as s:
        await s.pilot.press("f10")
        assert "Prompt lookup" in shown(s.app.screen) and "not measured yet" in shown(s.app.screen)
        await s.pilot.press("right")
        assert "Forecast at 70% acceptance" in shown(s.app.screen)


async def form(session, options: dict, keys: list[str]):
    """The engine dialog's fields before and after the keys, and the settings it gave."""
    async with session(request=Request((), engine="draft", options=options)) as s:
        await s.pilot.press("ctrl+e")
        await s.pilot.pause()
        before = values(s.app.screen)
        await s.pilot.press("tab", *keys)
        await s.pilot.pause()
        after = values(s.app.screen)
        await s.pilot.press("ctrl+s")
        await s.pilot.pause()
        return before, after, s.chat.session.settings


def values(screen) -> dict[str, str]:
    assert isinstance(screen, EngineScreen)
    return {field.option.name: str(field.editor.value) for field in screen.query("#options Field")}


async def test_another_budget_brings_its_sizes_and_leaves_what_was_set(session):
    before, after, settings = await form(session, {"num_tokens": 7}, ["enter", "down", "enter"])
    assert before["num_tokens"] == after["num_tokens"] == "7" and (before["depth"], after["depth"]) == ("8", "6")
    assert settings.summary(READY).startswith("Draft model · budget paper · num_tokens 7 · exact")
    after = await form(session, {"budget": "paper"}, ["enter", "up", "enter"])
    assert after[1]["num_tokens"] == "12" and after[2].summary(READY).startswith("Draft model · exact")


async def test_opening_the_form_changes_nothing_even_where_a_value_is_the_other_budgets_default(session):
    before, _, settings = await form(session, {"budget": "paper", "num_tokens": 12}, [])
    assert before["num_tokens"] == "12" and settings.options("draft")["num_tokens"] == 12


async def test_after_the_form_a_command_still_switches_all_sizes(session):
    _, _, settings = await form(session, {}, [])
    paper = settings.with_option("draft", "budget", "paper")
    assert paper.options("draft") == find("draft").parse({"budget": "paper"})


async def test_the_form_says_which_engine_cannot_be_faster(session):
    for ready in (READY, DEAR):
        async with session(client=FakeClient(ready=ready), request=Request((), engine="draft")) as s:
            await s.pilot.press("ctrl+e")
            await s.pilot.pause()
            assert ("slower at any acceptance" in str(s.app.screen.query_one("#about").content)) == (ready is DEAR)


async def test_the_head_of_an_answer_names_the_budget(session):
    async with session(request=Request((), engine="pld", options={"budget": "paper"})) as s:
        await s.ask("hi")
        assert "Prompt lookup · budget paper · exact" in s.shown
