"""Whether native code is available here, computes the right results and is not slower than torch."""

from __future__ import annotations

from functools import cache
from time import perf_counter

import torch
from torch import nn

from engines.errors import first_line
from engines.machine import OtherLoad, keep, kept, measured_file
from engines.model.native.compiling import Progress
from engines.model.native.native_code import digest, library
from engines.model.native.native_linear import NativeLinear
from engines.model.native.weight_grid import quantised

_SLOWER = 1.5  # than torch
_REPEATS, _ATTEMPTS, _AGAIN_DAYS = 5, 2, 3


def unavailable(progress: Progress = lambda share: None) -> str:
    """Why there is no native code here, "" where there is and it computes what it should. Compiles it where that was
    not done before; ``progress`` gets the share that is compiled."""
    try:
        library(progress)
    except Exception as error:  # no compiler, one that fails, a cache that cannot be written, symbols that torch lacks
        return first_line(error)
    if not _right():
        return "the compiled code gives wrong results"
    return "the compiled code is slower than torch's operations" if _slow() else ""


@cache
def _right() -> bool:
    """Whether what was compiled computes what it should, of floats and of integers, inputs rounded or not."""
    return (all(_right_product(kind) for kind in (4, 8, torch.bfloat16, torch.float16, torch.float32))
            and all(_right_product(bits, rounds=True) for bits in (4, 8)))


@torch.inference_mode()
def _right_product(kind: int | torch.dtype, rounds: bool = False) -> bool:
    """Whether products are those of the weight, to rounding, for a few and for many rows, and a row's the same to the
    last bit among however many. ``rounds``: as of ``NativeLinear``."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        linear, x = nn.Linear(96, 72), torch.randn(80, 96)
    if isinstance(kind, int):
        layer = NativeLinear(linear, [quantised(linear.weight, kind)], rounds)
        step = 2 * linear.weight.abs().max() / 2**kind
    else:
        linear.weight.data, step = linear.weight.data.to(kind).float(), 0.0
        layer = NativeLinear(linear)
    weight, found = layer.weight, layer(x)
    expected = (x.double() @ weight.double().t() + linear.bias).float()
    error = (found - expected).abs().max()
    right = (weight - linear.weight).abs().max() <= step and error <= (0.03 if rounds else 1e-5)
    return bool(right) and all(torch.equal(layer(x[:rows]), found[:rows]) for rows in (1, 3, 9))


@cache
def _slow() -> bool:
    """Whether one row and several take clearly longer than by torch. That they do is believed of a quiet machine only,
    and asked again some days later: native code is the faster one nearly everywhere."""
    file = measured_file("native", [digest(), "times"])
    match kept(file):
        case [float(native), float(plain)]:
            return native > _SLOWER * plain
    for _ in range(_ATTEMPTS):
        other_load, (native, plain) = OtherLoad(), _times()
        if native <= _SLOWER * plain:
            keep(file, [native, plain])
            return False
        if not other_load.quiet():
            return False
    keep(file, [native, plain], _AGAIN_DAYS)
    return True


@torch.inference_mode()
def _times() -> list[float]:
    """Seconds of native code and of torch for one row and several, with float32 weights that no cache near the
    processor holds."""
    linear = nn.Linear(2048, 2048, bias=False)
    layers = NativeLinear(linear), linear
    best = [0.0, 0.0]
    for rows in (1, 8):
        x = torch.randn(rows, 2048)
        times = [[_seconds(layer, x) for layer in layers] for _ in range(_REPEATS)]
        best = [total + min(one) for total, one in zip(best, zip(*times))]
    return best


def _seconds(layer: nn.Module, x: torch.Tensor) -> float:
    clock = perf_counter()
    layer(x)
    return perf_counter() - clock
