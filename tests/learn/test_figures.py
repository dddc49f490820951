"""Figures: their numbers are the runs' and the laws', and moving them shows the effect that the text speaks of."""

from __future__ import annotations

import math
import re
from itertools import takewhile

import numpy as np
import pytest

from engines.cost.curve import CostCurve
from engines.methods import specs
from engines.randomness import GumbelNoise
from engines.report.plain_text import one_line
from engines.report.run_state import fold_all
from engines.report.wording import quoted
from engines.wire import read_trace
from spec_tui.learn.figures import (
    FIGURES,
    BatchFigure,
    BlockFigure,
    BreakEvenFigure,
    CosinesFigure,
    CostFigure,
    CountsFigure,
    EnginesFigure,
    FusionFigure,
    KeyFigure,
    NeighboursFigure,
    NoiseFigure,
    OverlapFigure,
    RaceFigure,
    TrialFigure,
    TrieFigure,
    WaitingFigure,
)
from spec_tui.learn.figures.laws import _around_zero
from spec_tui.learn.lesson import along, find, names, paths, recorded
from spec_tui.learn.lesson_facts import pick
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.present.rows import words_of
from spec_tui.present.token_styles import HERE, REJECTED
from spec_tui.session.sample_traces import trace_path


def run_of(name: str):
    return fold_all(read_trace(trace_path(name)).events)


def made(kind, name: str, round: str = ""):
    run = run_of(name)
    return kind({name: run}, run, run.rounds[pick(run, round) - 1] if round else None)


def shown(figure, width: int = 76, height: int = 9) -> str:
    return "\n".join(words_of(row) for row in figure.rows(width, height))


def listed(figure) -> list[tuple[str, list[str]]]:
    """The tokens that a figure lists, and the figures beside each."""
    lines = list(takewhile(lambda line: not line.startswith(" text of"), shown(figure).splitlines()[1:]))
    return [(line[1:15].strip(), re.findall(r"[-+]?\d+[.e][-+\d]+", line[15:])) for line in lines]


def test_every_figure_is_in_a_lesson_and_fits_every_size():
    used = set()
    for name in names():
        w = LessonProgress.of(find(name))
        for page in w.pages:
            if (figure := w.figure(page)) is None:
                continue
            used.add(page.figure)
            for width, height in ((56, 7), (76, 8), (120, 30)):
                for _ in range(3):
                    rows = [words_of(row) for row in figure.rows(width, height)]
                    assert rows and figure.title
                    if width >= 76:  # of a narrower window the widget cuts what is too long
                        assert all(len(row) <= width for row in rows), (page.title, rows)
                    figure.move(-1)
            assert len(figure.rows(76, 8)) <= 8 or page.figure in ("cost", "race", "batch", "overlap"), page.title
    assert used == set(FIGURES)


def test_a_block_makes_up_for_a_token_and_keeps_no_less():
    figure = made(BlockFigure, "smollm2-drawn", "made up for")
    event = figure.chains[figure.at]
    alone = weight = 1.0
    for node, row in enumerate(event.verified[1:]):
        ratio = row.drafted / event.draft.probs[node]
        alone, weight = alone * min(1, ratio), min(1, weight * ratio)
        assert f"{alone:.3f}" in shown(figure) and f"{weight:.3f}" in shown(figure)
    assert weight > alone and "makes up" in shown(figure)
    said = set()
    for _ in range(len(figure.chains)):
        figure.move(1)
        said.add(shown(figure))
    assert figure.at == 0 and len(said) > 3 and any("no token makes up" in text for text in said)
    figure.at = max(range(len(figure.chains)), key=lambda n: len(figure.chains[n].draft.tokens))
    last = len(figure.chains[figure.at].draft.tokens)
    low = [words_of(row) for row in figure.rows(76, 6)]
    assert len(low) <= 6 and low[1] == f" … {last - 1} before" and low[2].startswith(f"{last} "), "the last row counts"


