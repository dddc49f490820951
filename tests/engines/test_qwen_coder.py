"""qwen-coder, the pair on which drafting pays: every engine and every lossless law writes what the target writes alone.

All lanes are in one test of each tier: the processes of a test run would each load the pair, which takes its time and
three gigabytes.
"""

from __future__ import annotations

import faulthandler
import functools

import pytest

from engines import Request, measure
from engines.cost.curve import CostCurve
from tests.conftest import add_datastores

LANES = (
    ("draft", {}), ("draft", {"shape": "tree"}), ("pld", {}), ("suffix", {}), ("recycling", {}), ("rest", {"n_min": 1}),
    ("dresd", {}), ("rasd", {}), ("hybrid", {"n_min": 1}), ("admg", {}), ("draft-verify", {"layers": "a3-26,m9-20"}),
)
NO_DATASTORE = tuple(lane for lane in LANES if lane[0] in ("draft", "pld", "recycling", "draft-verify"))
LAWS = ((0.0, "exact"), (0.8, "exact"), (0.0, "rejection"))
WRITE = "Write a Python function that adds two numbers, then one that multiplies two numbers."
PROMPTS = (
    WRITE,
    "Explain in a few sentences what a hash table is, and when looking up a key takes long.",
    "Rename the variable x to total everywhere and print the whole function:\n\n"
    "def add_up(numbers):\n    x = 0\n    for number in numbers:\n        x += number\n    return x\n",
)


def answer(runtime, engine, options, prompt, new, temperature, law):
    turn = (("user", prompt),)
    events = list(runtime.run(Request(turn, engine, options, max_new_tokens=new, temperature=temperature, law=law)))
    return events[-1], measure(events)


@pytest.fixture
def drafting_pays(qwen_coder, monkeypatch):
    """The pair; no clock decides whether anything is drafted."""
    cheap = qwen_coder.prices._replace(target=CostCurve(((1, 1.0), (64, 6.0))))
    monkeypatch.setattr(qwen_coder, "prices", cheap)
    return qwen_coder


def check(runtime, lanes, laws, prompts, new) -> dict[str, int]:
    """Raises AssertionError for a token that differs. Returns how many drafted tokens each engine had accepted."""
    accepted: dict[str, int] = {}
    for prompt in prompts:
        for temperature, law in laws:
            alone = functools.partial(answer, runtime, prompt=prompt, new=new, temperature=temperature)
            wanted = alone("autoregressive", {}, law="exact")[0].tokens
            for engine, options in lanes:
                found, metrics = alone(engine, options, law=law)
                assert found.tokens == wanted, f"{engine} {options} with {law} at {temperature}: {prompt[:20]}"
                accepted[engine] = accepted.get(engine, 0) + metrics.accepted
    return accepted


@pytest.mark.timeout(600)
def test_engines_of_each_kind_write_what_the_target_writes_alone(drafting_pays):
    accepted = check(drafting_pays, NO_DATASTORE, LAWS[:1], PROMPTS[2:], new=8)
    check(drafting_pays, LANES[:1], LAWS[1:], PROMPTS[2:], new=6)
    assert accepted["draft"], "its draft model is right at times"
    ready = drafting_pays.ready
    assert (ready.parameters, ready.draft_parameters) == (1_543_714_304, 494_032_768), "as people count them"


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_every_engine_and_law_writes_the_same_hundred_tokens(drafting_pays):
    faulthandler.cancel_dump_traceback_later()  # beside other tests it takes longer than native code that hangs
    add_datastores("qwen-coder-texts", drafting_pays)
    accepted = check(drafting_pays, LANES, LAWS, PROMPTS, new=100)
    assert accepted["draft"] > accepted["pld"] > 0, "what stands in the prompt is copied at times"
