"""Pages whose tables a tool measures: between two marks the tool writes, around them people do."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of this name. Raises SystemExit where the page has none."""
    before = page.read_text("utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, found, rest = before.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no place for {name}: {begin} and {end}")
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", "utf-8")
