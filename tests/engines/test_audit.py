"""The audit: against one written independently, planted bugs and ties, half precision, sampling, cancelling."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from engines import Answer, Request, RunFailed, UsageProblem, load
from engines.audit import reference_forward as plain
from engines.audit.tie_distance import ScoredRow
from engines.core.sampling import Sampling
from engines.folders import model_label
from engines.model.loading import wrap
from engines.model.native.native_check import unavailable
from engines.model.sublayers import layer_lists
from engines.report import encoding
from engines.report.events import Prefilled, Started
from engines.runtime import Runtime
from engines.wire import from_json, to_json
from tests.conftest import make_llama, make_tokenizer
from tests.engines import families
from tests.engines.auditor import Position, plain_logits, reaudit
from tests.engines.test_lossless import IDS, TURNS, VARIANTS
from tests.sources.gguf_files import Tiny
from tests.tiers import first_of_each, some

ENGINES = [("autoregressive", {}), *VARIANTS]
SAMPLINGS = [
    {}, {"temperature": 0.8, "seed": 3}, {"temperature": 0.9, "top_p": 0.8, "seed": 1},
    {"temperature": 1.1, "top_k": 7, "top_p": 0.9, "seed": 2},
]


def write(runtime, engine="pld", options=None, prompt=TURNS["copy"], new=18, **kw) -> Answer:
    events = runtime.run(Request(prompt, engine, options or {}, max_new_tokens=new, **kw))
    return Answer.from_events(events)


@cache
def plain_model(name: str, dtype: torch.dtype):
    """The weights once more, as transformers loads them."""
    if name == "tiny-target":
        return make_llama(1, layers=3).to(dtype)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype).eval()


def again(answer: Answer) -> list[Position]:
    """The independent audit."""
    logits = plain_logits(plain_model(answer.model, getattr(torch, answer.dtype)), answer.prompt, answer.tokens)
    how = {name: getattr(answer, name) for name in ("temperature", "top_p", "top_k", "seed")}
    return reaudit(logits, answer.tokens, len(answer.prompt), **how)


def tampered(answer: Answer, at: int, token: int) -> Answer:
    return replace(answer, tokens=(*answer.tokens[:at], token, *answer.tokens[at + 1 :]))


def half(model: str) -> Runtime:
    return load(dtype="bfloat16", native=False) if model == "sample" else _tiny(torch.bfloat16)


def _tiny(dtype: torch.dtype) -> Runtime:
    return _runtime(make_llama(1, layers=3).to(dtype))


def _runtime(model) -> Runtime:
    """Half precision is computed by torch's operations, which round to it."""
    made = wrap if model.dtype == torch.float32 else families.as_on_a_gpu
    return Runtime.measured(made(model, "tiny-target"), make_tokenizer())


@pytest.fixture(scope="module")
def halves():
    return cache(half)


# -- against the independent one --------------------------------------------------------------------


@pytest.mark.skipif(bool(unavailable()), reason=f"no native code here: {unavailable()}")
@pytest.mark.parametrize("kw", [*SAMPLINGS, {"law": "rejection", "temperature": 0.9, "seed": 4}], ids=str)
def test_what_native_code_wrote_is_its_own_to_the_last_bit(sample_eight_bits, kw):
    """Products of 8-bit inputs are so coarse that the plain module calls the second choice as good."""
    runtime = sample_eight_bits
    answer = write(runtime, **kw)
    found = runtime.audit(answer)
    assert found.exact and found.verdict != "BUG"
    before = list(runtime.target.tokens)
    for at in range(0, len(answer.tokens), 4):
        second = second_choice(runtime, answer, at)
        seen = runtime.audit(tampered(answer, at, second))
        assert (seen.verdict, seen.exact) == ("BUG", False) and seen.at <= at, at
        other = runtime.audit(replace(tampered(answer, at, second), computed_by="another machine"))
        assert other.exact is None
    assert runtime.target.tokens == before, "its cache is as it was"


