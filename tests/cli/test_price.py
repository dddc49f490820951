"""``spec-tui price``: the measured curve, and the acceptance that pays, checked by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engines.heads.check_head import HeadCheck, HeadReading
from engines.report.events import PriceMeasured
from spec_tui.cli import price
from spec_tui.cli.head import check_lines
from spec_tui.session import loader
from spec_tui.session.engine_commands import LoadRequest
from tests.session import fake_runtime

CHEAP, DEAR = ((1, 0.010), (2, 0.011), (8, 0.014), (64, 0.035)), ((1, 0.012),)
CHECK = HeadCheck(tuple(
    HeadReading(choices={}, words="layers counted from the embeddings, the residual stream before the norm, rope theta "
                "10000", declared=not n, agreement=(0.1 + n / 2, 0.1, 0.1, 0.1)) for n in range(2)), 99)


@pytest.fixture
def priced(cli, monkeypatch):
    """The command on a decoder with these prices; ``--fresh`` gives it others."""
    def load(*asked, price=CHEAP, draft_price=((1, 0.002),), busy=False):
        decoder = fake_runtime.load(*asked)
        decoder.ready = replace(decoder.ready, price=price, draft_price=draft_price, context_limit=8192,
                                price_busy=busy)
        decoder.measure_reading = lambda: (1e-6, 192)
        decoder.measure_price = lambda: setattr(decoder, "ready", replace(decoder.ready, price=((1, 0.5), (2, 0.5))))
        return decoder

    def run(*arguments, **kwargs):
        monkeypatch.setattr(loader, "load_here", lambda *asked: load(*asked, **kwargs))
        return cli("price", *arguments)

    return run


def test_numbers_are_those_of_the_curve(priced):
    facts = json.loads(priced("--format", "json").out)
    assert facts["price"] == [list(point) for point in CHEAP]
    lookup, chain = facts["drafts"].values()
    seven = next(size for size in lookup["sizes"] if size["tokens"] == 7)
    assert seven["needs"] == pytest.approx(1.4)
    share = seven["acceptance_needed"]
    assert sum(share**n for n in range(8)) == pytest.approx(1.4, abs=1e-6)
    assert next(s for s in chain["sizes"] if s["tokens"] == 7)["needs"] == pytest.approx((0.014 + 7 * 0.002) / 0.010)


def test_what_can_never_pay_is_said(priced):
    done = priced(draft_price=DEAR)
    row = done.out.splitlines()[-1]
    assert done.code == 0 and "break-even acceptance" in row and row.count("never") == 6
    assert "at most 0." in done.out


def test_without_a_draft_model_only_lookup_is_priced(priced):
    facts = json.loads(priced("--format", "json", draft_price=()).out)
    assert list(facts["drafts"]) == ["lookup, drafting for next to nothing"]


def test_fresh_measures_again(priced):
    assert json.loads(priced("--fresh", "--format", "json").out)["price"] == [[1, 0.5], [2, 0.5]]


@pytest.mark.parametrize("busy", [True, False])
def test_a_price_of_a_busy_machine_is_called_one(priced, busy):
    assert ("cores busy while t(n) was measured" in " ".join(priced(busy=busy).out.split())) == busy
    assert json.loads(priced("--format", "json", busy=busy).out)["busy"] == busy


def test_requests_at_a_server_have_the_context_of_its_measurement(cli, monkeypatch):
    server = fake_runtime.load(LoadRequest(), lambda event: None)
    server.measure_price, server.round_trip, server.close = lambda cancelled: PriceMeasured(CHEAP, 192), 0.001, list
    monkeypatch.setattr(price, "load_decoder", lambda load: server)
    ask = ("price", "--server", "http://127.0.0.1:9", "--requests", "4")
    said = " ".join(cli(*ask).out.split())
    assert "192 tokens of context each" in said and "not all sizes were measured" in said
    done = cli(*ask, "--context", "4000")
    assert done.code == 2 and "--context would change nothing here" in done.err


@pytest.mark.parametrize("columns", ["60", "80"])
def test_text_fits_the_terminal(priced, cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    texts = [priced("--requests", "1,64", price=tuple((2**n, 100 + n) for n in range(7))).out,
             cli("price", "--overlap", "smollm2-tree").out, cli("reproduce", "--list").out, cli("learn", "--list").out,
             cli("replay").out, "\n".join(check_lines(CHECK))]
    assert "t(n) / t(1)" in texts[0] and "x alone" in texts[1]
    assert max(len(line) for text in texts for line in text.splitlines()) <= int(columns)


def test_requests_at_once_have_their_own_lengths_and_an_end(priced):
    """Rows that were free for one request are used by the others: the model's b(n + 1) rows, checked by hand."""
    steep = ((1, 0.010), (16, 0.010), (64, 0.040))
    asked = ("--requests", "8,1,64", "--acceptance", "0.6")
    facts = json.loads(priced(*asked, "--format", "json", price=steep).out)["requests"]
    lookup, chain = facts["drafts"].values()
    one, eight, many = lookup["points"]
    assert [point["requests"] for point in lookup["points"]] == [1, 8, 64] and facts["context"] == 192
    assert eight["length"] == 1 and eight["gain"] == pytest.approx(1.6)
    assert one["length"] == 15 and many["length"] == 0 and many["gain"] == 1
    assert 8 <= lookup["stops_after"] < 64 and chain["stops_after"] < lookup["stops_after"]
    text = priced(*asked, price=steep).out
    assert f"pays for up to {lookup['stops_after']} requests at once" in text and "none" in text and "│" in text
    assert max(map(len, text.splitlines())) <= 80
    longer = json.loads(priced(*asked, "--context", "4000", "--format", "json", price=steep).out)["requests"]
    assert all(point["gain"] > 1 for point in longer["drafts"].popitem()[1]["points"]), "what is read is shared"
    for wrong in ("0", "2,x", "1000", ""):
        assert "is not understood" in priced("--requests", wrong).err
    assert "--context 8,193 is more than the model's context of 8,192" in priced(*asked, "--context", "8193").err


