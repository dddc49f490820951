"""Writes docs/glossary.md from spec_tui/learn/glossary.toml.

    python tools/glossary_page.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from spec_tui.learn.glossary_entries import markdown  # noqa: E402

if __name__ == "__main__":
    (ROOT / "docs" / "glossary.md").write_text(markdown())
