"""For all tests: logs and settings of the person who runs them stay untouched."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory):
    old = dict(os.environ)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))
    yield
    os.environ.clear()
    os.environ.update(old)