@pytest.mark.skipif(bool(unavailable()), reason=f"no native code here: {unavailable()}")
def test_steps_of_8_bits_that_reading_again_does_not_show_are_no_bug(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    runtime = load(str(Tiny("qwen2", "Q8_0", seed=3).write(tmp_path / "m.gguf")), head="none")
    for seed in (5, 19):
        found = runtime.audit(write(runtime, prompt=(("user", "abc"),), new=40, temperature=0.7, seed=seed))
        assert found.exact and found.verdict in ("tie", "identical")


def test_what_a_lossy_law_changes_is_no_fault_of_the_code(sample_eight_bits):
    answer = write(sample_eight_bits, law="typical", temperature=0.9, seed=2)
    found = sample_eight_bits.audit(answer)
    assert (found.verdict, found.exact) == ("lossy", None)


def second_choice(runtime: Runtime, answer: Answer, at: int) -> int:
    """Of the model itself, without noise; where that is the answer's token, the third one."""
    with runtime.target.aside():
        logits = runtime.target.extend([*answer.prompt, *answer.tokens[:at]])
    return next(token for token in logits.topk(3).indices[1:].tolist() if token != answer.tokens[at])


@pytest.fixture(scope="module")
def sample_eight_bits():
    return load("sample", quantize="int4")


@pytest.mark.parametrize("new", [1, 2, 8])
@pytest.mark.parametrize("kw", [{}, {"law": "rejection", "temperature": 0.8}], ids=str)
def test_the_audit_of_a_short_answer_can_be_written(sample, kw, new):
    found = sample.audit(write(sample, prompt=(("user", "Hi"),), new=new, **kw))
    assert found.checked <= new and encoding.encode(found)
    assert {type(found.tolerance), type(found.noise), *map(type, found.gaps)} == {float}


def test_an_answer_is_audited_by_the_folder_that_its_trace_names(sample_eight_bits):
    answer = write(sample_eight_bits, new=4)
    saved = replace(answer, model=model_label(answer.model))
    assert saved.model != answer.model and sample_eight_bits.audit(saved).checked == 4
    with pytest.raises(UsageProblem, match="written by models/other"):
        sample_eight_bits.audit(replace(saved, model="models/other"))


@pytest.mark.parametrize("kw", SAMPLINGS, ids=str)
@pytest.mark.parametrize("model", some(["tiny", "sample"], lambda model: model == "tiny"))
def test_it_finds_what_an_audit_of_plain_transformers_finds(model, kw, request):
    runtime = request.getfixturevalue(model)
    answer = write(runtime, **kw)
    wrong = replace(answer, tokens=tuple(reversed(answer.tokens)))
    for text, verdict in ((answer, "identical"), (wrong, "BUG")):
        found, expected = runtime.audit(text), again(text)
        assert found.verdict == verdict and found.checked == len(text.tokens)
        assert [c.token for c in found.choices] == [p.choice for p in expected]
        assert [c.prob for c in found.choices] == pytest.approx([p.prob for p in expected], abs=1e-4)
        assert [np.inf if lead is None else lead for lead in found.leads] == pytest.approx(
            [p.lead for p in expected], abs=1e-3)
        for token, gap, p in zip(text.tokens, found.gaps, expected):
            if p.allowed:
                assert gap == pytest.approx(p.gap, abs=1e-3) or (kw.get("top_p") and gap < p.gap), "an edge is nearer"
            assert (gap > 0) == (token != p.choice)
        first = next((i for i, (t, p) in enumerate(zip(text.tokens, expected)) if t != p.choice), None)
        assert found.at == first and found.differences == sum(
            t != p.choice for t, p in zip(text.tokens, expected))


@pytest.mark.parametrize(
    ("number", "engine", "options"),
    first_of_each([(n, *engine) for n, engine in enumerate(ENGINES)], ["autoregressive", *IDS]),
)
def test_every_engine_is_identical_on_the_shipped_pair(sample, number, engine, options):
    """Each with one way of sampling, in turn; what they write is the same (``test_lossless``)."""
    found = sample.audit(write(sample, engine, options, **SAMPLINGS[number % len(SAMPLINGS)]))
    assert (found.words, found.at, found.gap, found.ties) == ("identical", None, None, 0)
    assert 0 < found.noise < found.tolerance < 1e-3


@pytest.mark.parametrize("kw", SAMPLINGS, ids=str)
@pytest.mark.parametrize("model", some(["tiny", "sample"], lambda model: model == "tiny"))
def test_half_precision_has_ties_at_most_and_the_independent_audit_agrees(model, kw, halves):
    runtime = halves(model)
    answer = write(runtime, "autoregressive", prompt=TURNS["code"], **kw)
    found, expected = runtime.audit(answer), again(answer)
    assert found.verdict in ("identical", "tie") and 1e-3 < found.tolerance < 2
    for position, (gap, p) in enumerate(zip(found.gaps, expected)):
        assert gap <= found.tolerance and (not p.allowed or p.gap <= found.tolerance), position
        same = found.choices[position].token == p.choice
        at_an_edge = "top_p" in kw  # a token that one of the filters takes and the other does not moves the choice far
        assert same or at_an_edge or p.lead <= found.tolerance, "the two audits are rounded apart, too"


# -- planted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kw", SAMPLINGS[:2], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", some(["tiny", "sample"], lambda model: model == "tiny"))
def test_a_token_with_a_real_gap_is_a_bug_at_its_place(model, dtype, kw, request, halves):
    runtime = request.getfixturevalue(model) if dtype == "float32" else halves(model)
    answer = write(runtime, **kw)
    clean, expected = runtime.audit(answer), again(answer)
    planted = [i for i, p in enumerate(expected) if 2 * clean.tolerance < p.lead < 20]
    assert len(planted) >= 3
    for at in planted[1::2][:2]:
        text = tampered(answer, at, expected[at].second)
        found = runtime.audit(replace(text, tokens=text.tokens[: at + 1]))
        assert (found.words, found.gap) == (f"BUG at {at + 1}", pytest.approx(expected[at].lead, rel=0.3, abs=0.2))
        assert found.choices[at].token == answer.tokens[at]
    assert runtime.audit(text).at == at, "what follows was written after another token, and may differ too"


def twins(dtype: torch.dtype, scale: float, at: int) -> tuple[Runtime, Answer, int]:
    """A model in which a token that it never says has the output row of the one it says at a place, scaled; and its
    answer up to there, as of code that sums in another order."""
    answer = replace(write(_tiny(dtype), "autoregressive", new=at + 1), computed_by="")
    said = answer.tokens[at]
    twin = next(t for t in range(said + 1, 260) if t not in (*answer.tokens, *answer.prompt))
    model = make_llama(1, layers=3).to(dtype)
    with torch.no_grad():
        model.lm_head.weight[twin] = model.lm_head.weight[said] * scale
    return _runtime(model), answer, twin


@pytest.mark.parametrize(
    ("dtype", "scale", "verdict"),
    [
        (torch.float32, 1.0, "tie"), (torch.float32, 1 - 2**-23, "tie"), (torch.float32, 0.99, "BUG"),
        (torch.bfloat16, 1.0, "tie"), (torch.bfloat16, 1 - 2**-8, "tie"), (torch.bfloat16, 0.75, "BUG"),
    ],
    ids=str,
)
def test_planted_twins_are_told_apart_where_the_dtype_can(dtype, scale, verdict):
    at = 7
    runtime, answer, twin = twins(dtype, scale, at)
    found = runtime.audit(tampered(answer, at, twin))
    assert (found.verdict, found.at, found.differences) == (verdict, at, 1)
    assert found.ties == (verdict == "tie") and found.choices[at].token == answer.tokens[at]
    assert (found.gap <= found.tolerance) == (verdict == "tie")


def test_a_bug_wins_over_an_earlier_tie_and_is_found_behind_it():
    runtime, answer, twin = twins(torch.float32, 1.0, 7)
    text = tampered(answer, 7, twin)
    for _ in range(5):  # the text goes on from the tied token
        choice = runtime.audit(replace(text, tokens=(*text.tokens, 0))).choices[-1].token
        text = replace(text, tokens=(*text.tokens, choice))
    found = runtime.audit(text)
    assert (found.verdict, found.at, found.differences) == ("tie", 7, 1)
    found = runtime.audit(tampered(text, 10, (text.tokens[10] + 1) % 256))
    assert (found.words, found.ties, found.choices[10].token) == ("BUG at 11", 1, text.tokens[10])


@pytest.mark.parametrize("family", some(
    ["gemma2", "gemma3", "gpt2", "mistral with window", "phi3 with window", "qwen3"], lambda f: f == "gemma3"
))
def test_any_family(family):
    runtime = Runtime.measured(wrap(families.make(*families.NAMED[family]), family), make_tokenizer())
    for kw in SAMPLINGS[::3]:
        answer = write(runtime, new=30, **kw)
        assert runtime.audit(answer).verdict == "identical"
        assert runtime.audit(tampered(answer, 9, (answer.tokens[9] + 1) % 256)).words == "BUG at 10"


def test_a_second_reading_that_is_wrong_hides_no_bug(monkeypatch, tiny):
    """transformers' cache drops rows of a model whose configuration names a window that it does not have; and whatever
    else may be wrong with it, what it costs is no rounding."""
    model = families.make(*families.CHAINS["llama that names a window and has none"])
    named = Runtime.measured(wrap(model, "named"), make_tokenizer())
    assert named.audit(write(named, prompt=(("user", "abc " * 20),))).tolerance < 1e-3
    answer = write(tiny)
    monkeypatch.setattr("engines.audit.check.read_again",
                        lambda *args: ((first, 100 * t[:, ::-1]) for first, t in plain.read_again(*args)))
    found = tiny.audit(tampered(answer, 9, (answer.tokens[9] + 1) % 256))
    assert found.noise > 100 and found.tolerance < 0.1 and found.words == "BUG at 10"


# -- sampling, and laws that are lossy by design ----------------------------------------------------------


@pytest.mark.parametrize("kw", SAMPLINGS[1:], ids=str)
@pytest.mark.parametrize("dtype", some(["float32", "bfloat16"], lambda dtype: dtype == "float32"))
def test_dice_are_consistent_and_what_cannot_be_is_a_bug(kw, dtype, sample, halves):
    runtime = sample if dtype == "float32" else halves("sample")
    answer = write(runtime, law="rejection", **kw)
    found = runtime.audit(answer)
    assert (found.words, found.at, set(found.leads)) == ("consistent", None, {None})
    at = next(i for i, p in enumerate(answer.probs) if 0.2 < p < 0.9)
    for factor, verdict in ((0.1, "BUG"), (1 + 1e-6, "consistent")):
        probs = (*answer.probs[:at], answer.probs[at] * factor, *answer.probs[at + 1 :])
        bent = runtime.audit(replace(answer, probs=probs))
        assert bent.verdict == verdict and (verdict == "consistent" or bent.at == at)
    if len(kw) > 2:  # with filters
        unlikely = int(plain_logits(plain_model(answer.model, getattr(torch, dtype)), answer.prompt, answer.tokens)[
            at].argmin())
        ruled_out = tampered(replace(answer, probs=()), at, unlikely)
        assert runtime.audit(replace(ruled_out, tokens=ruled_out.tokens[: at + 1])).words == f"BUG at {at + 1}"


def test_one_token_that_filters_leave_is_a_choice_and_has_no_lead(tiny):
    for law, drawn in (("exact", False), ("rejection", True)):
        request = Request((("user", "x"),), max_new_tokens=6, temperature=0.8, top_k=1, law=law)
        events = [*tiny.run(request)]
        found = tiny.audit(Answer.from_events(events))
        assert (found.drawn, set(found.leads)) == (drawn, {None})
        assert [from_json(to_json(event)) for event in events] == events, "no gap is infinite"


@pytest.mark.parametrize("dtype", some([torch.float16, torch.bfloat16], lambda d: d == torch.bfloat16), ids=str)
def test_top_k_and_top_p_in_half_precision_are_no_bug_and_hide_none(dtype):
    for seed in range(3):
        model = families.make(*families.NAMED["llama"], dtype=dtype, seed=seed)
        runtime = _runtime(model)
        for law in ("exact", "rejection"):
            answer = write(runtime, new=60, temperature=1.5, top_p=0.95, top_k=20, law=law, seed=seed)
            found = runtime.audit(answer)
            assert found.verdict in ("identical", "tie", "consistent"), (seed, law, found.words)
            at = len(answer.tokens) // 2
            context = torch.tensor([answer.prompt + answer.tokens[:at]])
            with torch.inference_mode():
                lost = int(model(context).logits[0, -1].argsort(descending=True)[40])  # far behind the edge
            planted = replace(answer, tokens=(*answer.tokens[:at], lost), probs=())
            assert runtime.audit(planted).words == f"BUG at {at + 1}"


def test_rejection_at_temperature_zero_is_checked_token_by_token(tiny):
    answer = write(tiny, "draft", law="rejection")
    assert tiny.audit(answer).verdict == "identical"
    assert tiny.audit(tampered(answer, 4, (answer.tokens[4] + 1) % 256)).words == "BUG at 5"


def test_a_chain_judged_as_a_block_is_consistent(tiny):
    answer = write(tiny, "draft", law="block", temperature=0.8, seed=3)
    assert answer.lossless and tiny.audit(answer).verdict == "consistent"
    assert tiny.audit(write(tiny, "draft", law="block")).verdict == "identical"


def test_what_is_lossy_by_design_is_called_so_and_nothing_is_at_temperature_0(tiny):
    for law in ("typical", "redraw"):
        answer = write(tiny, "draft", law=law)
        assert answer.lossless and tiny.audit(answer).verdict == "identical"
        assert tiny.audit(tampered(answer, 4, (answer.tokens[4] + 1) % 256)).verdict == "BUG"
        drawn = write(tiny, "draft", law=law, temperature=1.2, top_k=4)
        found = tiny.audit(drawn)
        assert not drawn.lossless and (found.words, found.differences) == ("lossy", 0)
        bent = tiny.audit(tampered(drawn, 4, (drawn.tokens[4] + 1) % 256))
        assert bent.words == "lossy" and bent.at is not None and bent.differences >= 1


@pytest.mark.parametrize("law", ["typical", "redraw"])
def test_without_drafts_no_law_is_lossy(tiny, law):
    greedy, drawn = (write(tiny, "autoregressive", law=law, temperature=heat, seed=3) for heat in (0, 1.2))
    assert greedy.lossless and tiny.audit(greedy).verdict == "identical"
    assert drawn.lossless and tiny.audit(drawn).verdict == "consistent"
    bent = tiny.audit(tampered(greedy, 4, (greedy.tokens[4] + 1) % 256))
    assert bent.words == "BUG at 5"


# -- texts of every length ----------------------------------------------------------------------------


def test_one_token_the_full_context_and_end_tokens(tiny):
    full = write(tiny, new=1000)
    assert len(full.prompt) + len(full.tokens) == tiny.target.context_limit
    assert tiny.audit(full).verdict == "identical"
    assert tiny.audit(replace(full, tokens=full.tokens[:1])).checked == 1
    found = tiny.audit(Answer("tiny-target", "float32", (5,), (int(tiny.audit(
        Answer("tiny-target", "float32", (5,), (0,))).choices[0].token),)))
    assert found.verdict == "identical", "a prompt of one token"


def test_an_answer_that_ends_itself(sample):
    answer = write(sample, "draft", prompt=TURNS["code"], new=200)
    assert answer.tokens[-1] in sample.end_tokens and sample.audit(answer).verdict == "identical"


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_texts_whose_logits_need_several_forwards(tiny, monkeypatch, rows):
    answer = write(tiny, new=150, temperature=0.8)
    whole = tiny.audit(answer)
    monkeypatch.setattr(plain, "LOGITS_BYTES", rows * tiny.target.vocab_size * 8)
    assert plain.spans(tiny.target, 150)[0] == min(rows, 150)
    parts = tiny.audit(answer)
    assert parts.verdict == whole.verdict == "identical" and parts.choices[3].token == whole.choices[3].token
    assert parts.leads == pytest.approx(whole.leads, abs=1e-3)


@given(st.integers(1, 3000))
def test_samples_are_spread_over_all_rows_and_few(rows):
    found = plain.samples(rows)
    read = [row for start, sizes in found for row in range(start, start + sum(sizes))]
    assert read == sorted(set(read)) and read[0] == 0 and read[-1] == rows - 1
    assert len(read) >= min(rows, 64) and sum(len(sizes) for _, sizes in found) <= 32
    assert min(min(sizes) for _, sizes in found) > 0


def test_a_text_is_read_once(tiny):
    """Whatever its length: the noise is measured on rows that go on from what was read."""
    answer, fed = write(tiny, prompt=(("user", "abc " * 30),), new=80), []
    embeddings = tiny.target.model.get_input_embeddings()
    with embeddings.register_forward_pre_hook(lambda _, given: fed.append(given[0].numel())):
        assert tiny.audit(answer).verdict == "identical"
    assert fed[0] == len(answer.prompt) + len(answer.tokens) - 1 and max(fed[1:]) == 8 and sum(fed[1:]) <= 120


def test_what_is_not_this_models_answer_is_refused(tiny):
    answer = write(tiny, new=3)
    for wrong, words in (
        (replace(answer, tokens=()), "empty"), (replace(answer, model="other"), "written by other"),
        (replace(answer, dtype="bfloat16"), "bfloat16"), (replace(answer, tokens=(999,)), "vocabulary"),
        (replace(answer, tokens=(1,) * 300), "the context holds 256"),
    ):
        with pytest.raises(UsageProblem) as error:
            tiny.audit(wrong)
        assert words in error.value.message + error.value.hint
    with pytest.raises(UsageProblem):
        Answer.from_events([])
    events = [*tiny.run(Request(TURNS["code"], max_new_tokens=8))]
    for place in range(1, len(events) - 1):
        with pytest.raises(UsageProblem, match="events of this run are missing"):
            Answer.from_events(events[:place] + events[place + 1:])
    assert len(Answer.from_events(events[:-2]).tokens) < 8, "of a run that was broken off"


def test_a_model_without_numbers_fails_in_a_sentence():
    broken = _tiny(torch.float32)
    answer = write(broken, new=3)
    with torch.no_grad():
        broken.target.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(RunFailed, match="not numbers"):
        broken.audit(answer)


class Plainest(LlamaForCausalLM):
    """A forward of a model's own code, without ``logits_to_keep`` and ``position_ids``."""

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, use_cache=None):
        return super().forward(input_ids, attention_mask, past_key_values=past_key_values, use_cache=use_cache)