def test_where_drafting_pays_again_for_more_requests_it_is_said(priced):
    stepped = ((1, 0.010), (2, 0.020), (8, 0.020), (16, 0.021), (64, 0.022))
    text = priced("--requests", "1,8", "--acceptance", "0.3", price=stepped).out
    assert "does not pay for one request alone, but pays for 8" in " ".join(text.split()) and "never pays" not in text


def test_a_recorded_run_tells_what_overlapping_would_gain(cli):
    """No model is loaded. A tree has several guesses a place, so it tells of several prepared contexts; a chain of one;
    what copies has nothing to overlap."""
    rows = json.loads(cli("price", "--overlap", "smollm2-tree", "--format", "json").out)["rows"]
    assert [row["prepared"] for row in rows] == [1, 2, 4, 8, 16, 32]
    assert rows[0]["gain"] < rows[-1]["gain"] < 2 and all(0 < row["hits"] <= row["rounds"] for row in rows)
    chain = json.loads(cli("price", "--overlap", "smollm2-draft", "--format", "json").out)
    assert len(chain["rows"]) == 1 and chain["ranks"]["1"] + chain["beyond"] == pytest.approx(1)
    text = cli("price", "--overlap", "smollm2-tree").out
    assert max(map(len, text.splitlines())) <= 80 and f"{rows[-1]['gain']:.2f}x" in text
    refused = cli("price", "--overlap", "smollm2-pld")
    assert refused.code == 2 and "nothing can overlap" in refused.err


def test_where_the_time_of_a_round_goes(tiny):
    from spec_tui.cli import round_profile

    steps = []
    lanes = round_profile.lanes_of(["pld", "draft:num_tokens=2"])
    facts = round_profile.profile(tiny, lanes, lambda *of: steps.append(of))
    assert steps[-1] == (facts["answers"], facts["answers"])
    plain, lookup, draft = facts["engines"]
    assert [each["engine"] for each in facts["engines"]] == ["autoregressive", "pld", "draft:num_tokens=2"]
    assert plain["tokens_a_round"] == plain["gain"] == 1 and plain["passes"] == lookup["passes"] == 0
    assert draft["passes"] > 0 and draft["drafting"] > plain["drafting"]
    assert all(each["verifying"] > 0 and each["other"] > 0 and each["forecast"] >= 1 for each in facts["engines"])
    shown = round_profile.lines(facts)
    assert len(shown) > 5 and max(map(len, shown)) <= 80
    assert any(line.startswith(f"draft:num_tokens=2 ({draft['passes']:.1f})") for line in shown)
    draft["engine"] = "draft:num_tokens=2:shape=chain"
    assert any(f"… ({draft['passes']:.1f})" in line for line in round_profile.lines(facts))


def test_engines_are_named_as_in_a_race(priced):
    assert "there is no engine" in priced("--engine", "nothing").err
