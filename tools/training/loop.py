"""The training loop: schedule, optimisers, progress, checkpoints and resume."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from .streams import Mixer

PAUSE_SECONDS = 10.0  # a step longer than this and far over the usual was a pause of the process


@dataclass
class Schedule:
    """How long a stage trains, and its learning rates over that time."""

    minutes: float
    steps: int | None
    muon_rate: float
    adam_rate: float
    warmup: int = 30
    flat: float = 0.5

    def done(self, step: int, seconds: float) -> float:
        """The part of the stage behind us: by steps where a number is given, else by time."""
        return step / self.steps if self.steps else seconds / 60 / self.minutes

    def scale(self, step: int, done: float) -> float:
        """Factor on the learning rates: a short warm-up, flat, then linear to zero (never where flat is 1)."""
        fall = max(0.0, 1 - done) / (1 - self.flat) if self.flat < 1 else 1.0
        return min(1.0, (step + 1) / self.warmup) * min(1.0, fall)


class Optimisers:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""

    def __init__(self, model: torch.nn.Module, schedule: Schedule):
        inside = {name: p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name}
        outside = [p for name, p in model.named_parameters() if name not in inside]
        self.all = [
            torch.optim.Muon(inside.values(), lr=schedule.muon_rate, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(outside, lr=schedule.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self._rates = [schedule.muon_rate, schedule.adam_rate]

    def step(self, scale: float) -> None:
        """Apply the gradients at `scale` times the full learning rates and clear them."""
        for optimiser, rate in zip(self.all, self._rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * scale
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)


class Progress:
    """One line on stderr every few seconds: step, loss, rate, time left."""

    def __init__(self, name: str, every: float = 15.0):
        self.name, self.every = name, every
        self.loss: float | None = None
        self._last = 0.0

    def update(self, step: int, loss: float, tokens_per_second: float, done: float, seconds: float) -> None:
        """Take a step's loss in and print when the last line is old enough."""
        self.loss = loss if self.loss is None else 0.97 * self.loss + 0.03 * loss
        now = time.monotonic()
        if now - self._last < self.every and done < 1:
            return
        self._last = now
        left = seconds * (1 - done) / max(done, 1e-9)
        line = f"{self.name} {min(done, 1):4.0%}  step {step}  loss {self.loss:.3f}"
        line += f"  {tokens_per_second:.0f} tokens/s  {max(left, 0) / 60:.1f} min left"
        print(line, file=sys.stderr, flush=True)


class Interrupt:
    """Turns SIGINT and SIGTERM into a flag, so that the loop can save before it ends."""

    def __init__(self):
        self.requested = False
        self._previous = {}

    def __enter__(self) -> "Interrupt":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def _request(self, *_args) -> None:
        self.requested = True

    def __exit__(self, *_exc) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@dataclass
class Position:
    """How far a stage has come."""

    step: int = 0
    seconds: float = 0.0


def save_checkpoint(
    path: Path, model: torch.nn.Module, optimisers: Optimisers, mixer: Mixer, at: Position
) -> None:
    """Write everything a stage needs to go on; a crash leaves the previous checkpoint whole."""
    state = {
        "model": model.state_dict(),
        "optimisers": [optimiser.state_dict() for optimiser in optimisers.all],
        "mixer": mixer.state(),
        "step": at.step,
        "seconds": at.seconds,
    }
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load_checkpoint(path: Path, model: torch.nn.Module, optimisers: Optimisers, mixer: Mixer) -> Position:
    """Restore what `save_checkpoint` wrote."""
    state = torch.load(path, weights_only=True, map_location="cpu")
    model.load_state_dict(state["model"])
    for optimiser, saved in zip(optimisers.all, state["optimisers"], strict=True):
        optimiser.load_state_dict(saved)
    mixer.restore(state["mixer"])
    return Position(state["step"], state["seconds"])


class Clock:
    """Training time of a stage, without the time the process was stopped."""

    def __init__(self):
        self._usual: float | None = None
        self._then = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last lap, or the usual length where that lap holds a pause."""
        now = time.monotonic()
        took, self._then = now - self._then, now
        if self._usual is not None and took > max(PAUSE_SECONDS, 4 * self._usual):
            return self._usual
        self._usual = took if self._usual is None else 0.8 * self._usual + 0.2 * took
        return took


def train(
    name: str,
    model: torch.nn.Module,
    loss_of: Callable[[torch.Tensor, int], torch.Tensor],
    mixer: Mixer,
    schedule: Schedule,
    checkpoint: Path,
    resume: bool = False,
    checkpoint_seconds: float = 240.0,
    stop_after: int | None = None,
) -> Position | None:
    """Train until the schedule ends and tell where; None if a signal or `stop_after` steps ended it early."""
    optimisers, at, progress, clock = Optimisers(model, schedule), Position(), Progress(name), Clock()
    if resume and checkpoint.exists():
        at = load_checkpoint(checkpoint, model, optimisers, mixer)
        print(f"{name}: resumed at step {at.step}", file=sys.stderr, flush=True)
    model.train()
    since_save, first = 0.0, at.step
    with Interrupt() as interrupt:
        while (done := schedule.done(at.step, at.seconds)) < 1:
            batch = mixer.batch(at.step)
            loss = loss_of(batch, at.step)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimisers.step(schedule.scale(at.step, done))
            took = clock.lap()
            at = Position(at.step + 1, at.seconds + took)
            since_save += took
            progress.update(
                at.step, loss.item(), batch.numel() / took, schedule.done(at.step, at.seconds), at.seconds
            )
            stopping = interrupt.requested or (stop_after is not None and at.step - first >= stop_after)
            if stopping or since_save > checkpoint_seconds:
                save_checkpoint(checkpoint, model, optimisers, mixer, at)
                since_save = 0.0
            if stopping:
                print(f"{name}: stopped at step {at.step}, saved in {checkpoint}", file=sys.stderr)
                return None
    save_checkpoint(checkpoint, model, optimisers, mixer, at)
    return at
