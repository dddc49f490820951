"""Figures of retrieval: tries, neighbours, and two trees that become one."""

from __future__ import annotations

from engines.core.tree import depths
from engines.cost.curve import CostCurve
from engines.methods import what_drafts
from engines.report.events import Round
from engines.report.run_state import RunState, origin_of
from engines.report.wording import context_tail, counted, quoted
from spec_tui.learn.figures.base import LessonFigure, Runs, told
from spec_tui.learn.lesson_facts import followers
from spec_tui.present.rows import Row, bar, struck
from spec_tui.present.text import in_column, one_line
from spec_tui.present.token_styles import ACCEPTED, HERE, PRUNED, REJECTED
from spec_tui.present.tree_paths import chain_to


class TrieFigure(LessonFigure):
    """A tree of continuations with their shares, and the cut to the c likeliest nodes."""

    title = "continuations in a trie, cut to c nodes"
    moves = "c, the nodes that are kept"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        draft, reach = event.draft, []
        for node, parent in enumerate(draft.parents):
            reach.append(draft.probs[node] * (reach[parent] if parent >= 0 else 1.0))
        self.reach, self.depth = reach, depths(draft.parents)
        self.order = sorted(range(len(reach)), key=lambda node: (-reach[node], self.depth[node], node))
        self.most = self.kept = len(reach)

    def move(self, step: int) -> None:
        self.kept = max(1, min(self.most, self.kept + step))

    def still(self, width: int, height: int) -> list[Row]:
        self.kept = (self.most + 1) // 2
        return self.rows(width, height)

    def rows(self, width: int, height: int) -> list[Row]:
        draft, kept = self.event.draft, set(self.order[: self.kept])
        leaves = [node for node in range(len(draft.parents)) if node not in set(draft.parents)]
        path, out = self.event.path, []
        below = sum(1 for node in path if node in kept and all(n in kept for n in path[: path.index(node)]))
        leaves.sort(key=lambda leaf: (leaf not in path[-1:], set(chain_to(draft.parents, leaf)).isdisjoint(path), leaf))
        said = told(width, f"c = {self.kept}: {self.kept} of the {self.most} nodes of this run's draft stay.",
                    f"{below} of {counted(len(path), 'accepted token')} would be drafted. The pass reads "
                    f"{self.kept + 1} rows{self._price()}. {ACCEPTED} accepted, {REJECTED} not accepted, {PRUNED} cut.")
        room = max(2, height - len(said))
        for leaf in leaves[: room - (len(leaves) > room)]:
            chain = chain_to(draft.parents, leaf)
            row: list = [(" ", "text")]
            for node in chain:
                mark = PRUNED if node not in kept else ACCEPTED if node in path else REJECTED
                word = f"{one_line(quoted(draft.pieces[node]), 12)} "
                row += struck(mark, word) if node not in kept else [
                    (mark + word, "accepted" if node in path else "text")]
                row.append((f"{self.reach[node]:.3f} ", "muted"))
            out.append(row)
        if len(leaves) > len(out):
            out.append([(f" … and {counted(len(leaves) - len(out), 'more branch')}", "muted")])
        return [*out, *said]

    def _price(self) -> str:
        if self.run.started is None or not self.run.started.price:
            return ""
        curve, rows = CostCurve(self.run.started.price), self.kept + 1
        guessed = "about " if rows > curve.points[-1][0] else ""  # beyond what was measured
        return f": {guessed}{curve.at(rows) / curve.at(1):.2f} × t(1)"


