"""What a round retrieved from datastores, as rows below its draft tree."""

from __future__ import annotations

from engines.report.events import Passage, Retrieval, Round
from engines.report.run_state import RunState
from spec_tui.present.text import cells, one_line
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, fit, title_row
from spec_tui.tui.widgets.strip_plot import spark

FEWEST = 10  # rows of the whole panel; a lower one has no space for the retrieval
_HEAD, _EACH = 4, 2  # rows of the title, match, hits and lengths; rows of a passage


def room_for(run: RunState, event: Round, height: int, detailed: bool = True) -> int:
    """Rows for the retrieval in a panel of this height: the same in every round of a run, so that nothing jumps."""
    searches = run.started is not None and bool(run.started.datastores)
    if height < FEWEST or not (searches or event.retrieval):
        return 0
    return min(height // 3, _HEAD + _EACH * 5) if detailed else min(height // 3, 2 + _EACH)


def rows_needed(found: Retrieval) -> int:
    """Rows that show a single retrieval completely, without the lengths of other rounds."""
    return _HEAD - 1 + _EACH * len(found.passages)


def rows(run: RunState, index: int, width: int, height: int, judged: bool = True, detailed: bool = True) -> list[Row]:
    """What was looked up and the places the draft came from, those of accepted tokens marked if it is ``judged``; in
    the first look only the best place."""
    event = run.rounds[index]
    found = event.retrieval
    if found is None:
        out = [title_row(width, "retrieval"), [("nothing was looked up in this round", "muted")]]
    else:
        took = f"{found.seconds * 1e3:.2f} ms" if detailed else ""
        out = [title_row(width, "retrieval", took), _key(run, index, found, width)]
        if found.hits and detailed:
            out.append([(fit(_counts(event), width), "muted")])
        if found.match is not None and detailed and height > _HEAD and run.history:
            out.append(_lengths(run.history[index].matches, width))
        kept = {event.draft.origins[o].passage for o in _origins_of_path(event)} if judged else set()
        single = height - len(out) < _EACH
        numbers = sorted(range(len(found.passages)), key=lambda n: not detailed and n not in kept)
        for number in numbers if detailed else numbers[:1]:
            out += _passage(found.passages[number], number in kept, found, width, single)
    out = out[:height]
    return [*out, *[BLANK] * (height - len(out))]


def best_place(found: Retrieval, width: int) -> list[Row]:
    """The first passage in one row; nothing where there is none."""
    return _passage(found.passages[0], False, found, width, True) if found.passages else []


def beside(passage: Passage, width: int) -> tuple[str, str]:
    """The passage's text before and after the point of the match, cut so that this point is visible."""
    before, after = one_line(passage.before), one_line(passage.after)
    left = max(width // 3, width - 1 - cells(after))
    if cells(before) > left:
        while before and cells(before) > left - 1:
            before = before[1:]
        before = "…" + before if left > 0 else ""
    return before, fit(after, max(0, width - 1 - cells(before))).rstrip()


def place_words(datastore: str | None, document: str | None, line: int | None) -> str:
    """Where something stands: datastore, document and line."""
    where = one_line(document or "?") + ("" if line is None else f":{line}")
    return f"{one_line(datastore, 40)} · {where}" if datastore else where


def weight_words(passage: Passage, found: Retrieval) -> str:
    """How often the passage was found, or its expected share, or the similarity of its key."""
    counted = found.match is not None and passage.weight >= 1
    return f"×{passage.weight:.0f}" if counted else f"{passage.weight:.2f}"


def suffix(run: RunState, index: int, count: int) -> str:
    """Labels of the last ``count`` tokens before a round."""
    start = run.starts[index]
    written = [token.piece for token in run.tokens[max(0, start - count) : start]]
    missing = count - len(written)
    prompt = run.started.prompt_pieces[-missing:] if missing > 0 and run.started else ()
    return "".join((*prompt, *written))


def _key(run: RunState, index: int, found: Retrieval, width: int) -> Row:
    """What was looked up."""
    if found.match is None:
        near = " ".join(f"{score:.2f}" for score in found.scores)
        return [("nearest ", "muted"), (fit(near or "no similar state was found", width - 8).rstrip(), "text")]
    if not found.match:
        return [("no match for the end of the text", "muted")]
    head = f"match {found.match} "
    text = one_line(suffix(run, index, found.match))
    while cells(text) > max(1, width - cells(head) - 2):
        text = "…" + text.lstrip("…")[1:]
    return [(head, "muted"), ("‹", "muted"), (text, "strong"), ("›", "muted")]


def _lengths(matches: dict[int, int], width: int) -> Row:
    """How many rounds had a longest match of each length, so far (REST's Fig. 13)."""
    longest = max(matches)
    bars = spark([matches.get(length, 0) for length in range(longest + 1)])
    return [("lengths 0 ", "muted"), (fit(bars, min(len(bars), width - 14)), "text"), (f" {longest}", "muted")]


def _counts(event: Round) -> str:
    found, fused = event.retrieval, event.draft.fused
    what = "neighbour" if found.match is None else "hit"
    words = f"{found.hits} {what}{'s' * (found.hits != 1)}, {found.used} used"
    words += f" · {fused} fused" if fused else ""
    return words + (f" · {sum(n for _, n in found.pruned)} pruned" if found.pruned else "")


def _origins_of_path(event: Round) -> list[int]:
    """Indices of the origins of the accepted nodes, second ones too."""
    first, second = event.draft.origin, event.draft.also
    return [first[n] for n in event.path] + [second[n] for n in event.path if second and second[n] >= 0]


def _passage(passage: Passage, kept: bool, found: Retrieval, width: int, single: bool) -> list[Row]:
    weight = weight_words(passage, found)
    mark: Span = ("● " if kept else "  ", "accepted" if kept else "muted")
    if single:
        where = fit(one_line(passage.document).rpartition("/")[2], width // 3).rstrip()
        before, after = beside(passage, width - cells(where) - 4)
        return [[mark, (where + "  ", "muted"), (before, "text"), ("│", "rule"), (after, "by-retrieval")]]
    where = place_words(passage.datastore, passage.document, passage.line)
    space = width - 4 - cells(weight)
    if cells(where) > space:  # the end of a path says more than its beginning
        where = "…" + where[len(where) - max(1, space - 1):]
    before, after = beside(passage, width - 4)
    return [
        [mark, (fit(where, space), "muted"), (f" {weight}", "muted")],
        [("    ", "text"), (before, "text"), ("│", "rule"), (after, "by-retrieval")],
    ]
