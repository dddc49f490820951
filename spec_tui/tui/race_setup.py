"""What a race will be: lanes, prompt, repeats, mode. Frozen; every change makes a checked copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engines import methods
from engines.errors import UsageProblem
from engines.race.lanes import Lane, Race, labels, parse_lanes
from engines.report.events import Ready
from spec_tui.tui.settings import ChatSettings, unavailable

FEWEST, MOST = 2, 6
REPEATS = (1, 3, 6, 12)  # 6 are the fewest that give an interval of 95 %
_USUAL = ("autoregressive", "pld", "draft", "rest")  # to begin with, of those that fit what is at hand


@dataclass(frozen=True, slots=True)
class RaceSetup:
    """A race to be; ``live`` shows lanes while they run, and its numbers are not comparable."""

    lanes: tuple[Lane, ...] = ()
    prompt: str = ""
    repeats: int = 3
    live: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each lane."""
        return labels(self.lanes)

    def race(self, settings: ChatSettings, ready: Ready | None) -> Race:
        """The race, sampled as these settings say. Raises UsageProblem for what cannot be run."""
        if not FEWEST <= len(self.lanes) <= MOST:
            raise UsageProblem(f"a race has {FEWEST} to {MOST} lanes", "a adds one, - takes one away")
        if not self.prompt.strip():
            raise UsageProblem("there is no prompt", "i goes to the prompt, ctrl+o has some that show something")
        for lane, label in zip(self.lanes, self.labels):
            if reason := missing(lane, ready):
                raise UsageProblem(f"{label} cannot run: {reason}", "- takes the lane away")
        request = settings.request((("user", self.prompt),), ready)
        asked = Race(self.lanes, replace(request, engine="", options={}), repeats=self.repeats, live=self.live)
        asked.check()
        return asked

    def with_lane(self, lane: Lane) -> RaceSetup:
        """One more. Raises UsageProblem where there are as many as there may be."""
        if len(self.lanes) >= MOST:
            raise UsageProblem(f"a race has at most {MOST} lanes", "- takes one away")
        return replace(self, lanes=(*self.lanes, lane))

    def without(self, index: int) -> RaceSetup:
        """One less. Raises UsageProblem where there are as few as there may be."""
        if len(self.lanes) <= FEWEST:
            raise UsageProblem(f"a race has at least {FEWEST} lanes", "a adds one")
        return replace(self, lanes=self.lanes[:index] + self.lanes[index + 1 :])

    def with_lanes(self, text: str) -> RaceSetup:
        """The lanes of a list as on the command line. Raises UsageProblem."""
        lanes = parse_lanes([text])
        if not FEWEST <= len(lanes) <= MOST:
            raise UsageProblem(f"a race has {FEWEST} to {MOST} lanes, these are {len(lanes)}",
                               "for example /lanes autoregressive,pld,draft:shape=tree")
        return replace(self, lanes=lanes)

    def more_repeats(self) -> RaceSetup:
        """The next number of repeats, and round again."""
        return replace(self, repeats=next((n for n in REPEATS if n > self.repeats), REPEATS[0]))


def usual(settings: ChatSettings, ready: Ready | None) -> tuple[Lane, ...]:
    """Lanes to begin with: the usual engines that can run, and the chat's own where it is another one."""
    able = [spec.id for spec in methods.specs() if not missing(Lane(spec.id), ready)]
    chosen = [Lane(engine) for engine in _USUAL if engine in able]
    engine = settings.resolved(ready)
    own = Lane(engine, dict(settings.given.get(engine, {})))
    if not missing(own, ready) and all(own.label != lane.label for lane in chosen):
        chosen.append(own)
    return tuple(chosen)


def missing(lane: Lane, ready: Ready | None) -> str:
    """Why a lane cannot run with the loaded models; "" where it can."""
    spec = methods.find(lane.engine)
    return unavailable(spec, ready, spec.parse(lane.options))
