"""A loader for engine processes of tests: it really finds and downloads the model, and then needs no torch."""

from __future__ import annotations

from engines.hub.model_source import locate
from engines.model.load_options import LoadOptions
from engines.report.events import Ready
from tests.session.fake_runtime import FakeRuntime


def load(asked: LoadOptions, progress) -> FakeRuntime:
    locate(asked.model, asked.revision, progress=progress).fetch_weights(progress)
    return FakeRuntime(Ready(asked.model, "float32", "cpu", 10, 260, 256, True))
