"""What an audit found, in words: a sentence for the command line and the status line, a badge for the answer's foot,
facts about a token for the inspector."""

from __future__ import annotations

from engines.report.events import Audited
from engines.report.run_state import RunState
from engines.report.wording import counted, quoted
from spec_tui.present.text import visible

_BADGES = {
    "identical": ("✓", "good"), "consistent": ("✓", "good"), "tie": ("≈", "warn"), "BUG": ("✗", "bad"),
    "lossy": ("≠", "warn"), "differs": ("≠", "warn"),
}


def badge(found: Audited) -> tuple[str, str]:
    """The verdict in a few words, and the style it is shown in."""
    mark, style = _BADGES[found.verdict]
    words = found.words
    if found.verdict == "lossy":  # random draws leave nothing to count: each token alone could be drawn
        words = "lossy" if found.drawn else f"lossy ({found.differences} of {found.checked})"
    return f"{mark} {words}", style


_EXACT = "without drafts, the code that wrote the answer chooses each of its tokens too, to the last bit"
_INEXACT = "without drafts, the code that wrote the answer chooses another token here, to the last bit"
_OTHER_PROB = "without drafts, the code that wrote the answer gives it another one, to the last bit"
STRICT = "started with --strict, every engine writes the same text"


def sentence(found: Audited, bias: float | None = None) -> str:
    """The verdict and what it means, in a sentence without a full stop; ``bias`` is the run's (``Metrics.bias``)."""
    return f"{found.words}: {_meaning(found, bias)}"


def _meaning(found: Audited, bias: float | None) -> str:
    each = "its only token is" if found.checked == 1 else f"each of its {found.checked} tokens is"
    among = f"{found.checked} token{'' if found.checked == 1 else 's'}"
    gap, explained = (None if value is None else _number(value) for value in (found.gap, found.tolerance))
    if found.verdict == "consistent":
        return (f"{each} one that the target can draw, with the recorded probability; random draws decided which, so "
                "the law keeps the distribution, not the text")
    if found.verdict == "identical":
        leads = [lead for lead in found.leads if lead is not None]
        close = f"; its two best scores were never closer than {_number(min(leads))}" if leads else ""
        return f"{each} the target's own choice{close}"
    if found.verdict == "lossy":
        biased = "" if bias is None else f", bias {bias:.3f} per round"
        said = f"the target's distribution is changed by design{biased}"
        if not found.drawn:
            if not found.differences and not bias:
                return f"the law may change the target's distribution; here {each} the target's own choice"
            return f"{said}; {found.differences} of {among} are not the target's choice"
        cannot = f"; {found.differences} of {among} are ones that the target cannot draw"
        return said + (cannot if found.differences else "")
    if found.drawn:
        why = _OTHER_PROB if _inexact(found, found.at) else f"it is {gap} away; rounding explains only {explained}"
        return f"the target cannot have drawn this token with this probability; {why}"
    choice = f"the target's choice there is {quoted(found.choices[found.at].piece)}"
    if found.verdict == "tie":
        more = f"; {found.ties} ties in {among}" if found.ties > 1 else ""
        exact = f"; {_EXACT}" if found.exact else ""
        return f"{choice}; the gap of {gap} is within the {explained} that rounding explains{more}{exact}"
    if _inexact(found, found.at):
        return f"{choice}; {_INEXACT}"
    why = "; another program's arithmetic differs by more, or its drafts do" if found.verdict == "differs" else ""
    ahead = f"{gap} ahead; rounding explains only {explained}"
    return f"{choice}, {ahead}; {found.differences} of {among} differ{why}"


def near_tie(run: RunState, at: int) -> bool | None:
    """Whether rounding explains that another text of the same target parts from an answer at a token, by the answer's
    audit: its best scores there are as close as rounding moves them. None where no audit says so."""
    found = run.audited
    if found is None or found.drawn or at >= len(found.leads):
        return None
    near = found.gaps[at] or found.leads[at]
    return None if near is None else near <= found.tolerance and not _wrong(found, at)


def _wrong(found: Audited, index: int) -> bool:
    """Whether nothing explains the token at a place of the answer."""
    return found.gaps[index] > found.tolerance or _inexact(found, index)


def _inexact(found: Audited, index: int) -> bool:
    """Whether that token is within the tolerance, but is not what the code that wrote the answer makes without
    drafts."""
    return found.exact is False and index == found.at and found.gaps[index] <= found.tolerance


def parting(run: RunState, at: int, strict: bool | None) -> str:
    """Why an answer parts from its baseline at a token, in a sentence without a full stop: the same explanation as the
    audit's, by the same measure. ``strict``: whether the model was loaded so that its logits do not depend on drafts;
    None where that is no choice."""
    if at == len(run.tokens):
        return f"≠ ends after {counted(at, 'token')}, where autoregressive decoding goes on"
    tie, emitted = near_tie(run, at), run.tokens[at].emitted
    close = "" if emitted.gap is None else f", where the two best scores are {_number(emitted.gap)} apart"
    if tie is None:
        why = f"≠ differs from autoregressive decoding at token {at + 1}{close}; F6 says whether rounding explains it"
    elif tie:
        why = (f"≈ tie at token {at + 1} with autoregressive decoding{close}: rounding explains "
               f"{_number(run.audited.tolerance)}, so both are the target's choice")
    else:
        why = f"✗ differs from autoregressive decoding at token {at + 1}{close}, and rounding does not explain it"
    helps = strict is False and tie is not False
    return why + (f"; {STRICT}" if helps else "")


def parting_badge(run: RunState, at: int) -> str:
    """The same in a few words."""
    tie = near_tie(run, at)
    return f"differs at token {at + 1} ≠" if not tie else f"baseline: tie at {at + 1} ≈"


def of_token(found: Audited, index: int, token: int) -> list[tuple[str, str]]:
    """Name and value of what the audit says about a place of the answer and the token there."""
    gap, choice, lead = found.gaps[index], found.choices[index], found.leads[index]
    explained, only = _number(found.tolerance), "only " if _wrong(found, index) else ""
    target = f"{visible(choice.piece)} ({choice.prob:.3f})"
    if _inexact(found, index):
        return [("audit", f"✗ {_OTHER_PROB if found.drawn else _INEXACT}")]
    if found.drawn:
        return [("audit", f"✗ the target cannot draw it with this probability: {_number(gap)} away, rounding explains "
                          f"{explained}"
                 if only else "the target can draw this token, with this probability")]
    if token == choice.token:
        ahead = "" if lead is None else f", {_number(lead)} ahead of the next"
        return [("audit", f"✓ the target's own choice{ahead}")]
    if found.verdict == "lossy":
        return [("audit", f"≠ the target's choice is {target}, gap {_number(gap)}")]
    return [("audit", f"✗ the target's choice is {target}" if only else f"≈ a tie with the target's choice {target}"),
            ("gap", f"{_number(gap)}; rounding explains {only}{explained}{'' if only else ' in this text'}")]


def _number(value: float) -> str:
    """Two significant digits."""
    return f"{value:.2g}"
