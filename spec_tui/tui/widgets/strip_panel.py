"""Widgets made of finished lines, of which only those that changed are drawn again, and the parts of such lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from spec_tui.present.rows import Row, Span, bar, rows_of
from spec_tui.present.text import cells
from spec_tui.session.host_access import HostAccess
from spec_tui.tui.border import said_instead
from spec_tui.tui.widgets.footer import Footer
from spec_tui.tui.widgets.styled_widget import StyledWidget

_TOO_SMALL = "Please enlarge the window to at least 60 × 16{}.\n\nctrl+q leaves."
_PLAIN = ",\nor use spec-tui run for plain output"  # where there is a command line
BLANK: Row = [("", "text")]
_BETWEEN, _FEW = " ·,;:(*+-", 12  # ends of no word; columns of a row's last piece that may as well be left out
_FOCUSED = {"title": "title-here", "border": "title"}  # what stands out of the panel that has the focus


class StripPanel(StyledWidget):
    """Shows rows of (text, style name). Subclasses say what the rows are; a row that is the same costs nothing.

    The style names are those of ``style_of``. It has no border or padding: overriding ``render_lines`` bypasses
    Textual's style cache, which is where the speed comes from.
    """

    DEFAULT_CSS = "StripPanel { width: 1fr; height: 1fr; }"
    ALLOW_SELECT = False
    detailed = False  # whether to show all that is known, instead of what answers the first question

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._rows: list[Row] = []

    def rows(self, width: int, height: int) -> list[Row]:
        """What to show in a space of this size."""
        return self._rows

    def update_rows(self) -> None:
        """Ask ``rows`` again and draw the lines that changed. Hidden panels are left alone."""
        width, height = self.size
        if not (width and height and self.is_on_screen_tree):
            return
        try:
            new = self.rows(width, height)[:height]
        except Exception as error:
            new = rows_of(said_instead(self.app, error), max(10, width), "warn")[:height]
        old, self._rows = self._rows, new
        for y in range(max(len(old), len(new))):
            if (old[y] if y < len(old) else None) != (new[y] if y < len(new) else None):
                self._strips.pop(y, None)
                self.refresh(Region(0, y, width, 1))

    @property
    def is_on_screen_tree(self) -> bool:
        """Whether this widget is displayed, as far as style sheets decide."""
        return self.is_attached and self.display and all(getattr(a, "display", True) for a in self.ancestors)

    def text_rows(self) -> list[str]:
        return ["".join(text for text, _ in row) for row in self._rows]

    def on_resize(self) -> None:
        self._strips.clear()
        self.update_rows()
        self.refresh()

    def on_show(self) -> None:
        self.update_rows()

    def style(self, name: str) -> Style:
        """The style of a name; the title of the panel that has the focus stands out, and the line beside it."""
        return self.style_of(_FOCUSED.get(name, name) if self.titled_focus else name)

    @property
    def titled_focus(self) -> bool:
        """Whether the panel this title stands over has the focus."""
        return self.has_focus

    def _strip(self, y: int, width: int) -> Strip:
        if (strip := self._strips.get(y)) is not None:
            return strip
        segments = [Segment(text, self.style(name)) for text, name in self._rows[y] if text]
        strip = Strip(segments).adjust_cell_length(width, self.style("text"))
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        self._strips[y] = strip
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        blank = Strip.blank(width, self.style("text"))
        count = len(self._rows)
        out = [self._strip(y, width) if y < count else blank for y in range(crop.y, crop.bottom)]
        if crop.column_span != (0, width):
            out = [strip.crop(*crop.column_span) for strip in out]
        return out


class Lines(StripPanel):
    """Rows given from outside."""

    _given: Sequence[Row] = ()

    def show(self, *rows: Row) -> None:
        self._given = rows
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        return [clip(row, width) for row in self._given]


class SplitLine(StripPanel):
    """One row: something at the left, something at the right. The left side gives way first, down to ``least`` columns,
    then the right one's end.

    ``heads`` names the widget whose heading this is.
    """

    heads = ""
    least = 0
    _left: Row = ()
    _right: Row = ()

    @property
    def titled_focus(self) -> bool:
        focused = self.screen.focused
        return bool(self.heads) and focused is not None and focused.id == self.heads

    def show(self, left: Row, right: Row = ()) -> None:
        self._left, self._right = left, right
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        left, right = self._left, self._right
        if right and size(left) + size(right) >= width:
            kept = max(width - size(right) - 2, self.least)
            left = clip(left, kept) if kept >= 12 else ()
        if not right or not left:
            return [clip(left or right, width)]
        right = clip(right, width - size(left) - 2)
        return [[*left, (" " * (width - size(left) - size(right)), "text"), *right]]


class TitleLine(SplitLine):
    """A heading with a rule (``title_row``), as wide as it is drawn."""

    def rows(self, width: int, height: int) -> list[Row]:
        return [title_row(width, "".join(text for text, _ in self._left), "".join(text for text, _ in self._right))]


class Backdrop(Screen):
    """A screen that paints its background without the detour over a style cache, as it lies under everything, and draws
    itself again (``draw``) when it comes to the top and when the size of the terminal changes. Below a least size it
    shows a sentence and nothing else."""

    def draw(self) -> None:
        """Fill the panels."""
        raise NotImplementedError

    @staticmethod
    def foot(said: StripPanel) -> ComposeResult:
        """What is last on each: the line of what is said, the keys; and the sentence."""
        yield said
        yield Footer()
        yield Static(_TOO_SMALL.format(_PLAIN * HostAccess.here().whole), id="enlarge", markup=False)

    def on_mount(self) -> None:
        self.set_class(self.app.presenter, "presenting")

    def render_lines(self, crop: Region) -> list[Strip]:
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.draw)


class Divider(StripPanel):
    """A vertical line."""

    DEFAULT_CSS = "Divider { width: 2; height: 1fr; }"

    def rows(self, width: int, height: int) -> list[Row]:
        return [[("│ "[:width], "rule")]] * height


class Pane(Container):
    """Arranges its children and draws nothing: the screen below paints the background once for all.

    Textual draws every container under a changed widget again, frame by frame, although its children cover it.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        return []


