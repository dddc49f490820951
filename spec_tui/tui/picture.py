"""The application's screen at the end of a trace, as SVG: drawn without a terminal."""

from __future__ import annotations

import asyncio

from engines.errors import RunFailed
from engines.report.traces import Trace
from spec_tui.export.svg import portable
from spec_tui.session.replay_client import ReplayClient

_FRAMES = 200


def picture(trace: Trace, name: str, size: tuple[int, int] = (120, 40), theme: str | None = None,
            rejected: bool = False) -> str:
    """The screen as SVG, without links to fonts or sites. Raises RunFailed where it does not come to its end."""
    return asyncio.run(_picture(trace, name, size, theme, rejected))


async def _picture(trace: Trace, name: str, size: tuple[int, int], theme: str | None, rejected: bool) -> str:
    from spec_tui.tui.recorded import replay

    app = replay(ReplayClient(trace, float("inf"), title=name), theme=theme, rejected=rejected)
    async with app.run_test(size=size) as pilot:
        for _ in range(_FRAMES):
            await pilot.pause(0.02)
            if app.session.ready is not None and app.client.over:
                break
        else:
            raise RunFailed("the picture did not get finished", "try again on an idle machine")
        app.screen.draw_all()
        await pilot.pause()
        return portable(app.export_screenshot(title=f"spec-tui replay {name}"))
