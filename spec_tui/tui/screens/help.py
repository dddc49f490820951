"""Help: what the marks mean, every key, every command; made from the actions themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from textual.content import Content

from engines.methods import origins
from spec_tui import PRIVACY
from spec_tui.present.text import wrap
from spec_tui.tui import slash
from spec_tui.tui.actions import Action
from spec_tui.tui.chat_actions import APPLICATION, CHAT
from spec_tui.tui.screens.modal import TextModal

_GAP = "   "
_PALETTE = ("ctrl+p", "Command palette: every action by name, themes")
MARKS = (
    ("accepted", "$tok-accept", "drafted, and accepted by the target"),
    ("corrected", "bold underline $tok-fixed", "the draft was rejected here; this is the target's own token"),
    ("bonus", "bold uu $tok-bonus", "the whole draft was accepted; one more token, from the same forward pass"),
    ("rejected", "strike $tok-ghost", "drafted but not accepted; shown while the answer is written; v keeps it there"),
)
GLYPHS = ("● accepted   ✗ rejected   ○ not reached   ◐ what the target chose   ◌ the tree's root   "
          "✂ retrieved, but pruned")
LAYERS = ("■ runs in drafts   ▣ runs: a last-n layer   left out: c cosine, i interval, b both, s as set   "
          "next: + runs, C left out")
NUMBERS = (
    ("M", "tokens per verify step: what a forward pass of the target gives on average; without drafts exactly 1"),
    ("accepted", "share of the drafted tokens that were kept"),
    ("tokens/s", "decoding speed by the engine's clock; prefill and drawing are not counted"),
    ("✓ ≈ ✗", "what an audit (a) found: every token is the target's own choice; a tie within rounding; a BUG"),
    ("t(n)", "time of a forward pass over n tokens, measured when the model is loaded"),
    ("break-even", "tokens that a verify step must give on average to be as fast as autoregressive decoding"),
    ("1.42x", "times as fast as autoregressive decoding of the same prompt and settings; F7 measures it"),
)


class HelpScreen(TextModal[None]):
    """All keys, commands and marks; those of the screen that it was opened on come first, unless that is the chat.
    Without an engine to ask it lists only what that screen can do."""

    FRAME = ("help", "esc closes")
    ACTIONS = (Action(id="help.close", run="close", keys="f1,question_mark,q", label="Close", help="Close"),)

    def text(self, width: int) -> Content:
        screens, asks = self.app.screen_stack, self.app.session.client.capabilities.ask
        below = screens[screens.index(self) - 1]  # others may lie above
        actions = getattr(below, "actions", ()) if below is not screens[0] or not asks else ()
        return help_text(width, [a for a in actions if below.check_action(a.method, ())], asks)


def help_text(width: int, here: Iterable[Action] = (), asks: bool = True) -> Content:
    """The whole page, wrapped to a width; ``here``: what can be done on the screen that it was opened on; ``asks``:
    whether there is an engine to ask."""
    _row = partial(row, total=width)
    keys = _keys(here)
    lines = [_head("this screen"), *(_row(*line) for line in keys), Content("")] if keys else []
    lines += [_head("marks"), *(_row(name, words, style) for name, style, words in MARKS)]
    lines += [_row("in the tree", GLYPHS), _row("in the layers", LAYERS), _row("proposed by", _letters()), Content("")]
    for title, rows in (("numbers", NUMBERS), *(_sections() if asks else _recorded())):
        lines += [_head(title), *(_row(*line) for line in rows), Content("")]
    if asks:
        lines.append(_head("commands in the prompt"))
        lines += [_row(f"/{name} {argument}", words, width=34) for name, (argument, words) in slash.COMMANDS.items()]
        lines.append(Content(""))
    lines.append(Content(PRIVACY))
    return Content("\n").join(lines)


def _letters() -> str:
    return "   ".join([*(f"{kind.letter} {kind.words}" for kind in origins().values()), "two letters: both"])


def _sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The keys of each screen, as (keys, what they do)."""
    from spec_tui.tui.screens.data import DataScreen
    from spec_tui.tui.screens.evaluate import EvaluateScreen
    from spec_tui.tui.screens.lessons import LessonScreen
    from spec_tui.tui.screens.models import ModelsScreen
    from spec_tui.tui.screens.race import RaceScreen
    from spec_tui.tui.screens.step import StepScreen
    from spec_tui.tui.widgets.layers_panel import LayersPanel
    from spec_tui.tui.widgets.prompt_box import PromptBox
    from spec_tui.tui.widgets.transcript import Transcript

    anywhere = [action for action in CHAT if action.anywhere or action.keys == "escape"]
    yield "anywhere", [*_keys(APPLICATION), _PALETTE, *_keys(anywhere)]
    yield "prompt", _keys(PromptBox.ACTIONS)
    yield "text and panels", _keys([*Transcript.ACTIONS, *(action for action in CHAT if action not in anywhere)])
    for title, screen in (("models", ModelsScreen), ("datastores", DataScreen), ("layers", LayersPanel),
                          ("race", RaceScreen), ("evaluate", EvaluateScreen), ("step", StepScreen),
                          ("lessons", LessonScreen)):
        yield title, _keys(screen.ACTIONS)


def _recorded() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The same where there is nothing but recordings."""
    from spec_tui.tui.widgets.transcript import Transcript

    yield "anywhere", [*_keys(APPLICATION), _PALETTE]
    yield "text", _keys(Transcript.ACTIONS)


def _keys(actions: Iterable[Action]) -> list[tuple[str, str]]:
    return [(action.key_words, action.help) for action in actions if action.key_words]


def _head(text: str) -> Content:
    return Content.assemble((text, "bold $primary"))


def row(name: str, words: str, style: str = "bold", width: int = 24, total: int = 90) -> Content:
    """A name and what it means, the meaning wrapped beside it: of a list with gaps between its parts, between these."""
    room = max(20, total - width - 2)
    if _GAP in words:
        words = _GAP.join(part.replace(" ", "\u00a0") if len(part) <= room else part for part in words.split(_GAP))
    parts = [line.replace("\u00a0", " ") for line in wrap(words, room)] or [""]
    space = " " * (width - len(name)) if len(name) < width else "\n" + " " * (width + 2)
    return Content.assemble("  ", (name, style), space, ("\n" + " " * (width + 2)).join(parts))