class CountsFigure(LessonFigure):
    """What followed the last tokens wherever they occurred before in the conversation, and how often."""

    title = "what followed the last tokens of the text so far, counted"
    moves = "how many last tokens are looked for"
    direction = 1
    _FOLLOWERS = 5  # that are listed

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.found = []  # by how many last tokens: what followed how often
        while more := followers(run, event, len(self.found) + 1):
            self.found.append(more)
        self.count = len(self.found)

    def still(self, width: int, height: int) -> list[Row]:
        out: list[Row] = []
        for self.at in range(min(2, len(self.found))):  # noqa: B020
            out += self.rows(width, height)
        self.at = 0
        return out

    def rows(self, width: int, height: int) -> list[Row]:
        found, end = self.found[self.at], "".join(context_tail(self.run, self.event.position, self.at + 1))
        times, most = sum(count for _, count in found), found[0][1]
        listed = found[: self._FOLLOWERS]
        out: list[Row] = []
        for piece, count in listed:
            style = "accent" if count == most else "bar"
            out.append([(f" {in_column(quoted(piece), 16)}", "text"), (f"{bar(count / times, 24):<24}", style),
                        (f" {count} of {times} = {count / times:.2f}", "text")])
        rest = len(found) - len(listed)
        longer = self.at + 1 < len(self.found)
        return [*out, *told(width, f"The last {counted(self.at + 1, 'token') if self.at else 'token'}, "
                            f"{one_line(quoted(end), 30)}, occurred {counted(times, 'time')} before.",
                            f"{counted(rest, 'other token')} followed, too. " * bool(rest)
                            + ("A longer match is rarer, but predicts better." if longer else
                               "A longer end of the text never occurred before."))]


