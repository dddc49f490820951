"""An entry that was run: its cells, ours and theirs; and whether what the paper concludes holds here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engines.bench import published
from engines.bench.bench_results import BenchResults
from engines.bench.published import Figure
from engines.datastores.storage.datastore import Store
from engines.methods.options import FRACTION
from engines.race.interval import MedianInterval, ratio_of
from engines.race.lanes import Lane, Race
from engines.reproduce.entry import Claim, PaperEntry, RowOf, Setting, lane_of
from engines.reproduce.measures import MEASURES, RowFacts
from engines.reproduce.sublayer_facts import SublayerFacts


@dataclass(frozen=True, slots=True)
class SettingRun:
    """A benchmark of an entry, over or under way.

    Attributes:
        setting: how answers were sampled.
        lanes: by the name of their row, the number of its lane in the race.
    """

    setting: Setting
    asked: Race
    results: BenchResults
    lanes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a table.

    Attributes:
        here: ours; None where it could not be measured. ``interval`` of it, where it is the median of repeats.
        theirs: what papers have in this place, on several models and data.
    """

    setting: str
    row: str
    measure: str
    here: float | None
    theirs: tuple[Figure, ...]
    interval: MedianInterval | None = None


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether a claim ``holds`` here.

    Attributes:
        values: those of its rows.
        ratios: of a measure with repeats, each value over the one before it and then over the bound, in the same
            repeats; None of other measures, which repeat exactly or have no repeats.
    """

    claim: Claim
    setting: str
    values: tuple[float | None, ...]
    ratios: tuple[MedianInterval | None, ...] | None = None

    @property
    def equal(self) -> bool:
        """Whether its rows all have the same number, which says nothing for the claim and nothing against it."""
        return len(self.values) > 1 and len(set(self.values)) == 1 and self.values[0] is not None

    @property
    def repeats(self) -> int:
        """The fewest repeats of a ratio; 0 where there is none."""
        return min((0 if ratio is None else ratio.samples for ratio in self.ratios or ()), default=0)

    @property
    def holds(self) -> bool | None:
        """None where a number is missing, all are equal, or the noise of the repeats hides the difference."""
        known = [value for value in self.values if value is not None]
        if len(known) < len(self.values) or self.equal:
            return None
        if self.ratios is not None:
            told = [_above_one(ratio) for ratio in self.ratios]
            return False if False in told else None if None in told else True
        bound = self.claim.above
        return all(low < high for low, high in pairwise(known)) and (bound is None or min(known) > bound)


def _above_one(ratio: MedianInterval | None) -> bool | None:
    """Whether a ratio is above 1; None where its interval holds 1, or there is none."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return True if ratio.low > 1 else False if ratio.high < 1 else None