def test_what_followed_the_last_tokens_is_counted():
    figure = made(CountsFigure, "qwen-coder-pld", "two tokens say more")
    run, event = figure.run, figure.event
    before = "".join([*run.started.prompt_pieces, *(token.piece for token in run.tokens)][: event.position])
    for _ in range(3):
        followers, said = figure.found[figure.at], shown(figure)
        end = "".join([*run.started.prompt_pieces, *(t.piece for t in run.tokens)][: event.position][-figure.at - 1 :])
        assert before.endswith(end) and sum(count for _, count in followers) <= before.count(end)
        for piece, count in followers:
            assert before.count(end + piece) >= count > 0
        assert f"{followers[0][1]} of {sum(count for _, count in followers)}" in said
        figure.move(1)
    assert len(figure.found[0]) > 2 and len(figure.found[1]) == 1, "two tokens say more than one"
    figure.move(99)
    assert figure.at == len(figure.found) - 1 and "never occurred before" in " ".join(shown(figure).split())
    figure.move(-99)
    assert figure.at == 0


def test_the_law_draws_p_whatever_q_is():
    figure = made(TrialFigure, "draft-sampled", "most choice")
    for step in (0, -2, 3):
        figure.move(step)
        for _ in range(5):
            figure.draw()
        total = figure.drawn.sum()
        assert total == 5_000 and np.abs(figure.drawn / total - figure.p).max() < 0.02
        assert figure.kept / total == pytest.approx(figure.accepted, abs=0.02)
    kept = []
    for _ in range(6):
        kept.append(figure.accepted)
        figure.move(-1)
    assert kept[0] > kept[-1], "a worse drafter is kept less often"
    figure.move(99)
    assert figure.accepted > 0.9995 and "No draft is rejected" in shown(figure) and "residual 0" not in shown(figure)


def test_the_noise_is_that_of_the_run_and_its_winner_the_token_written():
    runs = {name: run_of(name) for name in ("sampled-plain", "sampled-exact")}
    run = runs["sampled-plain"]
    figure = NoiseFigure(runs, run, None)
    for _ in range(len(figure.places)):
        place = figure.places[figure.at]
        emitted = run.tokens[place].emitted
        name, (_, _, shown_noise, _) = max(listed(figure), key=lambda row: float(row[1][-1]))
        assert name == one_line(quoted(emitted.piece), 13).strip()
        assert float(shown_noise) == pytest.approx(emitted.noise, abs=0.006)
        noise = GumbelNoise(run.started.seed, emitted.token + 1).at(len(run.started.prompt) + place)
        assert noise[emitted.token] == pytest.approx(emitted.noise, abs=1e-4)
        assert emitted.token == runs["sampled-exact"].tokens[place].emitted.token
        figure.move(1)
    figure.at = 0
    figure.draw()
    assert all(abs(float(share) - float(p)) < 0.05 for _, (*_, share, p) in listed(figure))
    assert "of 1,000 seeds" in shown(figure)


def test_the_first_to_arrive_is_the_token_written():
    runs = {name: run_of(name) for name in ("sampled-plain", "sampled-exact")}
    figure = WaitingFigure(runs, runs["sampled-plain"], None)
    for _ in range(5):
        name, _ = min(listed(figure), key=lambda row: float(row[1][-1]))
        written = runs["sampled-plain"].tokens[figure.places[figure.at]].emitted.piece
        assert name == one_line(quoted(written), 13).strip()
        figure.move(1)


def test_bars_of_scores_grow_to_both_sides_of_zero():
    low, none, high = _around_zero([-2.0, 0.0, 4.0], 31)
    assert low.index("│") == none.index("│") == high.index("│") == 10 and len(low) == len(high) == 31
    assert low.count("█") == 10 and set(none) == {" ", "│"} and high.count("█") == 20


def test_the_key_is_the_state_from_which_the_root_was_chosen():
    rows = shown(made(KeyFigure, "smollm2-dresd", "dropped")).splitlines()
    run = run_of("smollm2-dresd")
    event = run.rounds[pick(run, "dropped") - 1]
    known, chosen = rows[2], rows[3]
    assert known.index("THE KEY") < known.index("not there yet")
    root = quoted(run.root_of(event.index - 1).piece)
    assert root in rows[0] and root in chosen