class Swallowing(Plainest):
    """Takes any argument, and looks at none."""

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, use_cache=None, **ignored):
        return super().forward(input_ids, attention_mask, past_key_values, use_cache)


@pytest.mark.parametrize("kind", [Plainest, Swallowing])
def test_models_whose_forward_cuts_no_logits_and_takes_no_positions(kind, monkeypatch):
    model = make_llama(1)
    model.__class__ = kind
    target = wrap(model, "own")
    assert not target.trees
    runtime = Runtime.measured(target, make_tokenizer())
    for kw in SAMPLINGS[::3]:
        answer = write(runtime, **kw)
        assert runtime.audit(answer).verdict == "identical"
        assert runtime.audit(tampered(answer, 9, (answer.tokens[9] + 1) % 256)).words == "BUG at 10"
    monkeypatch.setattr(plain, "LOGITS_BYTES", 7 * target.vocab_size * 8)
    assert runtime.audit(answer).verdict == "identical", "in several forwards"


@pytest.mark.parametrize("error", [TypeError("no such keyword"), KeyError("layer"), NotImplementedError(), OSError(5)])
def test_whatever_breaks_an_audit_is_told_in_a_sentence(error, tiny, monkeypatch):
    answer = write(tiny, new=3)
    forward = tiny.target.model.forward

    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(tiny.target.model, "forward", broken)
    with pytest.raises(RunFailed, match="the audit failed") as told:
        tiny.audit(answer)
    assert told.value.hint and told.value.__cause__ is error
    monkeypatch.setattr(tiny.target.model, "forward", forward)
    assert tiny.audit(answer).verdict == "identical"


