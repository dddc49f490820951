"""The explanations say what happened, in this round's own numbers, whatever the engine and the law."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engines import Request, specs
from engines.cost.budget import RESTING, BudgetChoice
from engines.report.events import Draft, Emitted, Layers, Origin, Retrieval, Trial
from engines.report.run_state import fold_all
from engines.report.wording import ms, p3, quoted
from engines.wire import read_trace
from spec_tui.present.rows import words_of
from spec_tui.present.step.explain import explain
from spec_tui.present.step.nodes import nodes_of
from spec_tui.present.step.phases import StepPosition, event_of, phases_of
from spec_tui.present.text import LOSSY, sanitise
from spec_tui.present.token_facts import fate
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui.widgets import step_panels

TURN = (("user", "Repeat: the cat sat on the mat, the cat sat on the hat."),)
ENGINES = [spec.id for spec in specs()]
OPTIONS = {"rest": {"n_min": 1}, "hybrid": {"n_min": 1}, "draft-verify": {"layers": "a1,m1"}}


@pytest.fixture(scope="module")
def runs(tiny):
    known = {}

    def run(engine="draft", **kw):
        key = (engine, *sorted((k, str(v)) for k, v in kw.items()))
        if key not in known:
            request = Request(TURN, engine, OPTIONS.get(engine, {}), **kw)
            known[key] = fold_all(tiny.run(replace(request, max_new_tokens=40)))
        return known[key]

    return run


def said(run, number, phase, deep=False) -> str:
    return " ".join(explain(run, StepPosition(number, phase), deep).paragraphs)


def drafting(run) -> int:
    """The first round that drafted, else the last."""
    return next((n for n, e in enumerate(run.rounds, 1) if e.draft.tokens), len(run.rounds))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_phase_is_told_with_its_numbers(runs, engine, temperature):
    run = runs(engine, temperature=temperature)
    number = drafting(run)
    event = event_of(run, number)
    assert f"{event.position} tokens so far" in said(run, number, "context")
    assert quoted(run.root_of(number - 1).piece) in said(run, number, "context")
    verify = said(run, number, "verify")
    assert ms(event.verify_seconds) in verify
    assert f"number {event.position + 1} of the context" in said(run, number, "verify", deep=True), "from 1"
    if event.draft.tokens:
        assert f"{1 + len(event.draft.tokens)} rows" in verify
        draft = said(run, number, "draft")
        assert quoted(event.draft.pieces[0])[1:-1] in draft or engine == "rasd"
        assert f"{event.position - 1} token" in said(run, number, "tree")
        assert f"{len(event.path)} of {len(event.draft.tokens)} drafted node" in said(run, number, "accept")
    own = event.emitted[-1]
    if own.node < 0:
        assert p3(own.prob) in said(run, number, "correct") and quoted(own.piece) in said(run, number, "correct")
    keep = said(run, number, "keep", deep=True)
    assert f"to {event.cache_length} rows" in keep and ms(event.draft_seconds) in keep


@pytest.mark.parametrize("engine", ENGINES)
def test_deeper_says_more_and_names_where_to_read_on(runs, engine):
    run = runs(engine, temperature=0.0)
    for number in (0, drafting(run), len(run.rounds)):
        for phase in phases_of(run, number):
            short, long = (explain(run, StepPosition(number, phase), deep) for deep in (False, True))
            assert short.paragraphs and long.paragraphs[: len(short.paragraphs)][0] == short.paragraphs[0]
            assert short.reference and short.reference == long.reference
            text = " ".join(long.paragraphs)
            assert not re.search(r"(?<!\.)\b1 (tokens|nodes|rows|paths|levels|forwards)\b|None|nan", text), text
    assert len(said(run, 1, "verify", deep=True)) > len(said(run, 1, "verify"))


@pytest.mark.parametrize("law", ["rejection", "block", "redraw", "typical"])
def test_draws_and_thresholds_are_shown(runs, law):
    run = runs("draft", law=law, temperature=0.9, seed=2)
    seen = 0
    for number, event in enumerate(run.rounds, 1):
        trials = [t for e in event.emitted for t in e.trials]
        if not trials or not event.draft.tokens:
            continue
        seen += 1
        text = said(run, number, "accept")
        held_against = trials[0].target_prob if trials[0].bound is None else trials[0].bound
        assert p3(trials[0].draw) in text and p3(held_against) in text
        assert (LOSSY in text) == (law in ("redraw", "typical"))
        if event.bias is not None:
            assert p3(event.bias) in text
    assert seen


def test_of_a_block_every_token_says_how_it_was_kept(tiny):
    """The draws of a chain's end stand at the nodes that were cut, and tokens before its end have none of their own."""
    request = Request(TURN, "draft", {"budget": "paper", "confidence": 0.0}, "block", 0.9, seed=2, max_new_tokens=60)
    run = fold_all(tiny.run(request))
    tokens, kept, ended, cut = iter([*run.tokens][1:]), 0, 0, 0
    for event in [*run.rounds][:-1]:  # of the last one tokens may be cut off
        nodes = nodes_of(event)
        cut += sum(bool(node.trials) and node.fate == "unreached" for node in nodes)
        assert all(node.trials for node in nodes[len(event.path) :])
        for token, emitted in zip([next(tokens) for _ in event.emitted], event.emitted):
            if emitted.node >= 0:
                words = fate(run, token, event)
                kept += "a later token" in words
                ended += "fell below its bound" in words
                assert ("fell below its bound" in words) == bool(emitted.trials) != ("a later token" in words)
    assert kept and ended and cut


