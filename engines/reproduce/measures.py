"""The columns of reproduced tables: what each is, and how it is computed of a row's runs, its stores or the model."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engines.datastores.storage.datastore import Documents
from engines.race.interval import MedianInterval
from engines.race.result import LaneRun, mean_over_prompts
from engines.report.metrics import Metrics, together

if TYPE_CHECKING:
    from engines.bench.bench_results import BenchResults
    from engines.datastores.search.dense import DenseStore
    from engines.datastores.storage.datastore import Store
    from engines.reproduce.sublayer_facts import SublayerFacts

_KEYS = 1000  # stored keys that the reciprocal rank is measured on


@dataclass
class RowFacts:
    """What is measured of a row.

    Attributes:
        results, lane: of the benchmark in which its lane ran; None where it did not.
        stores: datastores that it searches, open; ``fraction`` is the share of each.
        part: which part of the model it is about, "" for none.
        sublayers: measures the model's sublayers when it is first asked.
    """

    results: BenchResults | None = None
    lane: int | None = None
    stores: Sequence[Store] = ()
    fraction: float = 1.0
    part: str = ""
    sublayers: Callable[[], SublayerFacts] | None = None
    _dense: dict[int, DenseStore] = field(default_factory=dict)

    @cached_property
    def runs(self) -> list[LaneRun]:
        """Complete runs on the prompts that count."""
        if self.results is None or self.lane is None:
            return []
        return [run for run in self.results.of(self.lane) if run.prompt in self.results.counted]

    @cached_property
    def metrics(self) -> Metrics:
        """All of its runs together."""
        return together(run.state.metrics for run in self.runs)

    def over_prompts(self, of: Callable[[Metrics], float | None]) -> float | None:
        """The mean over the prompts of a number of each."""
        return mean_over_prompts(self.runs, of)

    @property
    def dense(self) -> DenseStore | None:
        """Its datastore with keys, opened as far as it is searched; None where there is none."""
        from engines.datastores.search.dense import DenseStore

        for n, store in enumerate(self.stores):
            if store.manifest.keys:
                return self._dense.setdefault(n, DenseStore(store, self.fraction))
        return None


@dataclass(frozen=True, slots=True)
class Measure:
    """A column.

    Attributes:
        means: what it is, in a few words.
        of: its number of a row, of repeats their median with its interval; None where there is none.
        digits: after the point.
        percent: it is a share, written as a percentage.
        timed: it depends on the machine and on what else it does.
        over_baseline: it is a ratio to the baseline's row.
        by_repeat: its number of a row in each repeat, by repeat; None where it has no such.
        of_runs: it is of what a lane did; else of datastores or of the model, the same however answers are sampled.
    """

    means: str
    of: Callable[[RowFacts], float | MedianInterval | None]
    digits: int = 2
    percent: bool = False
    timed: bool = False
    over_baseline: bool = False
    by_repeat: Callable[[RowFacts], Mapping[int, float]] | None = None
    of_runs: bool = True

    def write(self, value: float | None) -> str:
        """A number of it as a table has it."""
        if value is None:
            return "-"
        return f"{100 * value:.{max(0, self.digits - 1)}f}%" if self.percent else f"{value:,.{self.digits}f}"


def _repeated(means: str, by_repeat: Callable[[RowFacts], Mapping[int, float]], **more: Any) -> Measure:
    """A measure that is the median of its repeats."""
    return Measure(means, lambda row: MedianInterval.of(list(by_repeat(row).values())), timed=True,
                   by_repeat=by_repeat, **more)


def _rates(row: RowFacts) -> Mapping[int, float]:
    """Tokens/s by repeat."""
    return {} if row.results is None or row.lane is None else row.results.rates(row.lane, row.results.counted)


def _times(row: RowFacts) -> Mapping[int, float]:
    """Milliseconds for a token, by repeat."""
    return {repeat: 1e3 / rate for repeat, rate in _rates(row).items()}


def _speed_ups(row: RowFacts) -> Mapping[int, float]:
    """Tokens/s over the baseline's, by repeat."""
    if row.results is None or row.lane is None:
        return {}
    alone = row.results.rates(row.results.started.baseline, row.results.counted)
    return {repeat: rate / alone[repeat] for repeat, rate in _rates(row).items() if repeat in alone}


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _thousand(value: float | None) -> float | None:
    return None if value is None else 1e3 * value


