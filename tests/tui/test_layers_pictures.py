"""How the layers panel looks, beside the others and enlarged.

After a change that is meant: ``pytest tests/tui/test_layers_pictures.py --snapshot-update``, and look at the report.
"""

from __future__ import annotations

import pytest

from tests.tiers import SIZES
from tests.tui.test_snapshots import picture


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["spec-dark", "spec-light"])
def test_layers(snap_compare, size, theme):
    keys = ["escape", "l"] if size[0] < 100 else []
    assert picture(snap_compare, size, theme=theme, engine="admg", keys=keys)


def test_preview_without_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, (120, 40), engine="admg", keys=["escape", "l", "right", "right", "up"])


def test_layers_enlarged(snap_compare):
    assert picture(snap_compare, (120, 40), engine="admg", keys=["escape", "l", "m"])


def test_layers_before_a_measurement(snap_compare):
    assert picture(snap_compare, (120, 40), engine="admg", prompt="")
