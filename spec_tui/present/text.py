"""Names and marks as they are shown. Untrusted text is made safe by ``engines.report.plain_text``."""

from __future__ import annotations

from engines.report.plain_text import LOSSY, one_line, sanitise, visible

__all__ = ["LOSSY", "lossy", "one_line", "sanitise", "visible"]


def lossy(bias: float | None) -> str:
    """The mark of a run that is not lossless, with the mean bias of its rounds (``Metrics.bias``) if there is one."""
    return LOSSY if bias is None else f"{LOSSY}: bias {bias:.3f} per round"