def test_answers_survive_json(tiny):

    answer = write(tiny, temperature=0.5, law="rejection", new=5)
    assert encoding.build(Answer, encoding.plain(answer)) == answer
    assert Answer.from_events([Started, *tiny.run(Request(TURNS["code"], max_new_tokens=2))]).law == "exact"


# -- beside the conversation --------------------------------------------------------------------------


def test_the_next_turn_reuses_the_cache_as_if_nothing_had_been_audited(tiny):
    def second_turn(audited: bool):
        tiny.forget()
        *events, finished = tiny.run(Request((("user", "abc"),), max_new_tokens=20))
        rows = [layer.keys.clone() for layer in tiny.target.cache.layers]
        if audited:
            assert tiny.audit(Answer.from_events(events)).verdict == "identical"
            assert all(map(torch.equal, rows, [layer.keys for layer in tiny.target.cache.layers]))
        turns = (("user", "abc"), ("assistant", finished.text), ("user", "more"))
        events = list(tiny.run(Request(turns, max_new_tokens=20)))
        return next(e for e in events if isinstance(e, Prefilled)).reused, events[-1].tokens

    assert second_turn(True) == second_turn(False)
    assert second_turn(True)[0] > 5


def test_it_stops_at_any_layer_and_leaves_the_model_as_it_was(tiny):
    answer = write(tiny)
    clean, asked = tiny.audit(answer), []
    tiny.audit(answer, cancelled=lambda: bool(asked.append(0)))
    assert len(asked) > 20
    for stop in (1, 2, 3, 5, len(asked) // 2, len(asked)):
        count = iter(range(1, 10**6))
        assert tiny.audit(answer, cancelled=lambda stop=stop, count=count: next(count) == stop) is None
    layers, *_ = layer_lists(tiny.target.model)
    assert len(layers) == 3 and not any(layer._forward_pre_hooks for layer in layers)
    assert replace(tiny.audit(answer), seconds=0) == replace(clean, seconds=0)


def test_progress_rises_to_the_end(tiny, monkeypatch):
    monkeypatch.setattr(plain, "perf_counter", count().__next__)  # a second passes each time it is looked at
    told: list[float] = []
    tiny.audit(write(tiny), progress=told.append)
    assert told == sorted(told) and told[0] < 0.3 and told[-1] == pytest.approx(1)


# -- how far is far -----------------------------------------------------------------------------------


@pytest.mark.thorough
@settings(max_examples=80)
@given(st.integers(0, 10**6), st.sampled_from([
    (1.0, 0, 0), (1.0, 3, 0), (0.7, 0, 0), (0.9, 5, 0), (0.999, 0, 0), (1.0, 0, 0.2), (0.9, 6, 0.1), (1.0, 5, 0.05)]))
def test_less_noise_than_the_gap_explains_nothing(seed, filters):
    """Whatever moves scores by less than the gap (a difference of two by less), the token stays unchosen, ruled out,
    or otherwise rated."""
    rng = np.random.default_rng(seed)
    sampling, logits = Sampling(1.0, *filters), rng.normal(0, 2, 12).astype(np.float32)
    gumbel = rng.gumbel(size=12).astype(np.float32)

    def view(values):
        row = sampling.row(values.astype(np.float32))
        return row, int((row + gumbel).argmax()), np.exp(row - row.max()) / np.exp(row - row.max()).sum()

    row, choice, probs = view(logits)
    near = ScoredRow(logits, np.isfinite(row), sampling)
    claimed = np.minimum(0.9, 1.7 * probs + 0.01)
    chosen = np.array([near.to_choose(token, gumbel) for token in range(12)])
    kept = np.array([near.to_keep(token) for token in range(12)])
    rated = np.array([near.to_rate(token, float(claimed[token])) for token in range(12)])
    assert chosen.argmin() == choice and chosen[choice] == 0 and ((kept == 0) == np.isfinite(row)).all()
    if filters == (1.0, 0, 0):
        assert chosen == pytest.approx((row + gumbel).max() - (row + gumbel), abs=1e-5)
    for token in range(12):
        for _ in range(8):
            noise = 0.95 * (rng.choice([-0.5, 0.5], 12) if rng.random() < 0.7 else rng.uniform(-0.5, 0.5, 12))
            assert chosen[token] < 1e-5 or view(logits + chosen[token] * noise)[1] != token
            assert kept[token] < 1e-5 or not np.isfinite(view(logits + kept[token] * noise)[0][token])
            rating = view(logits + rated[token] * noise)[2][token]
            assert rated[token] < 1e-5 or abs(rating - claimed[token]) > 1e-7


GRID = np.float32(0.25)
EVERY_NOISE = GRID * np.stack(np.meshgrid(*[np.arange(4, dtype=np.float32)] * 6), axis=-1).reshape(-1, 6)
SPREAD = np.ptp(EVERY_NOISE, axis=1)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6), st.sampled_from([0, 2, 3, 4]), st.sampled_from([0.5, 0.7, 0.8, 0.9, 0.95, 1.0]),
    st.booleans(), st.sampled_from([0, 0, 0.1, 0.3]),
)
def test_the_gap_is_the_least_noise_that_any_search_finds(seed, top_k, top_p, tied, min_p):
    """All noise of four steps on six logits, tied or not: none gets there with less than the gap. Where no sort of ties
    decides, some makes the filters keep a token with about twice the gap: what is far stays far."""
    rng, sampling = np.random.default_rng(seed), Sampling(1.0, top_p, top_k, min_p)
    logits = rng.normal(0, 1.2, 6).astype(np.float32)
    logits = GRID * np.round(logits / GRID) if tied else logits
    gumbel = rng.gumbel(size=6).astype(np.float32)
    rows = sampling.warp(torch.from_numpy(logits + EVERY_NOISE)).numpy()
    chosen = (rows + gumbel).argmax(1)
    row = sampling.row(logits)
    near = ScoredRow(logits, np.isfinite(row), sampling)
    for token in range(6):
        kept = np.isfinite(rows[:, token])
        least, gap = SPREAD[kept].min(initial=np.inf), near.to_keep(token)
        assert gap <= 1.03 * least + 1e-6
        if not tied and (not top_k or top_p == 1) and gap <= 0.12:  # the noise goes to 0.75
            assert least <= 2 * gap + 2 * GRID
        assert near.to_choose(token, gumbel) <= 1.03 * SPREAD[chosen == token].min(initial=np.inf) + 1e-6
        for other in rng.permutation(np.flatnonzero(kept))[:5]:
            gap = near.to_rate(token, float(sampling.probs(rows[other])[token]))
            assert gap <= 1.03 * SPREAD[other] + 1e-5