def test_a_list_ends_at_the_bottom_with_its_last_line():
    figure = EnginesFigure({}, run_of("draft"), None)
    figure.move(-999)
    rows = figure.rows(90, 9)
    assert len(rows) == 9 and rows[-1] == figure.lines(90)[-1]


def test_the_engines_are_those_of_the_program():
    words = "\n".join(words_of(row) for row in EnginesFigure({}, run_of("draft"), None).still(90, 9))
    assert all(f" {spec.id} " in words for spec in specs())
    assert "Needs: EAGLE head or draft model and datastore" in " ".join(words.split())


def test_costs_and_break_even_are_by_the_measured_curve():
    run = run_of("draft")
    curve = CostCurve(run.started.price)
    assert f"{curve.at(8) / curve.at(1):.2f} × t(1)" in shown(made(CostFigure, "draft"))
    assert math.isfinite(made(CostFigure, "autoregressive").curve.at(1))
    figure = made(BreakEvenFigure, "draft")
    assert figure.chance == pytest.approx(sum(run.metrics.depth_accepted) / sum(run.metrics.depth_tried))
    assert "as in this run" in shown(figure)
    before = figure.model.assuming(figure.chance).speed_up(4)
    figure.move(1)
    assert "as in this run" not in shown(figure) and figure.chance * 20 == pytest.approx(round(figure.chance * 20))
    model = figure.model.assuming(figure.chance)
    draft = CostCurve(run.started.draft_price).at(1)
    costs = (4 * draft + curve.at(5)) / curve.at(1)
    assert model.speed_up(4) > before and model.needs(4) == pytest.approx(costs)
    assert model.expected(4) == pytest.approx(sum(figure.chance ** k for k in range(5)))
    figure.move(-1)
    assert "as in this run" in shown(figure), "the way back leads there again"


def test_a_batch_costs_the_rows_of_all_its_answers_and_drafting_stops_to_pay():
    figure = made(BatchFigure, "qwen-coder-draft")
    curve, draft = CostCurve(figure.run.started.price), CostCurve(figure.run.started.draft_price)
    rounds = figure.run.rounds
    for b in (1, 8):
        spent = sum(event.draft_forwards * draft.at(b) + curve.at(b * (len(event.draft.tokens) + 1))
                    for event in rounds)
        assert figure.needs(b) == pytest.approx(spent / len(rounds) / curve.at(b))
    assert figure.needs(1) < figure.gained < figure.needs(32), "with many answers a drafted row is dear"
    assert "drafting pays" in shown(figure)
    for _ in range(9):
        figure.move(-1)
    assert "drafting does not pay" in shown(figure)


def test_preparing_more_contexts_makes_the_next_draft_ready_more_often():
    figure = made(OverlapFigure, "qwen-coder-tree")
    assert [one.prepared for one in figure.found] == [1, 2, 4, 8, 16, 32]
    best = [one.tokens / one.overlapped for one in figure.found]
    assert best == sorted(best) and figure.found[0].gain > 1, "a draft that is ready early never costs time"
    one = figure.found[0]
    assert f"after {one.hits} of {one.rounds} rounds" in shown(figure)
    figure.move(-1)
    assert "F = 2" in shown(figure)
    chain = made(OverlapFigure, "qwen-coder-draft")
    assert [one.prepared for one in chain.found] == [1], "a chain has one guess a place"


def test_a_lower_alpha_leaves_out_more_and_a_cut_trie_keeps_parents():
    figure = made(CosinesFigure, "smollm2-admg")
    before = shown(figure)
    for _ in range(4):
        figure.move(-1)
    assert shown(figure).count("□") > before.count("□")
    trie = made(TrieFigure, "smollm2-rest", "off the favourite")
    parents = trie.event.draft.parents
    while True:
        kept = set(trie.order[: trie.kept])
        assert all(parents[node] < 0 or parents[node] in kept for node in kept)
        if trie.kept == 1:
            break
        trie.move(-1)


