"""Make the pictures of README and tour: the real application, real answers, exported as SVG.

    python tools/screenshot.py docs [SCENE ...] [--model smollm2] [--size 120x40 ...] [--theme spec-dark]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from engines.request import Request
from spec_tui.export.svg import portable
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.session.client import LoadRequest
from spec_tui.session.process import ProcessClient
from spec_tui.tui.app import SpecTui

_PATIENCE = 120.0  # seconds for loading, for an answer
_A_ROUND_IN_THE_MIDDLE = ("left_square_bracket",) * 7  # its tree says more than the last one's


@dataclass(frozen=True)
class Scene:
    """What is pressed after an answer and its baseline, and the text that then has to come."""

    keys: tuple[str, ...]
    until: str = ""
    engine: str = "draft"
    options: dict = field(default_factory=lambda: {"shape": "tree"})


SCENES = {
    "chat": Scene(_A_ROUND_IN_THE_MIDDLE),
    "step": Scene((*_A_ROUND_IN_THE_MIDDLE, "full_stop", *("full_stop",) * 3), "round"),
    "price": Scene(("p",)),
    "copies": Scene(_A_ROUND_IN_THE_MIDDLE, engine="pld", options={}),
}


async def picture(path: Path, scene: Scene, model: str, size: tuple[int, int], theme: str) -> None:
    """Ask, wait for the end of the answer, measure the baseline, go where the scene is, export."""
    request = Request((), scene.engine, scene.options, max_new_tokens=160)
    app = SpecTui(ProcessClient(), LoadRequest(model), theme=theme, initial_request_options=request)
    async with app.run_test(size=size) as pilot:
        session = app.session
        await until(pilot, lambda: session.ready is not None)
        pilot.app.screen.query_one("#prompt").text = SHOWCASES[6].prompt
        await pilot.press("enter")
        await until(pilot, lambda: session.turns and not session.busy)
        await pilot.press("escape", "b")
        await until(pilot, lambda: session.baselines and not session.busy)
        await pilot.press(*scene.keys)
        await until(pilot, lambda: scene.until in portable(app.export_screenshot()).replace("&#160;", " "))
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
    parser.add_argument("folder", type=Path, help="SCENE.svg is written here, of several sizes SCENE-WIDTHxHEIGHT.svg")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)} (default: all)")
    parser.add_argument("--model", default="sample")
    parser.add_argument("--size", nargs="+", default=["120x40"], metavar="WIDTHxHEIGHT")
    parser.add_argument("--theme", default="spec-dark")
    arguments = parser.parse_args()
    for name in arguments.scenes or SCENES:
        for size in arguments.size:
            width, height = map(int, size.split("x"))
            path = arguments.folder / (f"{name}-{size}.svg" if len(arguments.size) > 1 else f"{name}.svg")
            asyncio.run(picture(path, SCENES[name], arguments.model, (width, height), arguments.theme))
            print(path)


if __name__ == "__main__":
    main()
