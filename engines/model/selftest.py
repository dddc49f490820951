"""Before a model is trusted with drafts: do rows verified together give the logits that it gives without a cache?

The reference is the model itself, in one plain forward over the texts, so that nothing of ours is in it. Windows are
made a few positions small meanwhile, for the model and for our masks alike: else no short test could see one. That a
model has passed is kept: the same weights, computed by the same code on this machine, are tested once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from engines.errors import first_line
from engines.libraries import hf, versions
from engines.machine import keep, kept, measured_file
from engines.model.causal_model import CausalModel
from engines.model.masks import FULL, SIZES, size_of

_PROMPT = 6  # tokens before the drafts
_PARENTS = (-1, 0, 0, 1, 2, 4, 5)  # two branches under one root, the deeper one second: columns are no positions
_SHALLOW, _DEEP = (0, 1, 3), (0, 2, 4, 5, 6)
_KEPT = 4  # rows of the deep branch that are kept, then another token follows
_WINDOW = 4  # positions: shorter than the deep branch
_TOLERANCE = 1e-3  # of the spread of the logits: what rounding explains
_HALF_TOLERANCE = 0.1  # two right kernels for attention differ by 0.05 after 32 layers of random weights, width 4,096
_ONE_FORWARD, _HALF_ONE_FORWARD = 0.1, 0.25  # of these, between rows of one forward: a processor without bfloat16 of
# its own computes the last rows of a product in another way than the others

_STATE = "it keeps a running state of the text, which cannot be taken back when a draft is rejected"
_INDEX = "its attention keeps an index beside keys and values, which the cache here has no place for"
_NO_CACHE = "it keeps no keys and values of past tokens, so every round would have to read the whole text again"
_PASSED = "passed"  # of a model, in a file
_Spread = tuple[torch.Tensor, torch.Tensor]
_STAGES = ("past tokens come from the cache", "several tokens are fed at once", "a rejected draft is taken back")


def unfit(kind: type, config) -> str | None:
    """Why no model of this class and configuration can be decoded with, as far as these tell: no weights are needed."""
    state, index = hf.state_and_index(kind, hf.text_config(config))
    if state or index:
        return _STATE if state else _INDEX
    return None if hf.cache_argument(hf.arguments(kind)) else _NO_CACHE


def test_once(model: CausalModel) -> str | None:
    """``selftest``, or None where this model has passed all of it before.

    Kept are models of transformers' own classes on the CPU: code that came with a model may change while its weights
    do not, and on a GPU the test also records its first graphs.
    """
    if model.device.type != "cpu" or not type(model.model).__module__.startswith("transformers."):
        return selftest(model)
    file = _file(model)
    if kept(file) == _PASSED:
        return None
    reason = selftest(model)
    if reason is None and model.trees:
        keep(file, _PASSED)
    return reason


def selftest(model: CausalModel) -> str | None:
    """Compare drafts verified after cached rows with plain forwards, on a few tokens; leaves the cache empty.

    Sets ``model.masked`` False where only branching fails. Four forwards, three more where it does. Returns None if the
    model can be decoded with, else the reason in words.
    """
    tokens = _tokens(model)
    with _narrow(model):
        expected = _plain(model, tokens)
        if expected.isnan().any() or expected.isposinf().any():
            return "its logits are not numbers: " + (
                "the dtype is too narrow for it (float32 is not)" if model.rounding.itemsize < 4 else
                "its weights or its configuration are damaged")
        spread = _spread(expected)
        shared = _errors(expected[:1, : _PROMPT + 1], expected[1:2, : _PROMPT + 1], spread)
        if not _same(model, [shared / (_HALF_ONE_FORWARD if model.rounding.itemsize < 4 else _ONE_FORWARD)]):
            return "its tokens see the tokens after them: it is an encoder, not a causal language model"
        try:
            model.masked = model.masked and _same(model, _trial(model, tokens, expected, spread, range(len(_PARENTS))))
        except Exception:  # whatever a family raises when it is given masks
            model.masked = False
        return None if model.masked else _chains(model, tokens, expected, spread)


def _chains(model: CausalModel, tokens: list[int], expected: torch.Tensor, spread: _Spread) -> str | None:
    """Why not even chains can be verified, None where they can; ``expected`` are logits [3, length, vocabulary]."""
    try:
        errors = _trial(model, tokens, expected, spread, _DEEP)
    except Exception as error:
        return f"its forward fails after a cache of keys and values: {first_line(error)}"
    if _same(model, errors):
        return None
    worst, stage = max((float(rows.max().nan_to_num(torch.inf)), stage) for rows, stage in zip(errors, _STAGES))
    return f"its logits change by {worst:.2g} of their spread when {stage}"


def _trial(
    model: CausalModel, tokens: list[int], expected: torch.Tensor, spread: _Spread, rows: Sequence[int]
) -> list[torch.Tensor]:
    """The errors [n] of each step: the prompt, these rows of the tree at once, another token after a part of the deep
    branch was kept. ``expected``: logits [3, length, vocabulary]."""
    model.truncate(0)
    cached = model.extend(tokens[:_PROMPT])
    at = {row: i for i, row in enumerate(rows)}
    together = model.forward([tokens[_PROMPT + row] for row in rows], [at.get(_PARENTS[row], -1) for row in rows])
    model.keep([at[row] for row in _DEEP[:_KEPT]])
    after = model.forward(tokens[-1:], [-1])
    branches = [(text, path) for text, path in enumerate((_SHALLOW, _DEEP)) if set(path) <= set(at)]
    pairs = [(at[row], text, _PROMPT + depth) for text, path in branches for depth, row in enumerate(path)]
    ours, texts, places = (list(column) for column in zip(*pairs))
    return [
        _errors(cached[None], expected[1:2, _PROMPT - 1], spread),
        _errors(together[ours], expected[texts, places], spread),
        _errors(after, expected[2:, -1], spread),
    ]


@torch.inference_mode()
def _plain(model: CausalModel, tokens: list[int]) -> torch.Tensor:
    """Logits [3, length, vocabulary] of the two branches, and of what follows the kept rows, without a cache."""
    prompt, nodes, rest = tokens[:_PROMPT], tokens[_PROMPT:-1], tokens[-1:]
    shallow, deep = ([nodes[row] for row in path] for path in (_SHALLOW, _DEEP))
    texts = [prompt + shallow + 2 * rest, prompt + deep, prompt + deep[:_KEPT] + rest]
    return hf.ForwardCall(model.model)(torch.tensor(texts, device=model.device)).float()


def _tokens(model: CausalModel) -> list[int]:
    """Ids of the prompt, the tree's rows and one more, spread over the vocabulary. The padding token is among them: it
    ends the turns of many a conversation, and some families leave it out when they count positions."""
    step = max(1, model.vocab_size // 97)
    ids = [(7 + i * step) % model.vocab_size for i in range(_PROMPT + len(_PARENTS) + 1)]
    padding = getattr(hf.text_config(model.model.config), "pad_token_id", None)
    ids[1] = padding if type(padding) is int and 0 <= padding < model.vocab_size else ids[1]
    return ids


def _errors(logits: torch.Tensor, expected: torch.Tensor, spread: _Spread) -> torch.Tensor:
    """The root mean square difference of each row of logits [..., vocabulary], relative to ``spread``: [rows]."""
    used, deviation = spread
    rows = (logits.float() - expected).masked_fill_(~used, 0.0).square().sum(-1).div(used.sum()).sqrt().flatten()
    return rows / (deviation + 1e-9)


def _spread(logits: torch.Tensor) -> _Spread:
    """Of logits [..., vocabulary]: which ids are used [vocabulary], for some families bar ids by the lowest number; and
    the standard deviation of theirs."""
    used = (logits > -1e9).flatten(0, -2).all(0)
    return used, (logits if used.all() else logits[..., used]).std()


def _same(model: CausalModel, errors: list[torch.Tensor]) -> bool:
    """Whether rounding explains the errors [rows] of each step. All rows count together: in half precision a router of
    experts that falls the other way moves one of them far."""
    tolerance = _TOLERANCE if model.rounding in (torch.float32, torch.float64) else _HALF_TOLERANCE
    return bool(torch.cat(errors).square().mean().sqrt() <= tolerance)


def _windows(model: CausalModel) -> Iterator[tuple[object, str, int]]:
    """The configurations inside the model that name a window larger than the test's: which, its name, its size."""
    names = [SIZES[kind] for kind in model.spans or SIZES if kind != FULL]
    holders = [model.model, *model.model.modules()]
    configs = {id(c): c for m in holders if (c := getattr(m, "config", None)) is not None}
    for config in list(configs.values()):
        text = hf.text_config(config)
        configs[id(text)] = text
    for config in configs.values():
        for name in names:
            size = size_of(config, name)
            if type(size) is int and size > _WINDOW:
                yield config, name, size


@contextmanager
def _narrow(model: CausalModel) -> Iterator[None]:
    """Small windows for a while, in the model's configurations and in our masks."""
    before, spans = list(_windows(model)), model.spans
    try:
        for config, name, _ in before:
            setattr(config, name, _WINDOW)
        model.spans = spans and {kind: size and min(size, _WINDOW) for kind, size in spans.items()}
        yield
    finally:
        for config, name, size in before:
            setattr(config, name, size)
        model.spans = spans
        model.truncate(0)


def _file(model: CausalModel) -> Path:
    return measured_file("selftests", [
        type(model.model).__name__, model.settings, model.fingerprint, model.parameters,
        str(model.dtype), model.quantised, model.rounds, model.backend, hf.attention_name(model.model.config),
        torch.get_num_threads(), versions.installed("transformers"), code_digest(),
    ])


@cache
def code_digest() -> str:
    """Of the code that computes models; which norms and scales a family has is told by ``hf``."""
    files = sorted(file for file in Path(__file__).parent.rglob("*") if file.suffix in (".py", ".cpp", ".h"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in [*files, Path(hf.__file__)])).hexdigest()