def test_rounds_of_one_engine_read_differently(runs):
    run = runs("pld", temperature=0.0)
    texts = [said(run, number, phase) for number in range(1, len(run.rounds) + 1) for phase in phases_of(run, number)]
    assert len(set(texts)) > len(texts) * 0.8


def changed(run, number, **fields):
    """The run with this round changed."""
    event = replace(event_of(run, number), **fields)
    return replace(run, rounds=type(run.rounds)([*run.rounds[: number - 1], event, *run.rounds[number:]]))


@pytest.mark.parametrize("engine", ["pld", "rest", "draft", "rasd", "hybrid"])
def test_why_nothing_was_drafted_is_the_reason_that_there_was(runs, engine):
    run, lookup = runs(engine, temperature=0.0), Retrieval(0.001, 0)
    room = replace(run, started=replace(run.started, max_new_tokens=99))
    for budget in (BudgetChoice(0, 64, 1.0), BudgetChoice(0, None, 1.0)):
        unpaid = said(changed(room, 1, draft=Draft(), budget=budget, retrieval=lookup), 1, "draft", deep=True)
        assert "expected to save time" in unpaid and "nowhere" not in unpaid and "drafted anything" not in unpaid
    rested = said(changed(room, 1, draft=Draft(), note={}, budget=RESTING, retrieval=None), 1, "draft", deep=True)
    assert "so drafting is paused" in rested and "no room" not in rested
    missed = said(changed(room, 1, draft=Draft(), note={}, budget=None, retrieval=lookup), 1, "draft")
    assert "only one more token" not in missed and "expected to save time" not in missed
    last = replace(run, started=replace(run.started, max_new_tokens=2))
    full = changed(last, 1, draft=Draft(), note={}, budget=None, retrieval=None)
    assert "only one more token" in said(full, 1, "draft")


def test_an_oldest_match_must_have_enough_after_it(runs):
    run = runs("pld", temperature=0.0)
    latest = changed(run, 1, draft=Draft(), note={}, budget=None)
    assert "occur nowhere earlier. " in said(latest, 1, "draft")
    oldest = replace(latest, started=replace(run.started, options={**run.started.options, "match": "oldest"}))
    assert "occur nowhere earlier with 32 or more tokens after them. " in said(oldest, 1, "draft")


def test_the_last_token_is_no_root(runs):
    run = runs("autoregressive", temperature=0.0)
    assert "root of the next round" in said(run, len(run.rounds) - 1, "keep")
    assert "the answer ends with it" in said(run, len(run.rounds), "keep")


def test_dice_are_held_against_a_ratio_that_is_right(runs):
    run = runs("draft", law="rejection", temperature=0.9, seed=2)
    seen = 0
    for number, event in enumerate(run.rounds, 1):
        if event.draft.tokens:
            for ratio, p, q in re.findall(r"[<≥] ([0-9.]+) = ([0-9.]+)/([0-9.]+)", said(run, number, "accept")):
                seen += 1
                assert abs(float(ratio) * float(q) - float(p)) < 0.001 * (1 + float(ratio))
    assert seen


