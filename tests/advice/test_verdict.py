"""The adviser on made-up engines: what it measures, and the words it comes to."""

from __future__ import annotations

import html
import json
import random
import re
from dataclasses import replace

import pytest

from engines.advice.findings import RoundCosts
from engines.report.events import Ready
from spec_tui.export import advice_report
from spec_tui.export.advice_report import Advice, as_object, tables
from spec_tui.export.report import page, text
from spec_tui.present.advice_text import chosen, sentences, verdict_of
from spec_tui.present.speed_verdict import Speed
from spec_tui.session.engine_commands import LoadRequest
from tests.advice.made import Costs, PacedRacer, adviser, ran

READY = Ready("made/model", "float32", "cpu", 1, 300, 512, True, draft_model="/home/me/models/draft")
LANES = "pld,pld:num_tokens=4,draft,draft:shape=tree,rest,hybrid"
FAST, SLOW = Costs(3, 0.015), Costs(2, 0.025, 0.005)


def report(found) -> Advice:
    return Advice(found, READY, LoadRequest(model="made/model"), {"eagle": "no draft head is available"})


def told(found: Advice) -> str:
    """What a terminal shows."""
    return text(advice_report.report(found))


def test_the_fastest_is_advised_with_its_numbers_and_what_would_change_that():
    found = ran(PacedRacer(pld=FAST, draft=Costs(3, 0.015, 0.006)), LANES)
    assert found.finished and [len(each.lanes) for each in found.rounds] == [5, 6, 4]
    said = sentences(found)
    assert said == [
        "Use pld: 2.00x faster (±0.06) than autoregressive decoding, on 8 prompts.",
        "A tie: pld:num_tokens=4 (≈ 1.00x its speed) cannot be distinguished from it.",
        "By kind of prompt: pld gains on copy (2.01x) and story (1.99x).",
        "draft, the next best (1.42x), makes 3.00 tokens a round; to be as fast as pld it would have to make 4.21. If "
        "verifying a draft took no longer than a pass over one token, pld would still win: draft at 1.87x, pld at "
        "3.00x. If its drafting took no time, draft would be at 1.99x."]


def test_where_it_does_not_gain_is_said():
    found = ran(PacedRacer(pld=Costs(3, 0.015, kinds=(("story", 2.5),))), "pld,rest")
    said = sentences(found)
    assert said[:3] == [
        "Use pld: 1.14x faster (±0.03) than autoregressive decoding, on 8 prompts.",
        "Prompts differ: 0.78x to 2.06x, faster on 4 of 8; on other prompts like these the speed-up is known to ±0.44.",
        "By kind of prompt: pld gains on copy (2.01x); does not gain on story (0.79x)."]


def test_numbers_by_the_length_of_the_prompt():
    found = ran(PacedRacer(pld=Costs(3, 0.015, kinds=(("story", 2.5),))), "pld,rest")
    screening = found.rounds[-1]
    assert {label: len(prompts) for label, prompts in screening.by_length().items()} == {"< 128": 4, "128..511": 4}
    shown = told(report(found))
    assert "x and accepted by prompt tokens" in shown and "2.01x, 100%" in shown and "0.79x, 100%" in shown


def test_numbers_by_temperature_and_by_size_of_draft():
    found = ran(PacedRacer(pld=FAST, draft=Costs(3, 0.015, 0.006)), LANES, temperature=0.8)
    *_, final, warm = found.rounds
    assert found.finished and final.final and not warm.final
    assert warm.asked.request.temperature == 0.8 and {lane.label for lane in warm.lanes} == {
        lane.label for lane in final.lanes}
    assert sentences(found)[0].startswith("Use pld: 2.00x faster"), "the verdict is made of the final"
    price = ((1, 0.010), (3, 0.015), (64, 0.040))
    rows = {rows[0][0]: rows[:2] for rows in tables(replace(report(found), ready=replace(READY, price=price)))}
    assert rows["x and accepted by temperature"][0][1:] == ["0", "0.8 (8 prompts)"]
    assert rows["x and accepted by temperature"][1] == ["pld", "2.00x, 100%", "2.00x, 100%"]
    label, *rates, best = rows["tokens/s by draft depth"][1]
    assert label == "pld" and best == "2" and not any(rates[3:])
    assert [float(rate) for rate in rates[:3]] == pytest.approx([100, 160, 200], rel=0.03), "1, 2 and 3 tokens a round"


def test_where_nothing_is_faster_no_drafts_are_advised():
    found = ran(PacedRacer(pld=SLOW, rest=SLOW), "pld,rest")
    said = sentences(found)
    assert said[0] == ("Use no drafts (autoregressive): all other settings are slower here on 8 prompts. The fastest "
                       "of them is rest: 0.67x (±0.02).")
    assert "rest makes 2.00 tokens a round; to be as fast as autoregressive it would have to make 3.00" in said[2]
    assert "If verifying a draft took no longer than a pass over one token, rest would win" in said[2]
    assert as_object(report(found))["advised"] == {"engine": "autoregressive", "options": {}}


