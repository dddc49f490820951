"""The datastores that a model's methods search: opened once, and checked against the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engines.datastores.storage import catalog
from engines.datastores.storage.datastore import Store
from engines.datastores.storage.manifest import ModelIdentity
from engines.errors import SpecError, UsageProblem
from engines.progress import Progress, no_progress
from engines.report.events import DatastoreInfo


class OpenDatastores:
    """Datastores by name for one model. A datastore stays open after its first use.

    Args:
        tokenizer: fingerprint of the model's vocabulary.
        model: whose hidden states the keys of dense datastores must be; None if it is not known.
        offered: opens sparse datastores that are built when they are first used, by name; tells of its progress.

    Attributes:
        progress: told of what is built because a method searches it; what it raises interrupts the build.
    """

    def __init__(
        self, tokenizer: str, model: ModelIdentity | None = None,
        offered: Mapping[str, Callable[..., Store]] | None = None,
    ) -> None:
        self.tokenizer, self.model, self.offered = tokenizer, model, dict(offered or {})
        self.progress: Progress = no_progress
        self._stores: dict[str, Store] = {}
        self._parts: dict[tuple[str, str, float], object] = {}

    def fitting(self, dense: bool = False) -> tuple[str, ...]:
        """Names of the datastores that this model can search, the shipped ones last."""
        return tuple(entry.name for entry in catalog.listing() if self._fits(entry, dense))

    def refresh(self) -> None:
        """Close what was removed or built anew since it was opened, maybe by another program."""
        self.forget(*(name for name, store in self._stores.items() if not catalog.holds(store)))

    def forget(self, *names: str) -> None:
        """Close the datastores with these names."""
        self._stores = {name: store for name, store in self._stores.items() if name not in names}
        self._parts = {key: part for key, part in self._parts.items() if key[0] not in names}

    def searchable(self) -> tuple[DatastoreInfo, ...]:
        """The datastores that fit, and those that are built when they are first used."""
        sparse, dense = self.fitting(), self.fitting(dense=True)
        names, default = tuple(dict.fromkeys((*sparse, *dense))), {*self.default(), *self.default(dense=True)}
        built = tuple(
            DatastoreInfo(name, sparse=name in sparse, dense=name in dense, default=name in default) for name in names)
        return built + tuple(
            DatastoreInfo(name, sparse=True, built=False) for name in self.offered if name not in names)

    def default(self, dense: bool = False) -> tuple[str, ...]:
        """The datastores searched when none is named: the shipped ones that fit, or if there are none, all that fit but
        those of papers' tables."""
        fitting = [entry for entry in catalog.listing() if self._fits(entry, dense) and not entry.of_a_table]
        shipped = [entry for entry in fitting if entry.shipped]
        return tuple(entry.name for entry in shipped or fitting)

    def sparse(self, names: Sequence[str], fraction: float = 1.0) -> list:
        """Open the sparse parts (``sparse.SparseStore``) of datastores; without names, of the default ones. Of
        each this share is searched.

        Raises:
            UsageProblem: none is named and none fits; there is no datastore of a name.
            DatastoreProblem: one is damaged, or of another tokenizer or model.
        """
        from engines.datastores.search.sparse import SparseStore

        return [self._part(name, SparseStore, fraction) for name in self._chosen(names, dense=False)]

    def dense(self, names: Sequence[str], fraction: float = 1.0) -> list:
        """The same for the dense parts (``dense.DenseStore``)."""
        from engines.datastores.search.dense import DenseStore

        chosen = self._chosen(names, dense=True)
        for name in chosen:
            if self.model is not None:
                self.open(name).check_model(self.model)
        return [self._part(name, DenseStore, fraction) for name in chosen]

    def _chosen(self, names: Sequence[str], dense: bool) -> tuple[str, ...]:
        chosen = tuple(names) or self.default(dense)
        if not chosen:
            kind = "dense datastore of this model" if dense else "datastore of this model's tokenizer"
            offered = () if dense else self.offered
            ways = [f"add --datastore {name}, which is built when it is first searched" for name in offered]
            ways.append("build one: spec-tui datastore build NAME --from FILES --model MODEL")
            raise UsageProblem(f"there is no {kind}", ", or ".join(ways))
        return chosen

    def _fits(self, entry: catalog.CatalogEntry, dense: bool) -> bool:
        facts = entry.manifest
        if facts is None or facts.tokenizer != self.tokenizer:
            return False
        if not dense:
            return facts.kind != "dense"
        if facts.kind == "sparse" or self.model is None:
            return False
        try:
            self.open(entry.name).check_model(self.model)
        except SpecError:
            return False
        return True

    def open(self, name: str, progress: Progress | None = None) -> Store:
        """Open a datastore, and build it first if it is an offered one; ``progress`` is told of that, the attribute
        without one. Raises UsageProblem, DatastoreProblem."""
        if name not in self._stores:
            build = self.offered.get(name)
            self._stores[name] = (
                build(progress=progress or self.progress) if build else catalog.open_store(name, self.tokenizer))
        return self._stores[name]

    def _part(self, name: str, kind: type, fraction: float) -> object:
        key = (name, kind.__name__, fraction)
        if key not in self._parts:
            self._parts[key] = kind(self.open(name), fraction)
        return self._parts[key]