@dataclass
class Reproduction:
    """What came of an entry.

    Attributes:
        name: of the entry. ``quick``: it was made smaller.
        stores: by need, the datastores that rows search, open.
        runs: a benchmark for each setting that has begun.
        left_out: rows that cannot run here, and why, a sentence each.
        facts: on what it ran (``bench.entrants.facts``).
        sublayers: measures the model's sublayers, once.
    """

    name: str
    entry: PaperEntry
    quick: bool = False
    stores: Mapping[str, Sequence[Store]] = field(default_factory=dict)
    runs: list[SettingRun] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)
    sublayers: Callable[[], SublayerFacts] | None = None

    def __post_init__(self) -> None:
        self._here: dict[tuple[str, str, str], float | MedianInterval | None] = {}
        self._repeats: dict[tuple[str, str, str], Mapping[int, float]] = {}

    def lanes(self) -> dict[str, Lane]:
        """The lanes by row. Raises UsageProblem."""
        names = {need: tuple(store.name for store in stores) for need, stores in self.stores.items()}
        return {row.name: lane_of(row, names) for row in self.entry.rows if row.lane}

    def measure(self) -> None:
        """Compute every cell; what is of datastores and of the model takes a while, and is done once. Raises SpecError:
        the model or a datastore broke."""
        shared: dict[tuple[str, str], float | MedianInterval | None] = {}
        for run in self.runs or [None]:
            setting = run.setting.name if run else ""
            for row in self.entry.rows:
                facts = self._facts(row, run)
                for name, column in zip(self.entry.measures, self.entry.columns):
                    if column.of_runs:
                        value = column.of(facts)
                    else:
                        key = (row.name, name)
                        value = shared[key] = shared[key] if key in shared else column.of(facts)
                    self._here[setting, row.name, name] = value
                    if column.by_repeat is not None:
                        self._repeats[setting, row.name, name] = column.by_repeat(facts)

    def _facts(self, row: RowOf, run: SettingRun | None) -> RowFacts:
        stores = [store for name in row.stores for store in self.stores.get(name, ())]
        lane = self._lane(row)
        return RowFacts(
            results=run.results if run else None, lane=run.lanes.get(row.name) if run else None, stores=stores,
            fraction=lane.options.get(FRACTION.name, FRACTION.default) if lane else FRACTION.default,
            part=row.part, sublayers=self.sublayers,
        )

    def cells(self) -> list[Cell]:
        """The table, setting by setting, row by row."""
        found = []
        for setting in self._settings():
            for row in self.entry.rows:
                for name in self.entry.measures:
                    here = self._here.get((setting.name if self.runs else "", row.name, name))
                    theirs = tuple(f for f in published.figures() if f.measure == name and self._is_of(f, row, setting))
                    interval = here if isinstance(here, MedianInterval) else None
                    found.append(Cell(setting.name, row.name, name, interval.median if interval else here, theirs,
                                      interval))
        return found

    def _settings(self) -> list[Setting]:
        return [run.setting for run in self.runs] or list(self.entry.settings)

    def _is_of(self, figure: Figure, row: RowOf, setting: Setting) -> bool:
        """Whether a published figure stands in this row of the entry's tables."""
        if row.ours or figure.source not in self.entry.sources:
            return False
        if figure.temperature not in (None, setting.temperature):
            return False
        if setting.data and figure.data not in setting.data:
            return False
        lane = self._lane(row)
        if row.published or lane is None:
            wanted = ({"engine": lane.engine} if lane else {}) | row.published
            return bool(wanted) and all(getattr(figure, name) == value for name, value in wanted.items())
        return figure.is_of(lane.engine, lane.options)

    def _lane(self, row: RowOf) -> Lane | None:
        """The lane of a row, whatever its datastores are called."""
        needs = {store.name: (store.name,) for store in self.entry.stores}
        return lane_of(row, needs) if row.lane else None

    def verdicts(self) -> list[ClaimVerdict]:
        """What the paper concludes, checked in each setting that it is about."""
        here = {(cell.setting, cell.row, cell.measure): cell.here for cell in self.cells()}
        about = ((claim, setting.name) for claim in self.entry.claims for setting in self._settings())
        return [
            ClaimVerdict(claim, setting, tuple(here.get((setting, row, claim.measure)) for row in claim.rising),
                         self._ratios(claim, setting))
            for claim, setting in about if claim.setting in ("", setting)
        ]

    def _ratios(self, claim: Claim, setting: str) -> tuple[MedianInterval | None, ...] | None:
        """``ClaimVerdict.ratios``."""
        if MEASURES[claim.measure].by_repeat is None:
            return None
        rows = [self._repeats.get((setting if self.runs else "", row, claim.measure), {}) for row in claim.rising]
        found = [ratio_of(more, less) for less, more in pairwise(rows)]
        if claim.above:
            found += [ratio_of(row, dict.fromkeys(row, claim.above)) for row in rows]
        return tuple(found)


def theirs(entry: PaperEntry) -> list[Figure]:
    """All that is published of an entry's tables."""
    return [figure for figure in published.figures() if figure.source in entry.sources]