def test_too_little_time_gives_no_verdict():
    found = ran(PacedRacer(pld=FAST), "pld,rest", seconds=0.5)
    assert sentences(found) == [
        "There was too little time for a verdict: by the tokens and time of its rounds, pld reaches 1.96x the speed of "
        "autoregressive decoding on 1 prompt, too few to tell it from noise. Give it more time."]
    assert as_object(report(found))["paste"] == []


def test_what_the_clock_cannot_tell_yet_is_said_to_be_probable_with_what_would_settle_it(monkeypatch):
    monkeypatch.setattr("engines.advice.adviser.REPEATS", 6)
    price, said = ((1, 0.010), (3, 0.012), (64, 0.040)), []
    fast, slow = Costs(2, 0.011), Costs(2, 0.011, 0.019)
    runs = (3.0, fast, 0.4, 2), (5.0, fast, 0.9, 1), (60.0, fast, 0.9, 2), (60.0, slow, 0.9, 1)
    for seconds, costs, unsteady, seed in runs:
        racer, dice = PacedRacer(price, pld=costs), random.Random(seed)
        racer.mood = lambda dice=dice, unsteady=unsteady: dice.lognormvariate(0, unsteady)
        found = ran(racer, "pld", seconds)
        screening = found.rounds[-1]
        assert verdict_of(screening, 1).speed is Speed.SAME and screening.ratio(1).noise > 0.3
        said.append(sentences(found)[0])
        assert chosen(screening) == (1 if len(said) < 4 else 0)
    settled = r"x the speed of .*\. %s would settle it\."
    assert re.match(r"Probably faster: pld at 1\.8" + settled % r"About \d+ more minutes?", said[0])
    for words in said[1:3]:  # the time would be enough for more answers than may be asked of these prompts
        assert re.match(r"Probably faster: pld at 1\.8" + settled % "More prompts", words)
    assert re.match(r"Probably slower: pld at 0\.[67]" + settled % "More prompts", said[3])


def test_what_was_dropped_is_judged_by_what_it_makes():
    racer, dice = PacedRacer(((1, 0.010), (3, 0.012), (64, 0.040)), pld=FAST), random.Random(2)
    racer.mood = lambda: dice.lognormvariate(0, 0.6)
    rows = next(rows for rows in tables(report(ran(racer, LANES))) if rows[0][0] == "dropped")
    idle = [row for row in rows[1:] if row[-1] == "1.00"]
    assert idle and all(float(row[3].rstrip("x")) < 1.05 for row in idle), "one token a step gains nothing"


@pytest.mark.parametrize("seconds", [7.0, 20.0, 45.0])
def test_it_ends_in_time(seconds):
    racer = PacedRacer(pld=FAST)
    found = ran(racer, LANES, seconds=seconds, temperature=0.8)
    assert 0.5 * seconds < racer.now <= 1.02 * seconds and sentences(found)[0].startswith("Use pld")


def test_what_is_interrupted_is_said_to_be_unfinished():
    racer = PacedRacer(pld=FAST)
    found, stop = adviser(racer, LANES), iter(range(10**9))
    for _ in found.run(lambda: next(stop) > 60):
        pass
    assert not found.finished
    assert sentences(found)[0] == "Unfinished: this is what stage 2 of 3 says, after 2 answers of each setting."
    nothing = adviser(racer, LANES)
    for _ in nothing.run(lambda: True):
        pass
    assert sentences(nothing)[0].startswith("Unfinished: it was interrupted") and told(report(nothing))


def test_all_tables_of_an_interrupted_round_are_of_the_same_answers():
    """Of the prompts that every setting has answered: here of the first, for which none drafts anything."""
    racer = PacedRacer()
    found = adviser(racer, "pld,rest")
    for _ in found.run(lambda: len(racer.asked) == 8):
        if len(racer.asked) == 6:  # warm, all have answered the first
            racer.costs = dict.fromkeys(("pld", "rest"), FAST)
    screening = found.rounds[0]
    assert len(screening.counted()) == 1 and any(run.state.metrics.drafted for run in screening.result.complete)
    assert not any(rows[0][0] == "accepted at depth" for rows in tables(report(found)))


def test_a_setting_that_breaks_is_left_out():
    racer = PacedRacer(pld=FAST)
    racer.breaks = {"rest"}
    found = ran(racer, LANES)
    assert found.finished and "rest failed and was left out: it broke" in told(report(found))


