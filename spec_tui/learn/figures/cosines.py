"""The figure of what self-speculation leaves out."""

from __future__ import annotations

from statistics import median

from engines.methods.admg.rules import leave_out
from engines.report.events import Round
from engines.report.run_state import RunState
from spec_tui.learn.figures.base import LessonFigure, Runs, told
from spec_tui.present.rows import Row
from spec_tui.present.token_styles import ABSENT, PRESENT


class CosinesFigure(LessonFigure):
    """How much each attention changes the state, and a threshold to move."""

    title = "the cosine of each attention, and the threshold alpha"
    moves = "alpha"
    _STEP = 0.005

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.layers, self.alpha = run.prefilled.layers, run.prefilled.layers.alpha

    def move(self, step: int) -> None:
        self.alpha = min(1.0, max(0.5, round(self.alpha + step * self._STEP, 3)))

    def rows(self, width: int, height: int) -> list[Row]:
        layers, cosines = self.layers, [c or 0.0 for c in self.layers.attention_cosine]
        now = leave_out(layers, self.alpha, layers.m or 10**6, layers.n or 0, interval=layers.m is not None)
        each = max(1, min(4, (width - 14) // len(cosines)))
        low = max(min(cosines) - 0.02, 1 - 3 * (1 - median(cosines)))  # a few small ones would flatten all others
        tall = max(2, min(12, height - 4 - (width < 100)))
        out: list[Row] = []
        for level in range(tall, 0, -1):
            floor = low + (1 - low) * (level - 1) / tall
            row: list = [(f"{floor:>10.3f} ", "muted")]
            for c, rule in zip(cosines, now.attention):
                share = max(0.0, min(1.0, (c - floor) / ((1 - low) / tall)))
                least = level == 1  # what is below the axis is drawn as its lowest block
                cell = " ▁▂▃▄▅▆▇█"[max(int(least), round(share * 8))] * max(1, each - 1)
                row.append((f"{cell:<{each}}", "bad" if rule else "bar"))
            out.append(row)
        for name, rules in (("attention", now.attention), ("MLP", now.mlp)):
            marks = "".join(f"{ABSENT if rule else PRESENT:<{each}}" for rule in rules)
            out.append([(f"{name:>10} ", "muted"), (marks, "text")])
        left = sum(rule != "" for rule in (*now.attention, *now.mlp))
        share = 1 - left / (2 * len(cosines))
        words = (f"{left} of {2 * len(cosines)} sublayers {'is' if left == 1 else 'are'} left out ({ABSENT}); "
                 f"a draft pass runs {share:.0%} of them ({PRESENT}). "
                 f"Recorded with alpha = {layers.alpha:g}{self._rules()}. "
                 f"The axis begins at {low:.3f}; smaller cosines are drawn as its lowest block.")
        return [*out, *told(width, f"alpha = {self.alpha:.3f}:", words)]

    def _rules(self) -> str:
        """The other settings of the run, as far as they leave out or protect anything."""
        layers = self.layers
        every = layers.m if layers.m is not None and layers.m <= len(layers.attention) else None
        last = f", n = {layers.n}" if layers.n else ""
        return (f", m = {every}" if every else ", without the interval rule") + last
