"""The command line called in this process, with a decoder that needs no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from spec_tui.cli import call
from spec_tui.session import loader
from tests.session import fake_runtime


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    monkeypatch.setattr(loader, "load_here", fake_runtime.load)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")  # whatever the terminal's width

    def run(*arguments: str) -> Done:
        code = call(list(arguments))
        return Done(code, *capsys.readouterr())

    return run
