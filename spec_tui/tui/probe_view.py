"""What a probe found, line by line: what would be drafted, how often it followed, from where, in which time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from textual.content import Content

from engines.datastores.events import DenseProbe, FoundPassage, Probed, ProbeNode, SparseProbe
from spec_tui.present.text import one_line, visible
from spec_tui.tui.widgets.strip_panel import fit

_MUTED, _TEXT = "$tok-prompt", "$src-retr"
_INDENT = 2


def lines(found: Probed, width: int) -> list[Content]:
    """All that was found, in so many columns."""
    out: list[Content] = []
    if found.sparse is not None:
        out += _sparse(found.sparse, width)
    if found.dense is not None:
        out += [Content("")] * bool(out) + [*_dense(found.dense, width)]
    return out


def _sparse(found: SparseProbe, width: int) -> Iterator[Content]:
    if not found.matched:
        yield _head("exact", f"no end of the text of two tokens or more occurs{_time(found.seconds)}")
        return
    places = "place" if found.occurrences == 1 else "places"
    yield _head("exact", f"{found.matched} tokens match, at {found.occurrences:,} {places}{_time(found.seconds)}")
    room = width * 6 // 10 - 7
    yield Content.assemble((f"{'':>6} ", ""), (fit("…" + visible(found.suffix[-room:]), room), _MUTED))
    for depth, chain in _chains(found.nodes):
        words = " " * _INDENT * depth + " ".join(visible(node.text) for node in chain)
        yield _row(f"{chain[0].count:>6,}", words, chain[0].found, width)


def _chains(nodes: tuple[ProbeNode, ...]) -> Iterator[tuple[int, list[ProbeNode]]]:
    """The trie, depth first, a line a branch: nodes that always follow one another stay together. With each the number
    of branchings above it."""
    children = Counter(node.parent for node in nodes)
    depths: dict[int, int] = {-1: 0}
    chain: list[ProbeNode] = []
    for i, node in enumerate(nodes):
        follows = bool(chain) and node.parent == i - 1 and children[i - 1] == 1 and node.count == chain[-1].count
        depths[i] = depths[node.parent] + (node.parent >= 0 and not follows)
        if chain and not follows:
            yield depths[i - 1], chain
            chain = []
        chain.append(node)
    if chain:
        yield depths[len(nodes) - 1], chain


def _dense(found: DenseProbe, width: int) -> Iterator[Content]:
    note = f"; {one_line(found.remark)}" if found.remark else ""
    looked = f"{found.matching:,} of {found.candidates:,} neighbours go on as the text ends"
    yield _head("by meaning", f"{looked}{_time(found.seconds)}{note}")
    for row in found.neighbours:
        yield _row(f"{row.score:>6.3f}", visible(row.text), row.found, width)


def _head(title: str, words: str) -> Content:
    return Content.assemble((title, "bold $primary"), "  ", (words, ""))


def _row(number: str, words: str, found: FoundPassage, width: int) -> Content:
    """Weight, what is drafted, and the place."""
    room = max(12, width * 6 // 10 - 7)
    place = _place(found, width - room - 9)
    return Content.assemble((number, _MUTED), " ", (fit(words, room), _TEXT), "  ", (place, _MUTED))


def _place(found: FoundPassage, width: int) -> str:
    line = f":{found.line}" if found.line else ""
    return fit(one_line(found.source), max(4, width - len(line))).rstrip() + line


def _time(seconds: float) -> str:
    return f" · {seconds * 1000:.2f} ms"