@pytest.mark.parametrize(("top_k", "top_p"), [(20, 0.95), (20, 1.0), (0, 0.9), (8, 0.8), (50, 0.99)], ids=str)
@pytest.mark.parametrize("dtype", some([torch.float16, torch.bfloat16], lambda d: d == torch.bfloat16), ids=str)
def test_what_half_precision_rounds_is_never_more_than_it_rounded(dtype, top_k, top_p):
    """Two readings of one row, each rounded: as the k-th and the next tie in one and not in the other, top-k keeps
    another number, and the cut of top-p falls elsewhere."""
    sampling, rng, edges = Sampling(1.5, top_p, top_k), np.random.default_rng(0), 0
    for _ in range(150):
        exact = torch.from_numpy(rng.normal(0, 2, (1, 260)).astype(np.float32)) + torch.zeros(2, 260)
        exact[1] += torch.from_numpy(rng.normal(0, 4 * torch.finfo(dtype).eps, 260).astype(np.float32))
        ran, read = exact.to(dtype).float().numpy()
        theirs, mine = sampling.row(ran), sampling.row(read)
        moved = float(np.ptp((ran - read) / 1.5))
        near = ScoredRow(read / np.float32(1.5), np.isfinite(mine), sampling)
        gumbel = rng.gumbel(size=260).astype(np.float32)
        edges += (np.isfinite(theirs) != np.isfinite(mine)).any()
        for token in rng.permutation(np.flatnonzero(np.isfinite(theirs)))[:8]:
            assert near.to_keep(token) <= 1.03 * moved
            assert near.to_rate(token, float(sampling.probs(theirs)[token])) <= 1.03 * moved + 1e-5
        assert near.to_choose(int((theirs + gumbel).argmax()), gumbel) <= 1.03 * moved
    assert edges > 3


