"""What the papers report of the methods that are here: on other models, other data and other machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Measure = Literal["speed-up", "tau", "MAR"]
"""speed-up: over autoregressive decoding, wall clock. tau: accepted / target forwards. MAR: mean path acceptance."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A published number.

    Attributes:
        engine: ours with this method.
        variant: how the paper's is made up: the drafter (of many that were tried, the best), what RASD fuses, a
            datastore of the model's own answers; "" where there is nothing to say.
        value: a ratio or a length; MAR as a share.
        model, data, hardware: on which it was measured, with greedy decoding.
        source: paper and table.
    """

    engine: str
    variant: str
    measure: Measure
    value: float
    model: str
    data: str
    hardware: str
    source: str

    @property
    def where(self) -> str:
        """Paper, table and hardware."""
        return f"{self.source}: {self.hardware}"


_ADMG = ("2 V100 32 GB", "ADMG (Metel et al. 2024), Table 3")
_ADMG_CODE = ("2 V100 32 GB", "ADMG (Metel et al. 2024), Table 4")
_REST = ("1 A6000", "REST (He et al. 2023), Table 1")
_DRESD = ("1 V100 32 GB", "DReSD, Table 3")
_DRESD_MAR = ("1 V100 32 GB", "DReSD, Table 5")
_RASD_PLD = ("1 A100 80 GB", "RASD, Table 1")
_RASD_REST = ("1 A100 80 GB", "RASD, Table 2")
_BOARD = ("1 A100", "Spec-Bench (Xia et al. 2024), leaderboard")
_SMALL = ("1 RTX 3090", "Spec-Bench (Xia et al. 2024), leaderboard")
_CODE = "CodeAlpaca"

FIGURES = (
    Figure("pld", "", "speed-up", 1.66, "Vicuna 7B", "Spec-Bench", *_BOARD),
    Figure("pld", "", "speed-up", 1.64, "Vicuna 7B", "Spec-Bench", *_SMALL),
    Figure("pld", "", "speed-up", 2.21, "CodeLlama 7B", _CODE, *_DRESD),
    Figure("pld", "", "speed-up", 1.11, "Llama-2-Chat 7B", _CODE, *_DRESD),
    Figure("pld", "", "speed-up", 1.49, "Qwen2.5 14B", "HumanEval", *_RASD_PLD),
    Figure("pld", "", "speed-up", 1.98, "Qwen2.5 14B", "MultiFieldQA", *_RASD_PLD),
    Figure("pld", "", "tau", 0.55, "Qwen2.5 14B", "HumanEval", *_RASD_PLD),
    Figure("draft", "68M drafter", "speed-up", 1.52, "Vicuna 7B", "Spec-Bench", *_BOARD),
    Figure("draft", "68M drafter", "speed-up", 1.79, "Vicuna 7B", "Spec-Bench", *_SMALL),
    Figure("draft", "best of many", "speed-up", 1.75, "CodeLlama 7B", "HumanEval", *_REST),
    Figure("draft", "best of many", "speed-up", 1.31, "Vicuna 7B", "MT-Bench", *_REST),
    Figure("draft", "68M drafter", "speed-up", 1.63, "CodeLlama 7B", _CODE, *_DRESD),
    Figure("draft", "68M drafter", "speed-up", 1.32, "Llama-2-Chat 7B", _CODE, *_DRESD),
    Figure("rest", "", "speed-up", 2.36, "CodeLlama 7B", "HumanEval", *_REST),
    Figure("rest", "", "speed-up", 1.69, "Vicuna 7B", "MT-Bench", *_REST),
    Figure("rest", "", "speed-up", 1.48, "Vicuna 7B", "Spec-Bench", *_BOARD),
    Figure("rest", "", "speed-up", 1.28, "Vicuna 7B", "Spec-Bench", *_SMALL),
    Figure("rest", "own answers", "speed-up", 3.79, "CodeLlama 7B", _CODE, *_DRESD),
    Figure("rest", "own answers", "MAR", 0.334, "CodeLlama 7B", _CODE, *_DRESD_MAR),
    Figure("rest", "", "tau", 0.86, "Qwen2.5 14B", "HumanEval", *_RASD_REST),
    Figure("dresd", "own answers", "speed-up", 5.47, "CodeLlama 7B", _CODE, *_DRESD),
    Figure("dresd", "own answers", "speed-up", 4.11, "Llama-2-Chat 7B", _CODE, *_DRESD),
    Figure("dresd", "own answers", "MAR", 0.494, "CodeLlama 7B", _CODE, *_DRESD_MAR),
    Figure("rasd", "REST + EAGLE-2", "speed-up", 2.86, "Qwen2.5 14B", "HumanEval", *_RASD_REST),
    Figure("rasd", "PLD + EAGLE-2", "speed-up", 2.31, "Qwen2.5 14B", "CNN/DM", *_RASD_PLD),
    Figure("rasd", "REST + EAGLE-2", "tau", 3.46, "Qwen2.5 14B", "HumanEval", *_RASD_REST),
    Figure("admg", "", "speed-up", 1.443, "Llama-2 13B", "CNN/DM", *_ADMG),
    Figure("admg", "", "speed-up", 1.247, "Llama-2-Chat 13B", "CNN/DM", *_ADMG),
    Figure("admg", "", "speed-up", 1.365, "CodeLlama 13B", "HumanEval", *_ADMG_CODE),
    Figure("draft-verify", "", "speed-up", 1.495, "Llama-2 13B", "CNN/DM", *_ADMG),
    Figure("draft-verify", "", "speed-up", 1.282, "CodeLlama 13B", "HumanEval", *_ADMG_CODE),
)

CAPTION = (
    "other models, other data and other machines: GPUs, on which many rows are verified for little more than the price"
    " of one; greedy decoding. They say what a method can do, not what it should do here"
)


def of(engines: Iterable[str]) -> list[Figure]:
    """The figures of these engines, in the order of the engines."""
    order = {engine: place for place, engine in reversed(list(enumerate(engines)))}
    return sorted((f for f in FIGURES if f.engine in order), key=lambda f: order[f.engine])


def sources(figures: Iterable[Figure]) -> list[str]:
    """Where these figures are from, each once, with the hardware."""
    return list(dict.fromkeys(figure.where for figure in figures))
