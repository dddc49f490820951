"""What an application does with datastores while a model is loaded: list, estimate, build, probe, remove."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from engines import folders
from engines.datastores.datastore_events import Built, DatastoreList, Estimated, Probed
from engines.datastores.storage import catalog
from engines.progress import Progress, no_progress

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.building.corpus import LoadedModel
    from engines.datastores.storage.datastore import Store

Probe = Callable[[str, str, "str | None"], Probed]
"""Probes a datastore by name: what would be drafted after a text, as the beginning of the answer to a prompt."""


class DatastoreService:
    """The datastores of a loaded model. What is built or removed here is at once what its methods can search.

    Args:
        model: builds read its hidden states and ask it for answers.
        probe: see ``Probe``; it runs methods, which this package cannot.

    Raises:
        UsageProblem, DatastoreProblem, ModelUnavailable, RunFailed: every method, if it cannot do what is asked.
    """

    def __init__(self, model: LoadedModel, probe: Probe) -> None:
        self._model, self._datastores, self.probe = model, model.open_datastores, probe

    def list_datastores(self, removed: str = "") -> DatastoreList:
        """The datastores that fit the model, as they lie on the disk now."""
        self._datastores.refresh()
        return DatastoreList(self._datastores.searchable(), removed)

    def estimate(self, spec: BuildSpec, progress: Progress = no_progress) -> Estimated:
        """What a build will take: a fraction of a second after the reading of its sources."""
        from engines.datastores.building.build_spec import estimate_build, open_corpus

        spec.check()
        corpus = open_corpus(spec, lambda: self._model, progress)
        estimate = estimate_build(spec, corpus, self._model.tokenizer, self._model)
        skipped = dict(sorted(getattr(corpus, "skipped", {}).items()))
        return Estimated(spec.name, estimate, folders.free_bytes(catalog.home()), skipped)

    def build(self, spec: BuildSpec, progress: Progress = no_progress, fresh: bool = False) -> Built:
        """Build a datastore, or continue its unfinished build. What ``progress`` raises interrupts it; what is done
        stays."""
        from engines.datastores.building.build_spec import BuildSpec, build, open_corpus

        clock = perf_counter()
        spec.check()
        if spec == BuildSpec(spec.name, (spec.name,)) and spec.name in self._datastores.offered:
            return self._built(self._datastores.open(spec.name, progress), clock)
        corpus = open_corpus(spec, lambda: self._model, progress)
        store = build(spec, corpus, self._model.tokenizer, self._model, progress, fresh)
        return self._built(store, clock)

    def _built(self, store: Store, clock: float) -> Built:
        facts = store.manifest
        return Built(
            name=store.name, kind=facts.kind, tokens=facts.tokens, documents=facts.documents, keys=facts.keys,
            size=facts.size, seconds=perf_counter() - clock,
        )

    def remove(self, name: str) -> DatastoreList:
        """Delete a datastore of the user's, and what an interrupted build of it left."""
        self._datastores.forget(name)  # Windows does not delete files that are open
        catalog.remove(name)
        return self.list_datastores(name)
