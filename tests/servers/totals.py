"""What llama.cpp's server has counted of its speculation."""

from __future__ import annotations

import urllib.request
from typing import NamedTuple

_ROW = "llamacpp:spec_decode_num_{}_total"


class Totals(NamedTuple):
    """Over all requests since it was started."""

    rounds: int
    drafted: int
    accepted: int

    def since(self, before: Totals) -> Totals:
        """What came after."""
        return Totals(*(now - then for now, then in zip(self, before, strict=True)))


def totals(address: str, key: str) -> Totals:
    """As its ``/metrics`` says them."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(address + "/metrics", headers={"Authorization": f"Bearer {key}"})
    with opener.open(asked, timeout=10) as answer:
        rows = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return Totals(*(int(rows[_ROW.format(name)]) for name in ("drafts", "draft_tokens", "accepted_tokens")))
