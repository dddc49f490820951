"""A field for a name or a path: what would complete a path stands behind the cursor, and tab takes it."""

from __future__ import annotations

import os
from pathlib import Path

from textual import events
from textual.suggester import Suggester

from spec_tui.present.text import one_line
from spec_tui.session.host_access import HostAccess
from spec_tui.tui.widgets.clean_input import CleanInput

MODELS = (".gguf",)


def completed(typed: str, endings: tuple[str, ...] = MODELS) -> str | None:
    """What was typed with the rest of the path that it begins: a folder, which gets a slash, or a file with one of the
    endings (none: any); as far as all that it may mean have in common. A name that could steer the terminal is none of
    them. None where nothing begins so, and in a session that may not look at files."""
    if not typed or not HostAccess.here().whole:
        return None
    head, last = os.path.split(typed)
    try:
        folder = Path(head).expanduser() if head else Path.cwd()
        found = [f"{place.name}/" if os.path.isdir(place) else place.name for place in folder.iterdir()
                 if place.name.startswith(last) and (last or not place.name.startswith("."))
                 and one_line(place.name) == place.name
                 and (os.path.isdir(place) or not endings or place.suffix.lower() in endings)]
    except (OSError, RuntimeError, ValueError):  # no such folder or user, a name that can be none
        return None
    rest = os.path.commonprefix(found)  # noqa: RUF071 - of names, character by character
    return typed[: len(typed) - len(last)] + rest if len(rest) > len(last) else None


class _Paths(Suggester):
    def __init__(self, endings: tuple[str, ...]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._endings = endings

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value, self._endings)


class PathInput(CleanInput):
    """An input in which tab completes a path as a shell does; where there is nothing to complete, it goes on.
    ``endings``: of files that can be meant, in lower case; none: any."""

    def __init__(self, *, endings: tuple[str, ...] = MODELS, **kwargs) -> None:
        super().__init__(suggester=_Paths(endings), **kwargs)
        self._endings = endings

    def on_key(self, event: events.Key) -> None:
        """Take tab where it completes something."""
        found = completed(self.value, self._endings) if event.key == "tab" else None
        if found is not None:
            event.stop()
            event.prevent_default()
            self.value, self.cursor_position = found, len(found)
