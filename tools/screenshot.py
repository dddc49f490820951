"""Make the pictures of README and tour: the real application, real answers, exported as SVG.

    python tools/screenshot.py docs [SCENE ...] [--model MODEL] [--size 120x40 ...] [--theme spec-dark]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parent.parent))

from engines.request import Request
from spec_tui.export.svg import portable
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.process import ProcessClient
from spec_tui.tui.app import SpecTui

_PATIENCE = 900.0  # seconds for loading, for an answer, for a race on a busy machine
_TREE = {"shape": "tree", "budget": "paper", "depth": 4, "top_k": 3, "total_nodes": 12}  # rows are dear on two cores
_A_ROUND_IN_THE_MIDDLE = ("home", *("right_square_bracket",) * 4)  # its tree says more than the last one's


@dataclass(frozen=True)
class Scene:
    """What is pressed after an answer and its baseline (without ``asks`` at once), and the text that then has to come;
    ``last``: what is pressed when it is there."""

    keys: tuple[str, ...]
    until: str = ""
    last: tuple[str, ...] = ()
    asks: bool = True
    engine: str = "draft"
    options: dict = field(default_factory=dict)
    model: str = "qwen-coder"
    prompt: str = SHOWCASES[3].prompt


SCENES = {
    "chat": Scene(_A_ROUND_IN_THE_MIDDLE),
    "step": Scene((*_A_ROUND_IN_THE_MIDDLE, "full_stop", *("full_stop",) * 3), "round", options=_TREE),
    "price": Scene(("p",)),
    "race": Scene(("r", "enter"), "photo finish", ("end",), asks=False),
    "talk": Scene(_A_ROUND_IN_THE_MIDDLE),
    "copies": Scene(_A_ROUND_IN_THE_MIDDLE, engine="pld"),
}


async def pictures(paths: dict[tuple[int, int], Path], scene: Scene, model: str, theme: str) -> None:
    """Ask, wait for the end of the answer, measure the baseline, go where the scene is, export it at each size."""
    request = Request((), scene.engine, scene.options, max_new_tokens=160)
    app = SpecTui(ProcessClient(), LoadRequest(model), theme=theme, initial_request_options=request)
    async with app.run_test(size=next(iter(paths))) as pilot:
        session = app.session
        await until(pilot, lambda: session.ready is not None)
        await pilot.press("escape")
        if scene.asks:
            pilot.app.screen.query_one("#prompt").text = scene.prompt
            await pilot.press("i", "enter")
            await until(pilot, lambda: session.turns and not session.busy)
            await pilot.press("escape", "b")
            await until(pilot, lambda: session.baselines and not session.busy)
        await pilot.press(*scene.keys)
        await until(pilot, lambda: scene.until in shown(app))
        await pilot.press(*scene.last)
        for size, path in paths.items():
            await pilot.resize_terminal(*size)
            await pilot.pause(1.0)
            path.write_text(portable(app.export_screenshot(title="spec-tui")), encoding="utf-8")
            print(path)


async def until(pilot, done) -> None:
    """Wait for a condition of the application."""
    end = monotonic() + _PATIENCE
    while not done():
        await pilot.pause(0.2)
        if monotonic() > end:
            raise SystemExit(f"the application did not get there within {_PATIENCE:.0f} s")


def shown(app: SpecTui) -> str:
    """What is on the screen."""
    return "\n".join("".join(segment.text for segment in line) for line in app.screen._compositor.render_strips())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="SCENE.svg is written here, of several sizes SCENE-WIDTHxHEIGHT.svg")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)} (default: all)")
    parser.add_argument("--model", help="default: that of the scene")
    parser.add_argument("--size", nargs="+", default=["120x40"], metavar="WIDTHxHEIGHT")
    parser.add_argument("--theme", default="spec-dark")
    arguments = parser.parse_args()
    for name in arguments.scenes or SCENES:
        several = len(arguments.size) > 1
        paths = {tuple(map(int, size.split("x"))): arguments.folder / f"{name}{f'-{size}' * several}.svg"
                 for size in arguments.size}
        asyncio.run(pictures(paths, SCENES[name], arguments.model or SCENES[name].model, arguments.theme))


if __name__ == "__main__":
    main()