def _matched(first: int, last: int) -> Callable[[RowFacts], float | None]:
    """The share of such lengths among the rounds in which a suffix was found."""

    def share(row: RowFacts) -> float | None:
        found = {length: rounds for length, rounds in row.metrics.matches.items() if length}
        return _ratio(sum(n for length, n in found.items() if first <= length <= last), sum(found.values()))

    return share


def _at_depth(depth: int) -> Callable[[RowFacts], float | None]:
    def share(row: RowFacts) -> float | None:
        m = row.metrics
        return _ratio(m.depth_accepted[depth - 1], m.depth_tried[depth - 1]) if len(m.depth_tried) >= depth else None

    return share


def _left_out(part: str) -> Callable[[RowFacts], float | None]:
    """Sublayers that drafting leaves out, averaged over the runs."""

    def mean(row: RowFacts) -> float | None:
        layers = [run.state.prefilled.layers for run in row.runs if run.state.prefilled is not None]
        counts = [sum(map(bool, getattr(each, part))) for each in layers if each is not None]
        return statistics.mean(counts) if counts else None

    return mean


def _searched(of: Callable[[Store], float]) -> Callable[[RowFacts], float | None]:
    """A size of the datastores, of as much of them as is searched."""

    def size(row: RowFacts) -> float | None:
        found = [of(store) * _share(store, row.fraction) for store in row.stores]
        return sum(found) if found else None

    return size


def _bytes(row: RowFacts) -> float | None:
    """What its lane searches on the disk; where none ran, what its datastores take."""
    if row.runs:
        return row.runs[0].state.started.datastore_bytes
    return _searched(lambda store: store.manifest.size)(row)


def _share(store: Store, fraction: float) -> float:
    """The share that whole documents make (``Documents.first``)."""
    facts, documents = store.manifest, Documents(store)
    return documents.first(fraction) / (facts.tokens + facts.documents)


def _reciprocal_rank(row: RowFacts) -> float | None:
    from engines.datastores.search.dense import mean_reciprocal_rank

    return mean_reciprocal_rank(row.dense, _KEYS) if row.dense is not None else None


def _recall(row: RowFacts) -> float | None:
    from engines.datastores.search.dense import recall

    found = recall(row.dense) if row.dense is not None else None
    return found.value if found is not None else None


def _explained(row: RowFacts) -> float | None:
    explained = row.dense.reduction.arrays().get("explained") if row.dense is not None else None
    return float(explained.sum()) if explained is not None else None


def _width(row: RowFacts) -> float | None:
    return float(row.dense.keys.shape[1]) if row.dense is not None else None


def _cosine(how: Callable[[Sequence[float]], float]) -> Callable[[RowFacts], float | None]:
    def of(row: RowFacts) -> float | None:
        found = row.sublayers().cosines[row.part] if row.part and row.sublayers is not None else ()
        return how(found) if found else None

    return of


def _sublayer_time(row: RowFacts) -> float | None:
    return 1e3 * row.sublayers().seconds[row.part] if row.part and row.sublayers is not None else None


def _depths() -> Iterator[tuple[str, Measure]]:
    for depth in range(1, 6):
        yield f"depth {depth}", Measure(
            f"rounds that accepted at depth {depth}, of those in which something there was judged", _at_depth(depth),
            percent=True, digits=1)


