"""What an application does with datastores while its model is loaded: estimate, build, probe, remove, which fit."""

from __future__ import annotations

import shutil
from time import perf_counter
from typing import TYPE_CHECKING

from engines.datastores.building.progress import Progress, no_progress
from engines.datastores.events import Built, Estimated, Probed, Stocked
from engines.datastores.storage import catalog as places
from engines.errors import UsageProblem

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.runtime import Runtime


class DatastoreService:
    """The datastores of a runtime: what is built or removed here is at once what its engines can search.

    Raises:
        UsageProblem, DatastoreProblem, ModelUnavailable, RunFailed: every method, where it cannot do what is asked.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def stocked(self, removed: str = "") -> Stocked:
        """Which datastores fit, as they lie on the disk now."""
        self._runtime.shelf.refresh()
        return Stocked(self._runtime.shelf.titles(), removed)

    def estimate(self, order: BuildSpec, progress: Progress = no_progress) -> Estimated:
        """What an order will take, in a fraction of a second behind the reading of its sources."""
        from engines.datastores.building import build_spec as orders

        order.check()
        corpus = orders.corpus_of(order, self._runtime, progress)
        found = orders.outlook(order, corpus, self._runtime.tokenizer, self._runtime)
        return Estimated(order.name, found.tokens, found.size, found.building, found.seconds, found.most, free(),
                         dict(sorted(getattr(corpus, "skipped", {}).items())))  # fmt: skip

    def build(self, order: BuildSpec, progress: Progress = no_progress, fresh: bool = False) -> Built:
        """Build, or go on with, what was ordered. What ``progress`` raises interrupts it; what is done stays."""
        from engines.datastores.building import build_spec as orders

        clock = perf_counter()
        order.check()
        corpus = orders.corpus_of(order, self._runtime, progress)
        store = orders.build(order, corpus, self._runtime.tokenizer, self._runtime, progress, fresh)
        facts = store.manifest
        return Built(store.name, facts.kind, facts.tokens, facts.documents, facts.keys, facts.size,
                     perf_counter() - clock)  # fmt: skip

    def remove(self, name: str) -> Stocked:
        """Delete a datastore of the user's, and what an interrupted build of it left."""
        self._runtime.shelf.forget(name)  # where files that are open cannot be deleted
        places.remove(name)
        return self.stocked(name)

    def probe(self, name: str, text: str, prompt: str | None = None, nodes: int = 24, drafts: int = 10) -> Probed:
        """What would be drafted after a text; lookups are timed on pages that are in memory, as in a run."""
        from engines.datastores.search import probe as probes

        runtime, shelf = self._runtime, self._runtime.shelf
        context, begun = probes.context_of(runtime.tokenizer, text, prompt, runtime.target.vocab_size)
        sparse = dense = None
        if name in shelf.fitting() or name in shelf.offered:
            for _ in range(2):  # the first time reads from the disk
                sparse = probes.probe_sparse(shelf.sparse([name])[0], context, runtime.words.piece, nodes)
        if name in shelf.fitting(dense=True):
            store, emitted = shelf.dense([name])[0], context[-1] if begun else None
            hidden = probes.last_state(runtime, context, begun)
            for _ in range(2):
                dense = probes.probe_dense(store, hidden, emitted, runtime.words.piece, drafts)
        if sparse is None and dense is None:
            places.find(name)
            raise UsageProblem(f"datastore {name} does not fit the model", "choose one that does, or build it anew")
        return Probed(name, text, prompt, len(context), sparse, dense)


def free() -> int:
    """Bytes that the disk has left where datastores lie."""
    home = places.home()
    return shutil.disk_usage(next(p for p in (home, *home.parents) if p.exists())).free