def test_a_filters_edge_that_is_near_explains_a_token_it_rules_out():
    logits = np.log(np.array([0.5, 0.3, 0.1, 0.06, 0.04], np.float32))
    for top_p, token, gap in ((0.7999, 2, 1e-3), (0.7, 2, 1.0)):
        sampling = Sampling(1.0, top_p, 0)
        row = sampling.row(logits)
        assert not np.isfinite(row[token])
        assert 0 < ScoredRow(logits, np.isfinite(row), sampling).to_keep(token) <= gap
    assert ScoredRow(logits, np.array([1, 1, 0, 0, 0], bool), Sampling(1.0, 1.0, 2)).to_keep(2) == pytest.approx(
        np.log(3), rel=0.05)


def test_a_token_that_would_repeat_an_ngram_is_ruled_out_beside_a_filter_too():
    """The audit failed with an IndexError on such a row."""
    logits, sampling = np.array([3, 2, 1, 0, -np.inf], np.float32), Sampling(1.0, 0.7)
    near = ScoredRow(logits, np.isfinite(sampling.row(logits)), sampling)
    assert near.to_keep(4) == near.to_choose(4, None) == 1e6
    assert 0 < near.to_keep(2) <= near.to_choose(2, None) and 0 < near.to_rate(2, 0.2) < 1