def test_prompts_whose_answers_lie_in_a_datastore_do_not_count():
    answers = iter([True, False] * 4)
    found = ran(PacedRacer(pld=FAST), LANES, known=lambda tokens: next(answers, False))
    first, *_, last = found.rounds
    assert len(found.held_out) == 4 and first.prompts() < 8 and not set(found.held_out) & set(last.suite.cases)
    assert "held out" in told(report(found))
    copied = ran(PacedRacer(pld=FAST), LANES, known=lambda tokens: True)
    assert copied.copied == 8 and not copied.held_out
    assert "the answers to 8 prompts lie in a datastore" in told(report(copied))


def test_the_report_has_tables_and_what_to_paste(capsys):
    found = report(ran(PacedRacer(pld=FAST, draft=Costs(3, 0.015, 0.006)), LANES))
    shown = told(found)
    assert max(map(len, shown.splitlines())) <= 80 or all(
        line.startswith("  ") for line in shown.splitlines() if len(line) > 80)
    assert "spec-tui --engine pld --model made/model" in shown and "--speculative-config" in shown
    assert "--spec-type ngram-simple" in shown and "model.generate(**inputs, prompt_lookup_num_tokens=2" in shown
    assert "accepted at depth" in shown and "a round, ms" in shown and "x by kind of prompt" in shown
    assert "not tried: eagle: no draft head is available" in shown and "all lanes write the same text" in shown
    data = json.loads(json.dumps(as_object(found)))
    assert data["advised"] == {"engine": "pld", "options": {}} and data["ties"] == ["pld:num_tokens=4"]
    assert [each["program"] for each in data["paste"]] == ["spec-tui", "vLLM", "SGLang", "llama.cpp", "transformers"]
    assert len(data["rounds"][-1]["lanes"][1]["speed_up"]["each"]) == 8 and "/home/me" not in json.dumps(data)


def test_a_page_holds_no_markup_of_others():
    evil = "<script>alert(1)</script>"
    suite = "\n".join(json.dumps({"prompt": f"{kind} {n}", "category": kind}) for kind in ("a", evil) for n in range(3))
    found = ran(PacedRacer(pld=FAST), "pld,rest", suite=suite)
    made = page(advice_report.report(Advice(found, READY, LoadRequest(model=evil), {"eagle": evil}, (evil,))))
    assert "<script" not in made and made.count(html.escape(evil[:8])) >= 4 and "http" not in made.split("</head>")[1]
    assert "default-src 'none'" in made


def test_who_goes_on_is_computed_as_far_as_the_clock_cannot_tell():
    price = ((1, 0.010), (3, 0.012), (64, 0.040))
    dear = ran(PacedRacer(price, pld=Costs(3, 0.050)), LANES)  # by t(n) it is fast, and it never is
    assert dear.rounds[0].score(1) < 0.7 and dear.rounds[-1].lanes[1].engine != "pld"
    assert sentences(dear)[0].startswith(("Use no drafts", "A tie: the fastest"))
    racer, dice = PacedRacer(price, pld=Costs(3, 0.012)), random.Random(4)
    racer.mood = lambda: dice.lognormvariate(0, 0.8)
    busy = ran(racer, LANES)
    screening = busy.rounds[0]
    assert screening.score(1) == pytest.approx(2.5, rel=0.15) and abs(screening.ratio(1).ratio - 2.5) > 0.4
    assert busy.rounds[-1].lanes[1].engine == "pld" and screening.ratio(1).noise > 0.5


def test_another_law_whose_texts_differ_counts_the_prompts_as_noise():
    found = ran(PacedRacer(pld=Costs(3, 0.015, kinds=(("story", 2.5),))), "pld,rest")
    screening = found.rounds[-1]
    steady = screening.ratio(1)
    drawn = replace(screening.asked.request, law="rejection", temperature=1.0)
    screening.asked = replace(screening.asked, request=drawn)
    assert screening.ratio(1).noise == steady.spread > 5 * steady.noise


def test_a_lossy_law_is_said_in_the_verdict_and_in_what_to_paste():
    found = ran(PacedRacer(pld=FAST), "pld,rest")
    lossy = {"law": "redraw", "temperature": 0.8}
    found.request, screening = replace(found.request, **lossy), found.rounds[-1]
    screening.asked = replace(screening.asked, request=replace(screening.asked.request, **lossy))
    assert any("redraw is LOSSY" in sentence for sentence in sentences(found))
    ours, *others = advice_report.pastes(report(found))
    assert "/temp 0.8 and /law redraw" in ours.note
    assert others and all("the law redraw" in other.note for other in others)
    assert "temperature 0.8, law redraw LOSSY; in turns" in " ".join(told(report(found)).split())


def test_times_of_a_round_say_what_would_help():
    alone, mine = RoundCosts(1.0, 0.010, 0.0, 0.0), RoundCosts(2.0, 0.020, 0.005, 0.0)
    assert mine.rate == 80 and mine.tokens_for(alone.rate) == 2.5
    assert mine.free_rows(alone) == 2 / 0.015 and mine.free_drafts() == 100