MEASURES = MappingProxyType({
    "speed-up": _repeated("tokens/s over those of the autoregressive row in the same repeat", _speed_ups,
                          over_baseline=True),
    "tokens/s": _repeated("tokens per second after the first token", _rates, digits=1),
    "ms/token": _repeated("milliseconds for a token after the first", _times),
    "M": Measure("tokens for each forward pass of the target (REST's mean generated length)",
                 lambda row: row.metrics.mean_generated_length),
    "tau": Measure("accepted tokens for each forward pass of the target (RASD's average acceptance length)",
                   lambda row: row.metrics.tau),
    "MAR": Measure("accepted tokens over the length of the draft, by round, then by prompt, then over the prompts "
                   "(DReSD's mean acceptance rate)", lambda row: row.over_prompts(lambda m: m.path_acceptance),
                   percent=True),
    "accepted length": Measure("accepted tokens for each round that drafted, by prompt, then over the prompts",
                               lambda row: row.over_prompts(lambda m: m.accepted_length)),
    "calls": Measure("forward passes of the target for an answer, over the prompts",
                     lambda row: row.over_prompts(lambda m: m.calls), digits=1),
    "drafted": Measure("tokens drafted in a round that drafts",
                       lambda row: _ratio(row.metrics.drafted, row.metrics.drafting_rounds), digits=1),
    "drafting": Measure("rounds that draft, of all",
                        lambda row: _ratio(row.metrics.drafting_rounds, row.metrics.target_forwards), percent=True,
                        digits=1),
    "agreement": Measure("drafted tokens that the target agrees to, of those that it judges",
                         lambda row: row.metrics.chance_accepted, percent=True),
    "draft ms": Measure("drafting, milliseconds a round",
                        lambda row: _ratio(_thousand(row.metrics.draft_seconds), row.metrics.target_forwards),
                        timed=True),
    "matched 2-9": Measure("rounds whose matched suffix has 2 to 9 tokens, of those with a match", _matched(2, 9),
                           percent=True, digits=1),
    "matched 10-16": Measure("rounds whose matched suffix has 10 to 16 tokens, of those with a match",
                             _matched(10, 16), percent=True, digits=1),
    **dict(_depths()),
    "attention out": Measure("attention sublayers that drafting leaves out, over the answers", _left_out("attention"),
                             digits=1),
    "MLP out": Measure("MLP sublayers that drafting leaves out, over the answers", _left_out("mlp"), digits=1),
    "lookup ms": Measure("milliseconds of a lookup in the datastores",
                         lambda row: _thousand(row.metrics.seconds_per_lookup), timed=True),
    "store MB": Measure("size on the disk of what it searches, in 10^6 bytes",
                        lambda row: _ratio(_bytes(row), 1e6), of_runs=False),
    "store tokens": Measure("tokens that it searches", _searched(lambda store: float(store.manifest.tokens)),
                            digits=0, of_runs=False),
    "MRR": Measure(f"mean reciprocal rank of {_KEYS:,} stored keys at most, asked of the index", _reciprocal_rank,
                   percent=True, of_runs=False),
    "recall": Measure("of the ten nearest keys, those that the index finds", _recall, percent=True, of_runs=False),
    "explained": Measure("share of the variance of hidden states that the components explain", _explained,
                         percent=True, of_runs=False),
    "dims": Measure("dimensions of a key", _width, digits=0, of_runs=False),
    "cosine min": Measure("least cosine of the residual stream before and after a sublayer, over the context, then "
                              "over the prompts", _cosine(min), digits=3, of_runs=False),
    "cosine max": Measure("greatest of these", _cosine(max), digits=3, of_runs=False),
    "cosine mean": Measure("mean of these", _cosine(statistics.mean), digits=3, of_runs=False),
    "cosine median": Measure("median of these", _cosine(statistics.median), digits=3, of_runs=False),
    "sublayer ms": Measure("milliseconds that a sublayer takes for the prompt, the mean over layers and prompts",
                               _sublayer_time, digits=3, timed=True, of_runs=False),
})
"""By name."""


def described(names: Sequence[str]) -> list[str]:
    """What columns mean, a sentence each."""
    return [f"{name}: {MEASURES[name].means}" for name in names]