def test_two_trees_become_one():
    figure = made(FusionFigure, "rasd", "fused")
    counts = []
    for _ in range(3):
        counts.append(int(shown(figure).split(" nodes")[0].split()[-1]))
        figure.move(-1)
    both = sum(len(who) > 1 for who in figure.sources)
    assert both and counts[2] == counts[0] + counts[1] - both == len(figure.event.draft.tokens)


def test_neighbours_that_were_dropped_are_drawn_among_the_others():
    figure = made(NeighboursFigure, "smollm2-dresd", "dropped")
    rows = [words_of(row) for row in figure.rows(76, 20)][: len(figure.near)]
    weights = [passage.weight for passage, *_ in figure.near]
    assert weights == sorted(weights, reverse=True) and {kept for _, kept, _ in figure.near} == {True, False}
    assert [REJECTED in row for row in rows] == [not kept for _, kept, _ in figure.near]
    assert "another token and is dropped" in " ".join(shown(figure, height=20).split())
    (ending,) = {passage.before[-1] for passage, kept, _ in figure.near if kept}
    assert all(not passage.before.endswith(ending) for passage, kept, _ in figure.near if not kept)


def test_a_list_of_neighbours_without_room_marks_the_reader_s_and_counts_the_others():
    figure = made(NeighboursFigure, "smollm2-dresd", "dropped")
    for at in range(len(figure.near)):
        figure.at = at
        rows = [words_of(row) for row in figure.rows(76, 8)]
        assert len(rows) == 8 and [row.split()[1] for row in rows if row.startswith(HERE)] == [str(at + 1)]
        listed = sum("█" in row for row in rows)
        more = next(row for row in rows if row.startswith(" … "))
        assert listed + sum(int(word) for word in more.split() if word.isdecimal()) == len(figure.near)


def test_the_map_has_the_state_in_the_middle_of_its_neighbours():
    figure = made(NeighboursFigure, "smollm2-dresd", "dropped")
    figure.draw()
    drawn, words, _ = shown(figure, height=24).partition(" ◆ is the present state")
    rows = drawn.splitlines()
    where = {mark: (row, rows[row].index(mark)) for row in range(len(rows)) for mark in "◆123" if mark in rows[row]}
    for n, mark in enumerate("123"):
        if figure.near[n][1] and mark in where:
            x, y = figure.near[n][2]
            assert (where[mark][1] - where["◆"][1]) * x >= 0 >= (where[mark][0] - where["◆"][0]) * y
    assert words and len(where) > 2 and all(max(map(abs, place)) > 0 for *_, place in figure.near)


def test_a_race_ends_with_all_and_the_one_with_more_tokens_a_round_can_lose():
    lesson = find("payoff")
    runs = recorded(lesson)
    figure = RaceFigure(runs, runs["qwen-coder-admg"], None)
    assert {lane.started.engine for lane in figure.lanes} >= {"admg", "rest", "autoregressive"}
    figure.draw()
    assert all(row.rstrip().endswith(str(len(lane.tokens)))
               for lane, row in zip(figure.lanes, shown(figure, 76).splitlines()[1:]))
    more, fewer = (runs[f"qwen-coder-{name}"].metrics for name in ("admg", "plain"))
    assert more.mean_generated_length > fewer.mean_generated_length and more.tokens_per_second < fewer.tokens_per_second


@pytest.mark.parametrize("minutes", paths())
def test_a_race_on_a_path_has_the_lanes_of_its_lesson(minutes):
    """A path has the runs of several lessons, some of them of another model."""
    lanes = []
    for lesson in (find("payoff"), along(minutes)):
        progress = LessonProgress.of(lesson)
        (race,) = (progress.figure(page) for page in progress.pages if page.figure == "race")
        lanes.append({name for name, run in progress.runs.items() if any(run is lane for lane in race.lanes)})
    assert lanes[0] == lanes[1]


@pytest.mark.parametrize("kind", FIGURES.values())
def test_a_title_fits_80_columns(kind):
    assert len(kind.title) <= 76, "the smallest window shows no more of it"
