"""Make the README's picture: the real application, a real answer on the shipped pair, exported as SVG.

    python tools/screenshot.py docs/chat.svg [--prompt TEXT] [--engine draft] [--size 120x40] [--theme spec-dark]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from engines.request import Request
from spec_tui.export.svg import portable
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.session.client import LoadRequest
from spec_tui.session.process import ProcessClient
from spec_tui.tui.app import SpecTui

_PATIENCE = 120.0  # seconds for loading and for the answer


async def picture(path: Path, prompt: str, engine: str, options: dict, size: tuple[int, int], theme: str) -> None:
    """Ask, wait for the end of the answer, measure the baseline, export."""
    request = Request((), engine, options, max_new_tokens=160)
    app = SpecTui(ProcessClient(), LoadRequest("sample"), theme=theme, initial_request_options=request)
    async with app.run_test(size=size) as pilot:
        session = app.session
        await until(pilot, lambda: session.ready is not None)
        pilot.app.screen.query_one("#prompt").text = prompt
        await pilot.press("enter")
        await until(pilot, lambda: session.turns and not session.busy)
        await pilot.press("escape", "b")
        await until(pilot, lambda: session.baselines and not session.busy)
        await pilot.press(*["left_square_bracket"] * 7)  # a round in the middle: its tree says more than the last one's
        await pilot.pause(1.0)
        path.write_text(portable(app.export_screenshot(title="spec-tui")), encoding="utf-8")


async def until(pilot, done) -> None:
    """Wait for a condition of the application."""
    waited = 0.0
    while not done():
        await pilot.pause(0.1)
        waited += 0.1
        if waited > _PATIENCE:
            raise SystemExit("the application did not get there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--prompt", default=SHOWCASES[6].prompt)
    parser.add_argument("--engine", default="draft")
    parser.add_argument("--set", action="append", default=["shape=tree"], metavar="KEY=VALUE")
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--theme", default="spec-dark")
    arguments = parser.parse_args()
    width, height = (int(n) for n in arguments.size.split("x"))
    options = dict(pair.split("=", 1) for pair in arguments.set)
    asyncio.run(
        picture(arguments.path, arguments.prompt, arguments.engine, options, (width, height), arguments.theme)
    )


if __name__ == "__main__":
    main()
