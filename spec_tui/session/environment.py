"""The environment the engines' libraries see: quiet, offline-minded, polite to other processes. One function
for the engine process and for the commands that decode in their own process."""

from __future__ import annotations

import os
from collections.abc import Mapping

_ALWAYS = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "DO_NOT_TRACK": "1",
}
_UNLESS_SET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",  # an unreachable hub is our message, not one for each of its retries
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}


def engine_environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with what the engines need; the user's own settings win, except that telemetry is always
    off."""
    return {**_UNLESS_SET, **base, **_ALWAYS}


def prepare_this_process() -> None:
    """Give this process the engines' environment. Has an effect only before torch and transformers are
    imported."""
    os.environ.update(engine_environment(os.environ))
