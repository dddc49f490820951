"""Going on from the middle of an answer, and looking at every verified row."""

from __future__ import annotations

import pytest

from engines import Answer, Request, UsageProblem, specs
from engines.core.tree import depths
from engines.report import encoding
from engines.report.events import Prefilled, Round, Started
from engines.wire import from_json, to_json
from tests.tiers import some

TURN = (("user", "Repeat: the cat sat on the mat, the cat sat on the hat."),)
ENGINES = [spec.id for spec in specs()]


def run(runtime, engine="pld", **kw):
    return list(runtime.run(Request(TURN, engine, max_new_tokens=kw.pop("new", 40), **kw)))


@pytest.mark.parametrize("temperature", some([0.0, 0.9], lambda t: t > 0))
@pytest.mark.parametrize("engine", ENGINES)
def test_any_engine_goes_on_with_the_same_text(tiny, engine, temperature):
    whole = run(tiny, "autoregressive", temperature=temperature, seed=3)
    for begun in (1, 2, 17):
        tokens = whole[-1].tokens[:begun]
        more = {"continued": tokens, "new": 40 - begun + 1}
        events = run(tiny, engine, temperature=temperature, seed=3, **more)
        assert events[-1].tokens == whole[-1].tokens[begun - 1 :]
        assert events[0].prompt == whole[0].prompt + tokens[:-1] and events[0].continued == begun - 1
        assert events[1].first.token == tokens[-1]
        assert tiny.audit(Answer.from_events(events)).verdict == "identical"


def test_the_texts_add_up_within_a_character(sample):
    whole = list(sample.run(Request((("user", "Say: naïve café – ok 🙂"),), "autoregressive", max_new_tokens=24)))
    written = [whole[1].first, *(e for r in whole[2:-1] for e in r.emitted)]
    for begun in range(1, len(whole[-1].tokens), 3):
        kept = written[: begun - 1]
        rest = Request(whole[0].conversation, "pld", max_new_tokens=25 - begun, continued=whole[-1].tokens[:begun])
        *_, done = sample.run(rest)
        assert "".join(e.text for e in kept) + done.text == whole[-1].text


def test_the_drafter_knows_where_the_prompt_ends(tiny):
    whole = run(tiny, "pld", options={"budget": "paper"}, new=60)
    begun = len(whole[-1].tokens) - 20
    rest = run(tiny, "pld", options={"budget": "paper"}, continued=whole[-1].tokens[:begun], new=21)
    before = {e.position: e.draft for e in whole if isinstance(e, Round)}
    same = [e for e in rest if isinstance(e, Round) and e.position in before]
    assert same and all(e.draft.origins == before[e.position].origins for e in same if e.draft.tokens)


def test_dice_are_not_thrown_twice(tiny):
    kw = {"law": "rejection", "temperature": 1.0, "seed": 5}
    whole = run(tiny, "autoregressive", **kw)
    first = [e for e in whole if isinstance(e, Round)]
    assert run(tiny, "autoregressive", **kw)[-1] == whole[-1]
    again = run(tiny, "autoregressive", continued=whole[-1].tokens[:1], **kw)
    assert again[1].first.token == whole[-1].tokens[0]
    assert again[-1].tokens[1:] != whole[-1].tokens[1 : len(again[-1].tokens)] or len(first) < 3


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_given_token_won_over_nothing(tiny, temperature):
    """It was shown as ahead of the next best score, which it need not be where the user branches to another token."""
    first = run(tiny, temperature=temperature)[1].first
    assert first.gap is not None and (first.noise is None) == (temperature == 0)
    for token in (first.token, (first.token + 1) % 250):
        given = run(tiny, temperature=temperature, continued=(token,), new=3)[1].first
        assert (given.token, given.gap, given.noise) == (token, None, None)


def test_what_cannot_be_gone_on_from_is_refused(tiny):
    for token in (-1, 260):
        with pytest.raises(UsageProblem, match="vocabulary"):
            run(tiny, continued=(token,))


@pytest.mark.parametrize("law, temperature", [("exact", 0.0), ("exact", 0.9), ("rejection", 0.9), ("typical", 0.9)])
def test_detail_agrees_with_what_the_walk_saw(tiny, law, temperature):
    kw = {"law": law, "temperature": temperature, "seed": 1, "options": {"shape": "tree", "budget": "paper"}}
    plain, detailed = (run(tiny, "draft", detail=detail, **kw) for detail in (False, True))
    assert detailed[-1] == plain[-1]
    assert not any(e.verified for e in plain if isinstance(e, Round))
    for event in (e for e in detailed if isinstance(e, Round)):
        assert len(event.verified) == 1 + len(event.draft.tokens)
        assert event.verified[0].drafted is None
        for node, emitted in zip([-1, *event.path], event.emitted):
            row = event.verified[node + 1]
            if law == "exact":
                assert (row.choice.token, row.noise) == (emitted.token, emitted.noise)
                assert row.choice.prob == pytest.approx(emitted.prob, abs=1e-6)
            else:
                assert row.choice.token == emitted.top[0].token
            for trial in emitted.trials[:1]:
                assert event.verified[trial.node + 1].drafted == pytest.approx(trial.target_prob, abs=1e-6)
        assert from_json(to_json(event)) == event
        if law == "exact":  # every node is accepted exactly where the rows above it choose it
            chosen = [event.verified[p + 1].choice.token == t for t, p in zip(event.draft.tokens, event.draft.parents)]
            reach = []
            for hit, parent in zip(chosen, event.draft.parents):
                reach.append(hit and (parent < 0 or reach[parent]))
            deepest = max((d for d, r in zip(depths(event.draft.parents), reach) if r), default=0)
            assert deepest >= len(event.path) and all(reach[n] for n in event.path)


def test_a_request_survives_json(tiny):

    request = Request(TURN, "pld", continued=(3, 4), detail=True)
    assert encoding.build(Request, encoding.plain(request)) == request
    events = run(tiny, "pld", continued=(5, 6), new=3)
    assert isinstance(events[0], Started) and isinstance(events[1], Prefilled)
