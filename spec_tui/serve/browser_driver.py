"""The application's end of a session in a browser: Textual's driver for the web, for a browser that may come back, and
for a server that may vanish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from textual import messages
from textual.drivers import web_driver

from spec_tui.tui.terminal_input import decode_input_of

decode_input_of(web_driver)


class BrowserDriver(web_driver.WebDriver):
    """Beside what Textual's does: a browser that connects again gets its terminal's modes and the whole picture
    ("attach"); without a server the application ends. Files are not handed out, links are not opened."""

    _here: ClassVar[BrowserDriver | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        BrowserDriver._here = self

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():  # the server is gone
            self._app.post_message(messages.ExitApp())

    @classmethod
    def tell(cls, packet: Mapping[str, object]) -> None:
        """Say something to the server; what it takes is its own affair."""
        if cls._here is not None:
            cls._here.write_meta(dict(packet))

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        if packet_type == "attach":
            self.write("\x1b[?1049h\x1b[?25l")
            self._enable_mouse_support()
            self._enable_bracketed_paste()
            super().on_meta("resize", payload)
            self._app.call_later(self._app.refresh, repaint=True, layout=True)
        elif packet_type == "class":
            from spec_tui.tui.screens.led_lesson import ClassNews  # not needed by other sessions

            for screen in self._app.screen_stack:
                screen.post_message(ClassNews(payload))
        elif packet_type in ("resize", "focus", "blur", "quit", "exit"):
            super().on_meta(packet_type, payload)

    def open_url(self, url: str, new_tab: bool = True) -> None:
        """Nothing."""

    def deliver_binary(self, binary: Any, *, save_path: Path, **how: Any) -> None:
        """Nothing."""
        binary.close()