def test_a_draft_that_nobody_drew_is_a_point_mass():
    """Else p over the q beside it contradicts the random draw, as in the shipped trace."""
    dice = fold_all(read_trace(trace_path("draft-sampled")).events)
    number = drafting(dice)
    assert "q = 1" in said(dice, number, "accept")
    rows = step_panels.phase_rows(dice, StepPosition(number, "accept"), 80, 12)
    assert "draw < p/q, q = 1" in "".join(text for text, _ in rows[0])
    tried = {trial.node for e in event_of(dice, number).emitted for trial in e.trials}
    for row in rows[1:]:
        words = "".join(text for text, _ in row)
        assert "not reached" not in words or "   —  " in words, "the column has the law's q, which has none here"
    assert len(tried) < len(rows) - 1


def test_drawn_drafts_are_held_against_their_q(runs):
    run = runs("draft", law="rejection", temperature=0.9, seed=2)
    assert all("q = 1" not in said(run, n, "accept") for n, e in enumerate(run.rounds, 1) if e.draft.tokens)


def test_a_draft_is_called_drawn_where_it_was(runs):
    """A model that cannot branch draws a chain, though a tree of its likeliest tokens was asked for."""
    drawn, dice = runs("draft", law="rejection", temperature=0.9, seed=2), fold_all(
        read_trace(trace_path("draft-sampled")).events)
    asked = replace(drawn, started=replace(drawn.started, options={**drawn.started.options, "shape": "tree"}))
    assert "drawn from q" in said(asked, drafting(asked), "draft", deep=True)
    assert "point masses to the law" in said(dice, drafting(dice), "draft", deep=True)


def test_a_lossy_law_is_greedy_at_temperature_0(runs):
    for law in ("typical", "redraw"):
        run = runs("draft", law=law, temperature=0.0)
        number = drafting(run)
        text = said(run, number, "accept", deep=True)
        assert "as greedy decoding does" in text and LOSSY in text and "threshold" not in text and "Neither" not in text
        assert explain(run, StepPosition(number, "accept")).reference == explain(
            runs("draft", temperature=0.0), StepPosition(1, "accept")).reference


@pytest.mark.parametrize("law", ["rejection", "typical", "redraw"])
def test_at_temperature_0_the_table_compares_tokens_as_the_words_do(runs, law):
    run = runs("draft", law=law, temperature=0.0)
    number = drafting(run)
    table, beside = ([words_of(row) for row in step_panels.phase_rows(one, StepPosition(number, "accept"), 80, 12)]
                     for one in (run, runs("draft", temperature=0.0)))
    assert table == beside and "target's token" in table[0]
    assert all("chose" in fate(run, token, run.rounds[token.round]) for token in run.tokens if token.kind == "accepted")


@pytest.mark.parametrize("rates, compared", [
    ({"copied_rate": 95.2, "model_rate": 130.4}, "130.4 tokens per second, and the best draft that was copied 95.2"),
    ({}, "more tokens per second than any draft that was copied"),  # of a trace from before they were noted
])
def test_a_hybrid_compares_a_model_with_copies_by_tokens_per_second(runs, rates, compared):
    run = runs("hybrid", temperature=0.0)
    note = {"drafted_by": "draft", "draft_forwards": 2, "scores": {"rest": 2.66, "draft": 1.08}, **rates}
    told = said(changed(run, drafting(run), note=note), drafting(run), "draft")
    assert compared in told and "2.66" in told and "1.08" not in told


@pytest.mark.parametrize("law, trials, path, table", [
    ("redraw", (Trial(0, 0.5, 1.0, 0.2, True), Trial(0, 0.5, 1.0, 0.9, False)), (0,),
     ("● a 1.000 0.500 0.200 < 0.500 (2 draws)", "○ b — — not tried")),
    ("rejection", (Trial(0, 0.9, 0.6, 0.3, True),), (0,), ("● a 0.600 0.900 0.300 < 1.500", "○ b — — not tried")),
    ("typical", (Trial(0, 0.5, 1.0, 0.09, True), Trial(1, 0.2, 1.0, 0.09, True)), (1,),
     ("✗ a 1.000 0.500 0.500 > 0.090 another path won", "● b 1.000 0.200 0.200 > 0.090")),
])
def test_the_table_shows_of_each_node_the_trial_that_decided(runs, law, trials, path, table):
    run = runs("draft", law=law, temperature=0.9, seed=2)
    draft = Draft((7, 8), (-1, -1), ("a", "b"), (0.6, 0.3), (0, 0), (Origin("draft"),))
    token = Emitted(draft.tokens[path[0]], "x", "x", "accepted", path[0], 0.5, trials=trials)
    made = changed(run, 1, draft=draft, path=path, emitted=(token,), verified=())
    shown = [" ".join(words_of(row).split()) for row in step_panels.phase_rows(made, StepPosition(1, "accept"), 80, 12)]
    assert sorted(shown[1:]) == sorted(table)
    told = said(made, 1, "accept")
    assert law != "rejection" or "0.300 < 1.500 = 0.900/0.600" in told
    assert "kept:" not in told and ": kept" not in told


