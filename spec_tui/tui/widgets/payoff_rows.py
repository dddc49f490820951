"""Whether leaving out layers pays, as rows: a sentence, and what a draft forward takes, how often drafts agree and what
they would have to, on one scale."""

from __future__ import annotations

from engines.methods.shared.payoff import Payoff
from spec_tui.tui.layers_view import LayersView
from spec_tui.tui.widgets.price_rows import style_of
from spec_tui.tui.widgets.strip_panel import Row, Span, bar, clip, fit

NAME = 14  # columns of what a row is of

def verdict(look: LayersView, width: int) -> Row:
    """Whether leaving out layers pays here, in words as long as there is room for."""
    mark, style, *words = _verdict(look)
    text = next((w for w in words if len(w) + 2 <= width), words[-1])
    return clip([(mark + " ", style), (text, "text")], width)


def _verdict(look: LayersView) -> tuple[str, ...]:
    """Mark, style, and the sentence in falling lengths. The speed of the run decides where it is known; what agreement
    has to do with it is told beside it."""
    p, speed = look.payoff, look.speed
    if p is None:
        return ("○", "muted", "whether it pays: an answer measures it", "pays? an answer tells",
                "not measured yet")
    has, kind = share(p.agreement), "warn" if speed is None else style_of(speed)
    needs = "" if p.needed is None else share(p.needed)
    if speed is not None and kind != "bad":
        word = f"pays ×{speed:.2f}" if kind == "good" else f"even ×{speed:.2f}"
        word = word if look.sure else f"×{speed:.2f} by t(n)"
        said = f"{word}: needs agreement {f'≥ {needs}' if needs else '> 1'}, has {has}"
        return ("✓", kind, said, word) if kind == "good" and look.sure else ("≈", "warn", said, word)
    mark, style = ("✗", "bad") if look.sure else ("≈", "warn")
    if p.needed is None:
        most, cannot = f"×{p.forecast.at_best:.2f}", "cannot pay here" if look.sure else "seems unable to pay"
        return (mark, style, f"{cannot}: agreement 1 would make {most}, has {has}",
                f"{cannot}: {most} with agreement 1", f"{cannot}: {most}")
    if p.agreement < p.needed:
        not_so = "does not pay here" if look.sure else "seems not to pay"
        return (mark, style, f"{not_so}: needs agreement ≥ {needs}, has {has}",
                f"{not_so}: needs ≥ {needs}, has {has}", f"no: {has} < {needs}")
    would = f"drafts of {p.best} token{'s' * (p.best != 1)} would pay"
    if speed is None:
        return "≈", "warn", f"agreement {has} ≥ {needs}: {would}", f"may pay: {has} ≥ {needs}"
    slow = f"slower ×{speed:.2f}" if look.sure else f"×{speed:.2f} by t(n)"
    return mark, style, f"{slow}, though agreement {has} ≥ {needs}: {would}", f"{slow}, though {has} ≥ {needs}", slow


def scale(p: Payoff | None, width: int) -> list[Row]:
    """A draft forward, agreement and break-even as shares of 1, on one scale."""
    names = ("draft forward", "agreement", "break-even")
    words = ["—"] * 3 if p is None else [
        f"{share(p.fraction)} of a whole", f"{share(p.agreement)} of {p.judged} judged",
        "> 1, never" if p.needed is None else f"{share(p.needed)} agreement"]
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


def share(value: float) -> str:
    """A share as .71; 1.0 and above with a digit before the point."""
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0.") else text
