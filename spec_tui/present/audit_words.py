"""What an audit found, in words: a sentence for the command line and the status line, a badge for the answer's foot,
facts about a token for the inspector."""

from __future__ import annotations

from engines.report.events import Audited
from spec_tui.present.text import visible

_BADGES = {
    "identical": ("✓", "good"), "consistent": ("✓", "good"), "tie": ("≈", "warn"), "BUG": ("✗", "bad"),
    "lossy": ("≠", "warn"),
}


def badge(found: Audited) -> tuple[str, str]:
    """The verdict in a few words, and the style it is shown in."""
    mark, style = _BADGES[found.verdict]
    words = found.words
    if found.verdict == "lossy":  # random draws leave nothing to count: each token alone could be drawn
        words = "lossy" if drawn(found) else f"lossy ({found.differences} of {found.checked})"
    return f"{mark} {words}", style


def sentence(found: Audited, bias: float | None = None) -> str:
    """The verdict and what it means, in a sentence without a full stop; ``bias`` is the run's (``Metrics.bias``)."""
    meaning = _lossy(found, bias) if found.verdict == "lossy" else _MEANINGS[found.verdict](found)
    return f"{found.words}: {meaning}"


def of_token(found: Audited, index: int, token: int) -> list[tuple[str, str]]:
    """Name and value of what the audit says about a place of the answer and the token there."""
    gap, choice, lead = found.gaps[index], found.choices[index], found.leads[index]
    target = f"{visible(choice.piece)} ({choice.prob:.3f})"
    if drawn(found):
        if gap <= found.tolerance:
            return [("audit", "the target can draw this token, with this probability")]
        return [("audit", f"✗ the target cannot draw it so: {number(gap)} from there, rounding explains "
                          f"{number(found.tolerance)}")]
    if token == choice.token:
        ahead = "" if lead is None else f", {number(lead)} ahead of the next"
        return [("audit", f"✓ the target's own choice{ahead}")]
    if found.verdict == "lossy":
        return [("audit", f"≠ the target's choice is {target}, gap {number(gap)}")]
    if gap <= found.tolerance:
        return [("audit", f"≈ a tie with the target's choice {target}"),
                ("gap", f"{number(gap)}; rounding explains {number(found.tolerance)} in this text")]
    return [("audit", f"✗ the target's choice is {target}"),
            ("gap", f"{number(gap)}; rounding explains only {number(found.tolerance)}")]


def drawn(found: Audited) -> bool:
    """Whether random draws decided: then there is no choice to compare, only what the target can draw."""
    return all(lead is None for lead in found.leads)


def number(value: float) -> str:
    """Two significant digits."""
    return f"{value:.2g}"


def _identical(found: Audited) -> str:
    leads = [lead for lead in found.leads if lead is not None]
    close = f"; the closest call was {number(min(leads))}, rounding explains {number(found.tolerance)}" if leads else ""
    return f"{_all(found)} the target's own choice{close}"


def _tie(found: Audited) -> str:
    more = f", {found.ties} ties in {_count(found.checked)}" if found.ties > 1 else ""
    return (f"the target's choice there is {visible(found.choices[found.at].piece)}, as good within rounding, "
            f"which explains {number(found.tolerance)}{more}")


def _bug(found: Audited) -> str:
    if drawn(found):
        return (f"the target cannot have drawn this token with this probability; {number(found.gap)} from there, "
                f"rounding explains {number(found.tolerance)}")
    return (f"the target's choice there is {visible(found.choices[found.at].piece)}, {number(found.gap)} ahead, "
            f"rounding explains {number(found.tolerance)}; {found.differences} of {_count(found.checked)} differ")


def _consistent(found: Audited) -> str:
    return (f"{_all(found)} one that the target can draw, with the recorded probability; random draws decided "
            "which, so the law keeps the distribution, not the text")


def _lossy(found: Audited, bias: float | None) -> str:
    said = "the target's distribution is changed by design" + ("" if bias is None else f", bias {bias:.3f} a round")
    among = f"{found.differences} of {_count(found.checked)}"
    if not drawn(found):
        return f"{said}; {among} are not the target's choice"
    return f"{said}; {among} are ones that the target cannot draw" if found.differences else said


def _all(found: Audited) -> str:
    return "its only token is" if found.checked == 1 else f"each of its {found.checked} tokens is"


def _count(tokens: int) -> str:
    return f"{tokens} token{'' if tokens == 1 else 's'}"


_MEANINGS = {"identical": _identical, "tie": _tie, "BUG": _bug, "consistent": _consistent}
