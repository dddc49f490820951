"""Plain data: events through JSON, metrics by hand, options, stops, trees, labels of tokens."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import Request, UsageProblem, measure, specs
from engines.core.outcome import Stop
from engines.core.tree import DraftTree, depths
from engines.methods.options import Option
from engines.report import encoding
from engines.report.events import (
    Choice,
    Draft,
    Emitted,
    Finished,
    Origin,
    Prefilled,
    Retrieval,
    Round,
    Started,
    Trial,
)
from engines.report.metrics import Metrics, together
from engines.tokenization import ByteStream, Detokenizer, SlowStream
from engines.wire import from_json, to_json

A = Emitted(1, "a", "a", "accepted", 0, 0.5, 0.1, None, (Choice(1, "a", 0.5),), (Trial(0, 0.5, 0.9, 0.2, True),))
C = Emitted(2, "", "<0xE4>", "corrected")


def test_infinity_in_a_note_is_null_on_the_wire():
    event = Round(1, 9, Draft(), (), (C,), 0.1, 0.2, 0.3, 9, {"match": 2, "rate": math.inf})
    assert from_json(line := to_json(event)).note == {"match": 2, "rate": None} and b"\n" not in line


@pytest.mark.parametrize(
    "line",
    ["", '{"event": "Loading", "stage": 3}',
     '{"event": "Finished", "reason": "stop", "tokens": ["1"], "text": ""}',
     '{"event": "Finished", "reason": "stop", "tokens": [true], "text": ""}',
     '{"event": "Finished", "reason": "stop", "tokens": [1, 1.5], "text": ""}',
     '{"event": "Prefilled", "prompt_tokens": 1, "reused": 0, "seconds": 1, "first": 3, "cache_length": 2}'],
)
def test_what_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError):
        from_json(line)


@pytest.mark.parametrize("prob", [0.5, 1, math.nan, math.inf], ids=str)
def test_numbers_that_are_not_finite_are_null_on_the_wire(prob):
    event = Prefilled(3, 1, 0.25, replace(A, prob=prob, noise=-math.inf if prob == 1 else None), 4)
    assert json.loads(to_json(event)) == {"event": "Prefilled", **encoding.plain(event)}
    assert (b"\"prob\":null" in to_json(event)) == (not math.isfinite(prob))
    assert str(from_json(to_json(event)).first.prob) == str(float(prob) if math.isfinite(prob) else None)


def test_methods_are_copied_and_pickled_by_their_ids():
    assert all(pickle.loads(pickle.dumps(spec)) is copy.deepcopy(spec) is spec for spec in specs())


def test_fields_of_a_newer_version_are_ignored():
    record = json.loads(to_json(Finished("stop", (), ""))) | {"mood": "good"}
    assert from_json(json.dumps(record)) == Finished("stop", (), "")


def test_metrics_by_hand():
    chain = Draft((1, 3, 5), (-1, 0, 1), ("", "", ""), (None,) * 3, (0,) * 3, (Origin("output"),))
    fork = Draft((1, 2), (-1, -1), ("", ""), (None,) * 2, (0,) * 2, (Origin("draft"),))
    events = [
        Prefilled(5, 0, 2.0, C, 5),
        Round(1, 6, chain, (0,), (A, C), 0.5, 1.0, 0.25, 7),  # 1 of depth 3
        Round(2, 8, fork, (), (C,), 0.5, 1.0, 0.25, 8),  # 0 of depth 1
        Round(3, 9, Draft(), (), (Emitted(4, "", "", "target"),), 0.0, 1.0, 0.5, 9),
    ]
    m = measure(events)
    assert m.stats() == {
        "new_tokens": 5, "target_forwards": 3, "drafted": 5, "accepted": 1, "acceptance_rate": 0.2,
        "path_acceptance": pytest.approx((1 / 3 + 0) / 2), "mean_generated_length": pytest.approx(4 / 3),
        "tau": pytest.approx(1 / 3), "tokens_per_second": pytest.approx(4 / 5), "prefill_seconds": 2.0,
        "decode_seconds": 5.0, "draft_seconds": 1.0, "verify_seconds": 3.0, "other_seconds": 1.0,
        "break_even_length": None, "bias": None, "match_lengths": None,
    }
    assert m.depth_tried == (2, 1) and m.depth_accepted == (1, 0)
    assert m.sources == {"target": 4, "output": 1}


def test_matched_lengths_are_counted_misses_too():
    found = [Retrieval(0.1, match) for match in (3, 0, 3, None)]  # None: by meaning, which matches no suffix
    m = measure(Round(i, i, Draft(), (), (C,), 0, 0, 0, i, retrieval=r) for i, r in enumerate([*found, None]))
    assert m.matches == {3: 2, 0: 1} and m.stats()["match_lengths"] == {"0": 1, "3": 2}
    assert together([m, m]).matches == {3: 4, 0: 2}


def test_runs_taken_together_keep_their_meaning():
    run = [Prefilled(5, 0, 2.0, C, 5), *(Round(i, i, Draft(), (), (C,), 0, 1.0, 0, i) for i in range(3))]
    m = together([measure(run)] * 4)
    assert m.mean_generated_length == 1 and m.tokens_per_second == 1 and m.answers == 4


def test_break_even_by_hand():
    chain = Draft((1, 3, 5), (-1, 0, 1), ("", "", ""), (None,) * 3, (0,) * 3, (Origin("output"),))
    started = Started("pld", {}, "exact", 0.0, 1.0, 0, 0, 9, "m", "float32", "cpu", (1,), price=((1, 1.0), (4, 1.6)))
    events = [
        started,
        Prefilled(5, 0, 2.0, C, 5),
        Round(1, 6, chain, (0, 1), (A, A, C), 0.5, 3.2, 0.5, 8),  # four rows, twice what the curve says
        Round(2, 9, Draft(), (), (C,), 0.0, 2.0, 0.5, 9),
    ]
    m = measure(events)
    assert m.verify_scale == pytest.approx(2.0)
    plain = 2.0 * 1.0 + 0.5
    assert m.break_even.needs == m.break_even_length == pytest.approx((0.5 + 3.2 + 0.5 + 2.0 + 0.5) / 2 / plain)
    assert m.break_even.makes == m.mean_generated_length == 2.0
    assert measure([*events[:2], events[3]]).break_even_length == pytest.approx(1.0)  # nothing drafted
    assert measure(events[1:]).break_even is None  # a trace without a price


def test_a_leaf_of_a_deeper_tree_is_no_rejection_below_it():
    tree = Draft((1, 2, 3), (-1, -1, 1), ("",) * 3, (None,) * 3, (0,) * 3, (Origin("draft"),))
    m = measure([Round(1, 6, tree, (0,), (A, Emitted(9, "", "", "bonus")), 0.1, 0.1, 0.1, 7)])
    assert m.depth_tried == (1,) and m.depth_accepted == (1,)


def test_ratios_with_nothing_to_divide_by_are_none():
    stats = Metrics().stats()
    assert stats["acceptance_rate"] is stats["tokens_per_second"] is stats["tau"] is None


@given(st.lists(st.integers(0, 9), max_size=12))
def test_depths_are_those_of_the_paths(choices):
    tree = DraftTree()
    for i, choice in enumerate(choices):
        tree.add(i, choice % (i + 1) - 1, None, 0)
    for node, depth in enumerate(depths(tree.parents)):
        above = 0
        while node >= 0:
            node, above = tree.parents[node], above + 1
        assert depth == above


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=25), st.integers(0, 5), st.integers(0, 20))
def test_capping_keeps_a_tree(nodes, depth, count):
    tree = DraftTree()
    for token, choice in nodes:
        tree.add(token, choice % (len(tree) + 1) - 1, None, 0)
    capped = tree.capped(depth, count)
    capped.check(4)
    assert len(capped) <= count and max(depths(capped.parents), default=0) <= depth
    path = tree.first_path()
    assert path.parents == list(range(-1, len(path) - 1))


def test_nothing_is_kept_below_an_end_token():
    #     0 -> 9 -> 1 (cut)        9 ends the answer
    #     2 -> 3
    tree = DraftTree([0, 2, 9, 3, 1, 4], [-1, -1, 0, 1, 2, 4], [None] * 6, [0] * 6)
    cut = tree.ending_at(frozenset({9}))
    assert (cut.tokens, cut.parents) == ([0, 2, 9, 3], [-1, -1, 0, 1])
    assert tree.ending_at(frozenset({7})) is tree


@given(st.lists(st.integers(0, 5)), st.integers(0, 10), st.integers(11, 30))
def test_stop_cuts_at_the_first_end_token_or_the_limit(new, before, limit):
    kept, reason = Stop(frozenset({5}), limit).cut(list(new), before)
    assert kept == new[: len(kept)] and before + len(kept) <= limit
    if reason == "stop":
        assert kept[-1] == 5 and 5 not in kept[:-1]
    else:
        assert 5 not in kept and (reason == "length") == (before + len(kept) == limit)


def test_options_parse_words_and_numbers():
    number, share, flag = Option("n", 3, "", 1, 9), Option("p", 0.5, "", 0, 1), Option("f", False, "")
    assert number.parse("4") == 4 and share.parse("0.25") == 0.25 and flag.parse("yes") is True
    assert number.parse(4.0) == 4
    for option, bad in [(number, "10"), (number, "x"), (number, 2.5), (share, "nan"), (share, "inf"), (flag, "eh")]:
        with pytest.raises(UsageProblem) as caught:
            option.parse(bad)
        assert option.range in caught.value.hint and option.name in caught.value.message
    with pytest.raises(UsageProblem, match="not a whole number"):
        number.parse("1e0")


def test_every_engine_explains_itself():
    for spec in specs():
        assert spec.summary.endswith(".") and spec.source and spec.lossless
        for option in spec.options:
            assert option.help.endswith(".") and option.parse(option.default) == option.default


def test_requests_survive_json():
    request = Request((("user", "ä"),), "pld", {"num_tokens": 3}, top_k=4)
    assert encoding.build(Request, encoding.plain(request)) == request


def test_streamed_text_is_the_decoded_text(tokenizer):
    words = Detokenizer(tokenizer)
    text = "Grüße, 世界! 🙂 <b>x</b>\n\ttab"
    ids = tokenizer(text)["input_ids"]
    for stream in (words.stream(), SlowStream(tokenizer)):
        pieces = [stream.step(i) for i in ids]
        assert "".join(pieces) == text and "" in pieces, "half a character adds nothing yet"
    end = tokenizer.eos_token_id
    assert words.stream().step(end) == "" and words.piece(end) == "<|end|>"


@settings(max_examples=60)
@given(data=st.data())
def test_streams_of_bytes_hold_back_nothing_but_an_unfinished_character(data, tokenizer):
    """Any tokens, in any order: broken characters, special and added tokens, ids that stand for nothing."""
    words = Detokenizer(tokenizer)
    known = st.integers(0, len(tokenizer) + 2)
    alone = st.sampled_from(tokenizer("ä世🙂\ufffd")["input_ids"])  # parts of characters
    ids = data.draw(st.lists(st.one_of(known, alone), max_size=30))
    stream, text = words.stream(), ""
    assert isinstance(stream, ByteStream)
    for count, token in enumerate(ids, 1):
        text += stream.step(token)
        assert tokenizer.backend_tokenizer.decode(ids[:count], skip_special_tokens=True) in (text, text + "\ufffd")


def test_what_ends_a_text_is_not_lost_where_it_is_complete(tokenizer):
    stream, (first, *_) = Detokenizer(tokenizer).stream(), tokenizer("🙂")["input_ids"]
    ids = [*tokenizer("U+FFFD is \ufffd")["input_ids"], first]
    assert "".join(map(stream.step, ids)) == "U+FFFD is \ufffd", "as much of a face as there is stays out"


def test_labels_of_tokens(tokenizer):
    words = Detokenizer(tokenizer)
    first, second = tokenizer("ä")["input_ids"]
    assert (words.piece(first), words.piece(second)) == ("<0xC3>", "<0xA4>")
    assert words.piece(tokenizer(" ")["input_ids"][0]) == " "
    assert words.piece(9999) == "<id 9999>"


def test_a_passage_shows_whole_characters_and_what_was_cut_of_them(tokenizer):
    words, end = Detokenizer(tokenizer), tokenizer.eos_token_id
    text = "Grüße, 世界! 🙂 <0xC3> \ufffd"
    ids = tokenizer(text)["input_ids"]
    assert words.text(ids) == text
    (first, second), world = tokenizer("ä")["input_ids"], tokenizer("世")["input_ids"]
    assert words.text([second, *world, end, first, *world, first]) == "<0xA4>世<|end|><0xC3>世<0xC3>"


def test_byte_fallback_vocabularies_stream_whatever_the_model_writes():
    """Complete text, a lone byte, a letter: what Llama-2's and Mistral's tokenizers meet at high temperature."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "▁a", "é"]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    rng, words = random.Random(1), Detokenizer(fast)
    for _ in range(200):
        ids = [rng.choice([*range(3 + 0xC0, 3 + 256), *range(259, len(pieces))]) for _ in range(12)]
        stream = words.stream()
        assert "".join(stream.step(i) for i in ids).isprintable()
    emoji = [3 + b for b in "🙂".encode()]
    stream = words.stream()
    assert "".join(stream.step(i) for i in [*emoji, 260, *emoji, 3 + 0xC3, 3 + 0xA9, 260]) == "🙂a🙂éa"
    assert words.piece(3 + 0xC3) == "<0xC3>"