class NeighboursFigure(LessonFigure):
    """What lay nearest to the present state: what passed the filter, and what was dropped."""

    title = "the nearest states, and how they went on"
    moves = "the neighbour"
    draws = "the list, or the map"
    verb = "Map"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.found, self.mapped = event.retrieval, False
        passages, dropped = self.found.passages, self.found.dropped
        kept = [True] * len(passages) + [False] * len(dropped)
        self.near = sorted(zip((*passages, *dropped), kept, self.found.map, strict=True),
                           key=lambda one: -one[0].weight)
        self.count = len(self.near)

    def draw(self) -> None:
        self.mapped = not self.mapped

    def still(self, width: int, height: int) -> list[Row]:
        return [*self._list(width, height), *self._map(width, height)]

    def rows(self, width: int, height: int) -> list[Row]:
        return self._map(width, height) if self.mapped else self._list(width, height)

    def _map(self, width: int, height: int) -> list[Row]:
        """The present state in the middle of its neighbours; a cell is twice as high as wide."""
        said = told(width, f"{HERE} is the present state; the numbers are those of the list.",
                    f"Neighbours marked {REJECTED} were dropped. The map shows only the two directions in which these "
                    "keys differ most from the present one, so distances in it are rough.")
        rows, columns = max(3, height - len(said)), width - 1
        left, right, low, high = (limit(0.0, *(place[axis] for *_, place in self.near))
                                  for axis in (0, 1) for limit in (min, max))
        scale = max((right - left) / (columns - 1), (high - low) / (2 * (rows - 1)), 1e-9)
        cells = [[(" ", "text")] * columns for _ in range(rows)]
        marks = [(str(n) if kept else f"{REJECTED}{n}", "accent" if n == self.at + 1 else "text" if kept else "bad",
                  place) for n, (_, kept, place) in enumerate(self.near, 1)]
        for mark, style, (x, y) in [(HERE, "strong", (0.0, 0.0)), *marks]:
            _put(cells[round((high - y) / (2 * scale))], round((x - left) / scale), mark, style)
        return [*cells, *said]

    def _list(self, width: int, height: int) -> list[Row]:
        scores, text, left = self.found.scores, max(20, width - 28), max(10, (width - 28) // 3)
        out: list[Row] = []
        listed = sum(kept for _, kept, _ in self.near)
        passed = (f"{counted(self.found.hits, 'near state')} passed the filter; {self.found.used} are used, the "
                  f"nearest {listed} are listed, with those that were dropped.")
        dropped = f"{REJECTED} continues with another token and is dropped." if self.found.dropped else ""
        said = told(width, f"{passed} {dropped}".rstrip(),
                    f"Cosines of those used: {min(scores):.3f} to {max(scores):.3f}. The token before | followed "
                    "the key; the text after | would be drafted.")
        room, count = max(2, height - len(said)), len(self.near)
        room -= count > room  # for the row that says how many more there are
        first = max(0, self.at - room + 1)
        for n, (passage, kept, _) in list(enumerate(self.near))[first : first + room]:
            before = "…" + one_line(passage.before, 400)[-left + 1 :]
            after = one_line(passage.after, 400)[: text - left - 1].rstrip("…") + "…"
            here = n == self.at
            out.append([(f"{HERE if here else ' '}{n + 1:>2} {passage.weight:.3f} ", "strong" if here else "text"),
                        (f"{bar(max(0.0, passage.weight), 12):<12} ", "bar" if kept else "muted"),
                        (f"{' ' if kept else REJECTED} ", "bad"), (f"{before:>{left}}", "muted"), ("|", "accent"),
                        (after, "ghost" if not kept else "strong" if here else "text")])
        below = count - first - len(out)
        more = " · ".join([f"↓ {below} more"] * bool(below) + [f"↑ {first} above"] * bool(first))
        return [*out, *([[(f" … {more}", "muted")]] if more else []), *said]


def _put(cells: Row, at: int, mark: str, style: str) -> None:
    """A mark at a place of a row of cells, or at the next one to the right, else to the left, where it stands alone."""
    size = len(mark)
    free = [n for n in range(len(cells) - size + 1)
            if all(not text.strip() for text, _ in cells[max(0, n - 1) : n + size + 1])]
    for n, sign in enumerate(mark, min(free, key=lambda n: (abs(n - at), -n), default=at)):
        cells[n] = (sign, style)


class KeyFigure(LessonFigure):
    """Which state is the key: the one from which the last token was chosen."""

    title = "which state is the key"

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        self.read, self.root = (one_line(quoted(piece), 14) for piece in context_tail(run, event.position, 2))

    def rows(self, width: int, height: int) -> list[Row]:
        table = (("token", self.read, self.root, "the draft"),
                 ("read?", "yes", "not yet: the root", ""),
                 ("state after it", "known: THE KEY", "not there yet", ""),
                 ("chosen from it", self.root, "what comes next", ""))
        return [[(f" {head:<16}", "title"), *((f"{cell:<20}", "accent" if "KEY" in cell else "text") for cell in cells)]
                for head, *cells in table]


class FusionFigure(LessonFigure):
    """Two trees become one, in three steps."""

    title = "two trees become one"
    moves = "the step: what was drafted, what was retrieved, both"
    _SAYS = ("what the {} drafted", "what was retrieved, and what was pruned", "fused: shared tokens once")
    count = len(_SAYS)

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        super().__init__(runs, run, event)
        draft = event.draft
        self.sources = [{origin_of(draft, node).source} | (
            {draft.origins[draft.also[node]].source} if draft.also[node] >= 0 else set())
            for node in range(len(draft.tokens))]

    def still(self, width: int, height: int) -> list[Row]:
        out: list[Row] = []
        for self.at in range(len(self._SAYS)):  # noqa: B020
            out += self.rows(width, height)
        return out

    def rows(self, width: int, height: int) -> list[Row]:
        draft, shown = self.event.draft, []
        for node, who in enumerate(self.sources):
            model = "draft" in who
            if self.at == 2 or (model if self.at == 0 else who - {"draft"}):
                shown.append(node)
        inner = {draft.parents[node] for node in shown}
        out: list[Row] = []
        above: list[int] = []
        for chain in sorted(chain_to(draft.parents, node) for node in shown if node not in inner):
            row: list = [(" ", "text")]
            for depth, node in enumerate(chain):
                who = self.sources[node]
                model = "draft" in who
                style = "strong" if len(who) > 1 else "by-draft" if model else "by-retrieval"
                sign = ("D", "R", "B" if len(who) > 1 else "D" if model else "R")[self.at]
                cell = f"{sign}{one_line(quoted(draft.pieces[node]), 12)} "
                row.append((" " * len(cell), "text") if above[: depth + 1] == chain[: depth + 1] else (cell, style))
            out.append(row)
            above = chain
        found = self.event.retrieval
        if self.at == 1 and found.pruned:
            row = []
            for piece, count in found.pruned:
                row += [(" ", "text"), *struck(PRUNED, one_line(quoted(piece), 12)),
                        (f" and {count - 1} after it" * (count > 1), "muted")]
            out.append(row)
        both = sum(len(who) > 1 for who in self.sources)
        says = self._SAYS[self.at].format(what_drafts(self.run))
        marks = ("D: drafted.", "R: retrieved.", f"D: only drafted, R: only retrieved, B: both ({both}).")[self.at]
        said = told(width, f"{self.at + 1} of 3: {says}.", f"{counted(len(shown), 'node')}. {marks}")
        room = max(2, height - len(said))
        if (more := len(out) - room + 1) > 1:
            out = [*out[: room - 1], [(f" … and {counted(more, 'more branch')}", "muted")]]
        return [*out, *said]
