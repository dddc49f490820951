"""The datastores of a run: opened once, checked against the model, searched together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engines.datastores.storage import catalog as places
from engines.datastores.storage.datastore import Store, open_store
from engines.datastores.storage.manifest import ModelIdentity
from engines.errors import SpecError, UsageProblem


class OpenDatastores:
    """Datastores by name for one model. A datastore stays open once it was used.

    Args:
        tokenizer: fingerprint of the model's vocabulary.
        model: whose hidden states the keys of dense datastores must be; None where nothing is known.
        offered: how to open sparse datastores that are built when they are first used.
    """

    def __init__(
        self, tokenizer: str, model: ModelIdentity | None = None, offered: Mapping[str, Callable[[], Store]] | None =
            None
    ) -> None:
        self.tokenizer, self.model, self.offered = tokenizer, model, dict(offered or {})
        self._stores: dict[str, Store] = {}
        self._parts: dict[tuple[str, str], object] = {}

    def fitting(self, dense: bool = False) -> tuple[str, ...]:
        """Names of the datastores at hand that this model can search, the shipped ones last."""
        return tuple(entry.name for entry in places.listing() if self._fits(entry, dense))

    def refresh(self) -> None:
        """Forget what was removed or built anew since it was opened."""
        now = {entry.name: entry.manifest for entry in places.listing() if not entry.unfinished}
        self.forget(*(name for name, store in self._stores.items() if now.get(name) != store.manifest))

    def forget(self, *names: str) -> None:
        """Close what is open of these."""
        self._stores = {name: store for name, store in self._stores.items() if name not in names}
        self._parts = {key: part for key, part in self._parts.items() if key[0] not in names}

    def titles(self) -> tuple[str, ...]:
        """The datastores at hand that fit, with what can be searched in them, for people."""
        sparse, dense = self.fitting(), self.fitting(dense=True)
        kinds = {name: [] for name in (*sparse, *dense)}
        for names, kind in ((sparse, "sparse"), (dense, "dense")):
            for name in names:
                kinds[name].append(kind)
        titles = tuple(f"{name} ({' and '.join(kind)})" for name, kind in kinds.items())
        return titles + tuple(f"{name} (sparse, built when used)" for name in self.offered if name not in kinds)

    def default(self, dense: bool = False) -> tuple[str, ...]:
        """Those taken when none is named: the shipped ones that fit; where none ships for the model, all that fit."""
        fitting = [entry for entry in places.listing() if self._fits(entry, dense)]
        shipped = [entry for entry in fitting if entry.shipped]
        return tuple(entry.name for entry in shipped or fitting)

    def sparse(self, names: Sequence[str]) -> list:
        """Open sparse datastores (``sparse.SparseStore``); no names take the default ones.

        Raises:
            UsageProblem: none is named and none fits; there is none of a name.
            DatastoreProblem: one is damaged, or of another tokenizer.
        """
        from engines.datastores.search.sparse import SparseStore

        return [self._part(name, SparseStore) for name in self._chosen(names, dense=False)]

    def dense(self, names: Sequence[str]) -> list:
        """The same for dense ones (``dense.DenseStore``)."""
        from engines.datastores.search.dense import DenseStore

        chosen = self._chosen(names, dense=True)
        for name in chosen:
            if self.model is not None:
                self._open(name).check_model(self.model)
        return [self._part(name, DenseStore) for name in chosen]

    def _chosen(self, names: Sequence[str], dense: bool) -> tuple[str, ...]:
        chosen = tuple(names) or self.default(dense)
        if not chosen:
            kind = "dense datastore of this model" if dense else "datastore of this model's tokenizer"
            raise UsageProblem(
                f"there is no {kind} at hand", "build one: spec-tui datastore build NAME --from FILES --model MODEL"
            )
        return chosen

    def _fits(self, entry: places.CatalogEntry, dense: bool) -> bool:
        facts = entry.manifest
        if facts is None or facts.tokenizer != self.tokenizer:
            return False
        if not dense:
            return facts.kind != "dense"
        if facts.kind == "sparse" or self.model is None:
            return False
        try:
            self._open(entry.name).check_model(self.model)
        except SpecError:
            return False
        return True

    def _open(self, name: str) -> Store:
        if name not in self._stores:
            offer = self.offered.get(name)
            self._stores[name] = offer() if offer else open_store(name, self.tokenizer)
        return self._stores[name]

    def _part(self, name: str, kind: type) -> object:
        key = (name, kind.__name__)
        if key not in self._parts:
            self._parts[key] = kind(self._open(name))
        return self._parts[key]
