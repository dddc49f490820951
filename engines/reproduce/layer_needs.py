"""Layer searches that entries need: Draft & Verify's, calibrated on questions that the entry does not measure.

They are kept apart from those of ``spec-tui search-layers``, which hold for the prompts that the user gave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from engines import folders
from engines.errors import RunFailed, UsageProblem
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.draft_verify.layer_search.search import (
    SearchProgress,
    SearchSpec,
    TrialRunner,
    extend_search,
    removable_of,
)
from engines.methods.draft_verify.layer_search.search_store import Search
from engines.report import encoding
from engines.reproduce.entry import Asked, SearchNeed
from engines.reproduce.questions import not_asked

if TYPE_CHECKING:
    from engines.runtime import Runtime


def found_layers(
    need: SearchNeed, asked: Asked, runtime: Runtime, progress: Callable[[SearchProgress], None] = lambda _: None
) -> str:
    """The sublayers that the search found best to leave out, as ``layers=`` of the engine has them. KeyboardInterrupt
    leaves the trials, which are kept.

    Raises:
        UsageProblem: there is nothing to calibrate on, or no sublayer can be left out.
        RunFailed: the model broke, or the disk is full.
    """
    spec = SearchSpec(not_asked(asked, need.tasks)[: need.prompts], need.trials, need.tokens)
    spec.check()
    identity, removable = search_store.identify(runtime.target), removable_of(runtime.target)
    search = Search(Path(runtime.target.name).name, identity, spec.settings)
    file = _file(search)
    search = _kept(search, file)
    if search.found is None or len(search.trials) < spec.trials:
        runner = TrialRunner(runtime, spec.prompts, spec.tokens, removable)
        search = extend_search(search, removable, spec.trials, runner, lambda s: _save(s, file), progress)
    return search.best.skipped


def _file(search: Search) -> Path:
    digest = hashlib.sha256(json.dumps([search.identity.id, asdict(search.settings)]).encode()).hexdigest()[:16]
    return folders.data() / "reproduce" / f"layers-{digest}.json"


def _kept(search: Search, file: Path) -> Search:
    """The same search with the trials of earlier runs; as it is where there are none that can be read."""
    try:
        kept = encoding.build(Search, json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, UsageProblem):
        return search
    return kept if (kept.identity, kept.settings) == (search.identity, search.settings) else search


def _save(search: Search, file: Path) -> None:
    try:
        folders.write_json(file, encoding.plain(search))
    except OSError as error:
        raise RunFailed(f"the search cannot be kept ({error.strerror})", "make room on the disk") from None
