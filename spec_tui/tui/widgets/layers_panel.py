"""The layers of the target when it drafts for itself: one cell a sublayer, its cosine above, and below whether leaving
some out is faster: the cost of a draft's forward pass, agreement and break-even agreement on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engines.methods import drafts_itself, known, with_rules
from engines.report.events import Layers
from spec_tui.present.speed_verdict import Speed
from spec_tui.present.token_styles import PRESENT
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.layers_view import LayersView, Payoff
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, bar, clip, fit, rows_of, title_row
from spec_tui.tui.widgets.strip_plot import columns

NAME = 14  # columns of what a row of the scale is of
LABEL = 7  # columns before the cells
WIDEST = 8  # columns of a cell
TALLEST = 16  # rows of a plot
NUMBERS = 4  # columns of a cell from which on its cosine stands below it
RUNS, STAYS, AGAIN = PRESENT, "▣", "+"
RULES = {"cosine": "c", "interval": "i", "both": "b", "search": "s"}
_INKS = {"cosine": "accent", "interval": "strong", "both": "warn", "search": "accent"}
_GOING = {glyph.upper() for glyph in RULES.values()}
_KEY = {"c": "cosine", "i": "interval", "b": "both", "s": "as set", STAYS: "last n", RUNS: "runs"}
KEYS = "←→ α  ↑↓ m  −+ n  enter measures"


class LayersPanel(HasActions, StripPanel, can_focus=True):
    """Draws a ``LayersView``; its keys move the rules of the next answer."""

    word_here = "sublayer"
    ACTIONS = (
        Action(id="layers.alpha-less", run="screen.rule('alpha', -1)", keys="left", label="α",
               help="Lower the threshold α: the next answer drafts with fewer attention sublayers"),
        Action(id="layers.alpha-more", run="screen.rule('alpha', 1)", keys="right", label="α",
               help="Raise the threshold α: the next answer drafts with more attention sublayers"),
        Action(id="layers.m-less", run="screen.rule('m', -1)", keys="down", label="m",
               help="Leave out more layers: every m-th, with a smaller m"),
        Action(id="layers.m-more", run="screen.rule('m', 1)", keys="up", label="m",
               help="Leave out fewer layers: every m-th, with a larger m"),
        Action(id="layers.n-less", run="screen.rule('n', -1)", keys="minus", label="n",
               help="Keep fewer of the last layers, whatever the rules say"),
        Action(id="layers.n-more", run="screen.rule('n', 1)", keys="plus,equals_sign", label="n",
               help="Keep more of the last layers, whatever the rules say"),
        Action(id="layers.measure", run="screen.measure_layers", keys="enter", label="Measure",
               help="Measure the cosines over the prompt that is typed, else the last one, without answering it"),
    )

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._look = LayersView()

    def show_look(self, look: LayersView) -> None:
        """Show this."""
        self._look = look
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        return rows(self._look, width, height, self.detailed)


@dataclass(frozen=True, slots=True)
class Grid:
    """How the layers are laid out: ``bands`` rows of ``per`` layers, cells of ``cell`` columns, ``plot`` rows above."""

    cell: int
    per: int
    bands: int
    plot: int
    numbers: bool
    axis: bool = True

    def height(self, kinds: int) -> int:
        """Rows of all bands, with the cosines of so many kinds of sublayers."""
        return self.bands * (self.plot + 2 + self.axis + (kinds if self.numbers else 0))


def rows(look: LayersView, width: int, height: int, detailed: bool = True) -> list[Row]:
    """The panel: which sublayers are left out and what that comes to; in detail their cosines and the numbers."""
    head = title_row(width, "layers", fit(_title(look), max(0, width - 12)).rstrip())
    layers = look.shown
    if layers is None:
        said, hint = _nothing(look, width), _hint(look, width) if drafts_itself(look.engine) else BLANK
        return [head, *said, *[BLANK] * max(0, height - 2 - len(said)), hint][:height]
    # What it comes to, then the scale, the keys, the counts, the legend; shown in another order.
    numbers = [(2, row) for row in scale(look.payoff, width)] if detailed else []
    foot = [(1, verdict(look, width)), *numbers, (3, _hint(look, width)), (0, [(counts(look, width), "muted")]),
            (4, _legend(look, width))]
    known = [_known(cosines) for cosines in (layers.attention_cosine, layers.mlp_cosine)]
    kinds = sum(map(bool, known)) if detailed else 0
    grid, kept = layout(len(layers.attention), width, height - 1, kinds, len(foot))
    body = bands(look, grid, width)
    below = [row for _, row in sorted(foot[:kept], key=lambda part: part[0])]
    return [head, *body, *[BLANK] * (height - 1 - len(body) - len(below)), *below][:height]


def layout(layers: int, width: int, height: int, kinds: int, below: int) -> tuple[Grid, int]:
    """How all layers fit into so many rows, and how many of the ``below`` rows beside them: these give way before the
    plot, and the plot before the axis. In as few bands as there can be, with numbers if there is room for them.

    Args:
        kinds: of sublayers whose cosines are known; where there are none there is no plot.
    """
    room = max(1, width - LABEL)
    tries = [*((1, kept, True) for kept in range(below, 0, -1)), (0, 1, True), (0, 0, True), (0, 0, False)]
    for least, kept, axis in tries:
        for narrowest in (NUMBERS, 1) if kinds else (1,):
            numbers = narrowest == NUMBERS
            count = -(-layers // max(1, room // narrowest))
            per = -(-layers // count)
            cell = min(WIDEST if numbers else NUMBERS - 1, room // per)
            grid = Grid(cell, per, count, (least + (numbers and least)) if kinds else 0, numbers, axis)
            spare = height - kept - grid.height(kinds)
            if spare >= 0 and cell >= narrowest:
                return replace(grid, plot=min(grid.plot + spare // count, TALLEST) if kinds else 0), kept
    return Grid(1, room, -(-layers // room), 0, False, False), 0


def bands(look: LayersView, grid: Grid, width: int) -> list[Row]:
    """Every layer once, in order."""
    count = len(look.shown.attention)
    out: list[Row] = []
    for begin in range(0, count, grid.per):
        out += _of_band(look, range(begin, min(count, begin + grid.per)), grid, width)
    return out


def _of_band(look: LayersView, span: range, grid: Grid, width: int) -> list[Row]:
    layers, pad = look.shown, grid.cell
    out = _plot(look, span, grid, width)
    for name, kind in (("attn", "attention"), ("MLP", "mlp")):
        row: list[Span] = [(fit(name, LABEL), "muted")]
        for layer in span:
            row += cell(look, kind, layer, pad)
        out.append(row)
        cosines = getattr(layers, f"{kind}_cosine")
        if grid.numbers and _known(cosines):
            words = "".join(fit(_number(_at(cosines, layer), pad), pad) for layer in span)
            out.append([(fit("  C", LABEL), "muted"), (words, "muted")])
    if grid.axis:
        out.append([(fit("layer", LABEL), "muted"), (_axis(span, pad), "muted")])
    return out


def cell(look: LayersView, kind: str, layer: int, width: int = 1) -> list[Span]:
    """One sublayer: whether drafting runs it, or which rule leaves it out; what the next answer changes stands out."""
    layers = look.shown
    rule, before = getattr(layers, kind)[layer], getattr(look.used or layers, kind)[layer]
    changed = bool(rule) != bool(before)
    if rule:
        glyph = RULES[rule].upper() if changed else RULES[rule]
        text, style = glyph + "·" * max(0, width - 2), "changed" if changed else _INKS[rule]
    else:
        stays = layers.n is not None and layer >= len(layers.attention) - layers.n
        glyph = AGAIN if changed else STAYS if stays else RUNS
        text, style = glyph * max(1, width - 1), "changed" if changed else "muted" if stays else "bar"
    return [(text, style), (" " * (width - len(text)), "text")] if width > 1 else [(text, style)]


def nines(cosine: float) -> float:
    """Height of a cosine: 0 at 0, 1 at .9, 2 at .99, so that those near 1 can be told apart."""
    return min(4.0, -math.log10(max(1e-4, 1 - max(0.0, cosine))))


@dataclass(frozen=True, slots=True)
class Axis:
    """Of a plot of cosines: the nines at its top, and how many of its rows lie below the threshold, if there is one."""

    top: float
    below: int | None

    @classmethod
    def of(cls, look: LayersView, height: int) -> Axis:
        """Above every cosine; the threshold lies between two rows, so that a bar crosses its line or does not."""
        layers, alpha = look.shown, look.shown.alpha
        most = max((nines(c) for c in (*_known(layers.attention_cosine), *_known(layers.mlp_cosine))), default=1.0)
        most = max(0.5, most, 0.0 if alpha is None else nines(alpha))
        if alpha is None:
            return cls(most, None)
        at = nines(alpha)
        below = max(1, min(height - 1, int(at * height / most))) if at > 0.01 and height > 1 else 0
        return cls(at * height / below if below else most, below)

    def eighths(self, cosine: float, height: int, alpha: float | None) -> int:
        """Height of a bar; on the right side of the threshold however near it is."""
        found = max(0, min(height * 8, round(nines(cosine) / self.top * height * 8)))
        if alpha is None or not self.below:
            return found
        edge = self.below * 8
        return max(found, edge + 1) if cosine >= alpha else min(found, edge)


def _plot(look: LayersView, span: range, grid: Grid, width: int) -> list[Row]:
    """Cosines as columns, those of attention and beside them those of MLP, and the threshold as a line."""
    layers, height, alpha = look.shown, grid.plot, look.shown.alpha
    if not height:
        return []
    axis, beside = Axis.of(look, height), int(bool(_known(layers.mlp_cosine)) and grid.cell > 2)
    wide = max(1, (grid.cell - 1) // 2) if beside else max(1, grid.cell - 1)
    attention, mlp = (
        columns([axis.eighths(_at(cosines, n) or 0.0, height, alpha) for n in span], height * 8, height)
        for cosines in (layers.attention_cosine, layers.mlp_cosine)
    )
    line = -1 if axis.below is None else height - 1 - axis.below
    out: list[Row] = []
    for y in range(height):
        blank = "┄" if y == line else " "
        row: list[Span] = [(_label(y, line, axis.top, alpha), "accent" if y == line else "muted")]
        for x, layer in enumerate(span):
            over = alpha is not None and (_at(layers.attention_cosine, layer) or 0.0) >= alpha
            row.append(_column(attention[y][x] * wide, blank, "accent" if over else "bar"))
            if beside:
                row.append(_column(mlp[y][x].replace("█", "▒"), blank, "muted"))
            row.append((blank * (grid.cell - wide - beside), "rule"))
        out.append(row)
    return out


def _column(text: str, blank: str, style: str) -> Span:
    return (blank * len(text), "rule") if text.isspace() else (text, style)


def _label(y: int, line: int, top: float, alpha: float | None) -> str:
    if y == line:
        return fit(f"α{_short(alpha)}", 5, right=True) + " ┤"
    if y == 0:
        return f"{_short(1 - 10 ** -top):>5} ┤"
    return "      │"


def _axis(span: range, pad: int) -> str:
    """Numbers of the layers, counted from 1, as many as can be read."""
    every = 1 if pad >= 3 else 5
    text = ""
    for n in range(span.start + 1, span.stop + 1):
        at = (n - 1 - span.start) * pad
        free = len(text) < at and at + len(str(n)) <= len(span) * pad
        if not text or (n % every == 0 and free):
            text = text.ljust(at) + str(n)
    return text


def counts(look: LayersView, width: int) -> str:
    """How many sublayers drafting leaves out; of the next answer what changes."""
    now, before = look.shown, look.used or look.shown
    parts = []
    for name, gone, was in (("attention", now.attention, before.attention), ("MLP", now.mlp, before.mlp)):
        a, b = sum(map(bool, was)), sum(map(bool, gone))
        parts.append(f"{b} {name}" if a == b else f"{a}→{b} {name}")
    head = "skipped next:" if look.changes else "skipped:"
    return fit(f"{head} {' and '.join(parts)} of {len(now.attention)}", width)


def _title(look: LayersView) -> str:
    rules = look.shown or Layers((), ())
    values = (("α", rules.alpha), ("m", rules.m), ("n", rules.n))
    words = "  ".join(f"{name} {value:g}" for name, value in values if value is not None)
    if drafts_itself(look.engine) and not known(look.engine).layer_rules:
        # the cells may still be those of an answer by rules
        return f"{words}  next: a fixed set" if words else "a fixed set"
    return f"next: {words}" if look.changes else words


def _nothing(look: LayersView, width: int) -> list[Row]:
    spec, rules = known(look.engine), with_rules()
    if look.asks:
        text = (spec.layers_unknown if spec is not None else "") or (
            f"this engine leaves out no layers: /engine {rules} drafts with a part of the model")
    elif drafts_itself(look.engine):
        text = "which layers this run leaves out is not recorded"
    else:
        text = f"this engine leaves out no layers: spec-tui replay {rules} shows one that does"
    return [BLANK, *rows_of(text, max(10, width), "muted")]


def _hint(look: LayersView, width: int) -> Row:
    if not look.asks:
        return BLANK
    spec = known(look.engine)
    words = KEYS if spec is not None and spec.layer_rules else (spec.layers_hint if spec is not None else "")
    words = words or f"/engine {with_rules()} leaves out layers"
    return [(fit(words, width), "muted")]


def _legend(look: LayersView, width: int) -> Row:
    """The marks that are there, and what they mean."""
    layers = look.shown
    there = {cell(look, kind, n)[0][0] for kind in ("attention", "mlp") for n in range(len(layers.attention))}
    going = " ".join(sorted(there.intersection(_GOING)))
    there |= set(going.lower())
    text = ""
    for glyph, words in {AGAIN: "will run", going: "won't run", **_KEY}.items():
        more = f"{'  ' if text else ''}{glyph} {words}"
        text += more if glyph and (glyph in there or glyph == going) and len(text) + len(more) <= width else ""
    return [(text, "muted")]


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _at(values: Sequence[float | None], layer: int) -> float | None:
    value = values[layer] if layer < len(values) else None
    return value if value is not None and math.isfinite(value) else None


def _number(value: float | None, width: int) -> str:
    """A cosine in so many columns, one of them free: .985, 1.0, -.12."""
    if value is None:
        return "—"
    digits = 3 if width > 4 else 2
    text = f"{math.floor(value * 10**digits + 1e-6) / 10**digits:.{digits}f}"  # cut, so that it is not 1 before it is 1
    return "1.0" if text.startswith("1.") else text.replace("0.", ".", 1)


def _short(cosine: float) -> str:
    """A cosine in at most five columns: .99, .9968; those that are 1 within them as 1."""
    return f"{cosine:.{3 if cosine < 0.9995 else 4}f}".rstrip("0").rstrip(".").lstrip("0") or "0"


def verdict(look: LayersView, width: int) -> Row:
    """Whether leaving out layers is faster here, as fully as there is room for: the run's speed where a baseline was
    measured, its agreement, and the agreement that it would need."""
    found, p = look.verdict, look.payoff
    if p is None:
        words = ["an answer measures whether this is faster", "not measured yet"]
    else:
        needs = "slower even with all accepted" if p.needed is None else f"break-even {two_digits(p.needed)}"
        has, judged = f"agreement {two_digits(p.agreement)}, {needs}", found.noise is not None
        words = [f"{found.words}: {has}", found.words, found.brief] if judged else [f"{has} (forecast)", has]
        if found.speed is Speed.SLOWER and p.forecast.best:
            words.insert(0, f"{words[0]}, forecast: faster with drafts of {p.forecast.best}")
    text = next((w for w in words if len(w) + 2 <= width), words[-1])
    return clip([(found.mark + " ", found.style), (text, "text")], width)


def scale(p: Payoff | None, width: int) -> list[Row]:
    """A draft forward pass, agreement and break-even as shares of 1, on one scale."""
    names = ("draft pass", "agreement", "break-even")
    words = ["—"] * 3 if p is None else [
        f"{two_digits(p.fraction)} of a whole", f"{two_digits(p.agreement)} of {p.judged} judged",
        "> 1, never" if p.needed is None else f"{two_digits(p.needed)} agreement"]
    words = [f"  {text}" if text.startswith(".") else f" {text}" for text in words]
    room = max(8, width - NAME - max(17, *map(len, words)))
    if p is None:
        return [_on_scale(name, 0.0, room, None, "bar", text) for name, text in zip(names, words)]
    at = None if p.needed is None else min(room - 1, int(p.needed * room))
    good = p.needed is not None and p.agreement >= p.needed
    return [
        _on_scale(names[0], p.fraction, room, at, "bar", words[0]),
        _on_scale(names[1], p.agreement, room, at, "good" if good else "bad", words[1]),
        [(fit(names[2], NAME), "muted"), *_break_even(at, room), (words[2], "bad" if at is None else "text")],
    ]


def _on_scale(name: str, value: float, room: int, at: int | None, style: str, words: str) -> Row:
    line = fit(bar(value, room), room)
    row: list[Span] = [(fit(name, NAME), "muted")]
    for text, begin in ((line[:at], 0), (line[at + 1:], at + 1)) if at is not None else ((line, 0),):
        full = text.rstrip()
        row += [(full, style), ("·" * (len(text) - len(full)), "track")]
        if at is not None and begin == 0:
            row.append(("┃", "strong"))
    return [*row, (words, "text")]


def _break_even(at: int | None, room: int) -> Row:
    if at is None:
        return [("─" * room, "rule")]
    return [("─" * at, "rule"), ("┃", "strong"), ("─" * (room - at - 1), "rule")]


def two_digits(value: float) -> str:
    """A share as .71; 1.0 and above with a digit before the point."""
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0.") else text
