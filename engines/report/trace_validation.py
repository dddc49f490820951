"""Whether recorded events hold together: what a fold and the screens rely on, checked where a file may be damaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from engines.report.events import Audited, Draft, Emitted, Failed, Finished, Layers, Prefilled, Round, RunEvent, Started

_MOST_SECONDS = 1e9
_LARGEST = 1 << 53
_LONGEST_MATCH = 1 << 16  # tokens; screens count matches by length
_END = Finished | Failed


OptionCheck = Callable[[Started], Collection[str]]
"""Names of the options of a run whose values the method cannot have."""


def no_check(started: Started) -> Collection[str]:
    """Nothing is known of the options."""
    return ()


class TraceValidator:
    """Judges the events of a file in their order; a ``Started`` begins anew. ``wrong_options``: knows the methods,
    which this module does not."""

    def __init__(self, wrong_options: OptionCheck = no_check) -> None:
        self._wrong_options = wrong_options
        self._begin()

    def _begin(self) -> None:
        self._prefilled, self._ended, self._tokens, self._index = False, False, 0, 0

    def judge(self, event: RunEvent) -> tuple[RunEvent | None, str]:
        """The event as it can be used, None if it cannot; and what is wrong with it in words, "" if nothing."""
        if isinstance(event, Started):
            self._begin()
            return self._start(event)
        if isinstance(event, _END):
            found = "comes after the end of the run" if self._ended else _totals(event)
            self._ended = True
        elif isinstance(event, Prefilled):
            found = self._prefill(event)
        elif isinstance(event, Round):
            return self._round(event)
        else:
            found = _audited(event, self._tokens) if isinstance(event, Audited) else ""
        return (None if found else event), found

    def _start(self, event: Started) -> tuple[Started, str]:
        """A run without its prices, or an option, is still a run."""
        left_out = []
        if not (_curve(event.price) and _curve(event.draft_price) and _curve(event.head_price)):
            event = replace(event, price=(), draft_price=(), head_price=())
            left_out.append("prices")
        wrong = {name for name, value in event.options.items() if not isinstance(value, str | int | float)}
        wrong |= set(self._wrong_options(event))
        if wrong:
            event = replace(event, options={name: event.options[name] for name in event.options if name not in wrong})
            left_out.append(f"options ({', '.join(sorted(wrong))})")
        return event, f"is the start of a run; of it are left out: {' and '.join(left_out)}" if left_out else ""

    def _prefill(self, event: Prefilled) -> str:
        if self._prefilled or self._index or self._ended:
            return "is out of place: a run is prefilled once, before its first round"
        found = _seconds([event.seconds]) or _counts([event.prompt_tokens, event.reused, event.cache_length])
        found = found or _emitted([event.first], 0) or _layers(event.layers)
        if not found:
            self._prefilled, self._tokens = True, 1
        return found

    def _round(self, event: Round) -> tuple[Round | None, str]:
        if self._ended:
            return None, "comes after the end of the run"
        if event.index <= self._index:
            return None, f"is out of order: round {event.index} after round {self._index}"
        if found := _broken(event):
            return None, found
        gap, before = event.index - self._index - 1, self._index
        self._index, self._tokens = event.index, self._tokens + len(event.emitted)
        if any(not isinstance(value, str | int | float | dict | None) for value in event.note.values()):
            return replace(event, note={}), "is a round whose remarks are damaged: they are left out"
        missing = f"is round {event.index}, and what comes between it and round {before} is missing" if gap else ""
        return event, missing


def _curve(points: tuple[tuple[int, float], ...]) -> bool:
    rows = [row for row, _ in points]
    return rows == sorted(set(rows)) and all(0 < row < _LARGEST for row in rows) and all(
        0 < seconds < _MOST_SECONDS for _, seconds in points)


def _broken(event: Round) -> str:
    """What is wrong with a round in itself."""
    found = (
        _seconds([event.draft_seconds, event.verify_seconds, event.other_seconds])
        or _counts([event.index, event.position, event.cache_length])
        or _tree(event.draft, event.path)
        or _emitted(event.emitted, len(event.draft.tokens))
    )
    if found:
        return found
    if event.bias is not None and not 0 <= event.bias <= 1.001:
        return "has an impossible bias"
    if len(event.verified) not in (0, len(event.draft.tokens) + 1):
        return "is a round of other rows than verified"
    lookup = event.retrieval
    if lookup is not None and (_counts([lookup.hits, lookup.used]) or not 0 <= (lookup.match or 0) < _LONGEST_MATCH):
        return "has an impossible lookup"
    passages = (None, *range(len(lookup.passages) if lookup else 0))
    lost = any(origin.passage not in passages for origin in event.draft.origins)
    return "has a passage that is not there" if lost else ""


def _seconds(values: Iterable[float | None]) -> str:
    return "" if all(value is None or 0 <= value < _MOST_SECONDS for value in values) else "has an impossible time"


def _counts(values: Iterable[int | None]) -> str:
    return "" if all(value is None or 0 <= value < _LARGEST for value in values) else "has an impossible number"


def _tree(draft: Draft, path: tuple[int, ...]) -> str:
    nodes = len(draft.tokens)
    columns = (draft.parents, draft.pieces, draft.probs, draft.origin, *((draft.also,) if draft.also else ()))
    if any(len(column) != nodes for column in columns):
        return "has a draft tree whose columns differ in length"
    if any(not -1 <= parent < node for node, parent in enumerate(draft.parents)):
        return "has a draft tree with impossible parents"
    origins = range(len(draft.origins))
    if any(i not in origins for i in draft.origin) or any(i != -1 and i not in origins for i in draft.also):
        return "has a draft tree of unknown origin"
    steps = zip((-1, *path), path)
    if any(node not in range(nodes) or draft.parents[node] != before for before, node in steps):
        return "has an invalid accepted path"
    return ""


def _emitted(emitted: Iterable[Emitted], nodes: int) -> str:
    for token in emitted:
        if not -1 <= token.node < nodes or any(not 0 <= trial.node < nodes for trial in token.trials):
            return "has a token from a node that is not there"
        if not (token.prob is None or math.isnan(token.prob) or 0 <= token.prob <= 1.001):
            return "has an impossible probability"
    return ""


def _totals(event: Finished | Failed) -> str:
    if isinstance(event, Failed) or (said := event.totals) is None:
        return ""
    if len(said.depth_tried) != len(said.depth_accepted):
        return "has depths that differ in number"
    return _counts([said.tokens, said.prompt_tokens, said.drafts, said.steps, said.drafted, said.accepted,
                    *said.depth_tried, *said.depth_accepted, *said.drafted_by_round])


def _layers(layers: Layers | None) -> str:
    if layers is None:
        return ""
    many = len(layers.attention)
    measured = [column for column in (layers.attention_cosine, layers.mlp_cosine) if column]
    equal = all(len(column) == many for column in (layers.mlp, *measured))
    return "" if equal else "has columns of layers that differ in length"


def _audited(found: Audited, tokens: int) -> str:
    if any(len(column) != tokens for column in (found.choices, found.gaps, found.leads)):
        return "audits other tokens than the run has"
    lost = found.gap is None or found.at not in range(tokens)
    return "is an audit that does not say where" if found.verdict in ("tie", "BUG", "differs") and lost else ""