def title_row(width: int, title: str, state: str = "") -> Row:
    """A heading with a rule: the name at the left, the state at the right, where there is room for it."""
    title = shortened(title, width - 2)
    room = width - cells(title) - cells(state) - (3 if state else 2)
    if room < 1 and state:
        return title_row(width, title)
    end = [(state, "muted"), (" ", "text")] if state else []
    return [(title, "title"), (" ", "text"), ("─" * max(0, room), "border"), (" ", "text"), *end]


def fit(text: str, width: int, right: bool = False) -> str:
    """Exactly ``width`` columns: padded, or ``shortened``."""
    size = cells(text)
    if size <= width:
        pad = " " * (width - size)
        return pad + text if right else text + pad
    return fit(shortened(text, width), width, right) if width > 0 else ""


def shortened(text: str, width: int, least: int | None = None) -> str:
    """Text no wider than this, an ellipsis included: cut after a whole word, unless fewer than ``least`` columns would
    be left (half of them where none is given)."""
    if cells(text) <= width or width < 1:
        return text if width > 0 else ""
    kept = text
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    if cells(words) >= (width // 2 if least is None else least):
        kept = words.rstrip(_BETWEEN)
    return kept + "…"


def gauge(share: float, width: int) -> list[Span]:
    """A bar on a track of this width."""
    filled = bar(share, width)
    return [(filled, "bar"), ("·" * (width - len(filled)), "track")]


def size(row: Row) -> int:
    """Columns of a row."""
    return sum(cells(text) for text, _ in row)


def clip(row: Row, width: int) -> Row:
    """A row no wider than this."""
    out: list[Span] = []
    for text, style in row:
        room = width - size(out)
        if cells(text) > room:
            return [*out, (shortened(text, room, 0 if out and room <= _FEW else None), style)] if room > 0 else out
        out.append((text, style))
    return out