def test_a_belief_after_noise_is_no_probability(runs):
    run, greedy = (runs("draft", temperature=t, detail=True) for t in (0.8, 0.0))
    number = drafting(run)
    assert "the noise included" in said(run, number, "draft")
    assert "draft and target differ" not in said(run, number, "verify", deep=True)
    assert "draft and target differ" in said(greedy, drafting(greedy), "verify", deep=True)


def test_damaged_remarks_break_nothing(runs):
    run = runs("hybrid", temperature=0.0)
    number = drafting(run)
    note = {"scores": {"rest": "\x1b[2J"}, "drafted_by": 3, "match": None, "\x1b[2J": "x"}
    assert said(changed(run, number, note=note), number, "draft", deep=True)


def test_an_unknown_engine_is_told_truly(runs):
    run = runs("draft", temperature=0.0)
    number = drafting(run)
    event = event_of(run, number)
    strange = replace(run, started=replace(run.started, engine="\x1b]0;own\x07", law="odd"))
    text = said(strange, number, "draft", deep=True)
    assert f"{len(event.draft.tokens)} from the draft model" in text and sanitise(text) == text
    for phase in phases_of(strange, number):
        assert explain(strange, StepPosition(number, phase)).paragraphs


def test_a_target_that_drafts_for_itself_names_the_layers(runs):
    run = runs("draft", temperature=0.0)
    layers = Layers(("", "cosine", "both"), ("", "interval", ""), (0.9, 0.97, 0.99), (0.8, 0.8, 0.9), 21, 0.96, 2, 1)
    number = drafting(run)
    started, prefilled = replace(run.started, engine="admg"), replace(run.prefilled, layers=layers)
    own = replace(run, started=started, prefilled=prefilled)
    text = said(own, number, "draft", deep=True)
    assert "3 layers" in text and "2 attention and 1 MLP" in text and "0.96" in text and "0.900 to 0.990" in text
    assert "less accurate" in text and "not in the last 1 layer." in text
    whole = replace(layers, attention=("",) * 3, mlp=("",) * 3, alpha=None, m=None, n=None)
    text = said(replace(own, prefilled=replace(run.prefilled, layers=whole)), number, "draft", deep=True)
    assert "none is left out" in text and "wrong" not in text and "cosine" not in text


def test_a_pass_for_a_draft_is_not_called_faster_than_it_was():
    run = fold_all(read_trace(trace_path("qwen-coder-admg")).events)
    text = said(run, drafting(run), "draft")
    assert "faster" not in text and "a pass took 1.01 times as long as one of the whole target" in text


def test_every_row_recorded_is_said_and_so_is_what_is_missing(runs):
    short, whole = runs("draft", temperature=0.0), runs("draft", temperature=0.0, detail=True)
    assert any("was not recorded" in said(short, n, "verify", deep=True) for n in range(1, len(short.rounds) + 1))
    number = drafting(whole)
    assert "is recorded at all" in said(whole, number, "verify", deep=True)


def test_what_the_model_wrote_cannot_steer(runs):
    run = runs("pld", temperature=0.0)
    number = drafting(run)
    event = event_of(run, number)
    evil = replace(event, draft=replace(event.draft, pieces=("\x1b[31m",) * len(event.draft.pieces),
                                        origins=(Origin("retrieval", 3, "\x1b]52;", 2, "\x9b"),) * 9))
    hacked = replace(run, rounds=type(run.rounds)([*run.rounds[: number - 1], evil, *run.rounds[number:]]))
    for phase in phases_of(hacked, number):
        for deep in (False, True):
            text = said(hacked, number, phase, deep)
            assert sanitise(text) == text
