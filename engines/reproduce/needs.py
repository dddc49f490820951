"""The datastores that an entry needs before it runs. Built where they are missing, kept and used again.

They lie among the user's datastores under names that begin with ``paper-`` and end with a digest of all that they are
made of, so that entries which need the same share it. An interrupted build goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.datastores.building import build_spec
from engines.datastores.building.build_spec import ANSWERS, STANDARD_LIBRARY, BuildSpec, open_corpus
from engines.datastores.building.corpus import Corpus, Document
from engines.datastores.datastore_events import BuildEstimate
from engines.datastores.search.reduction import Recipe
from engines.datastores.storage import catalog
from engines.datastores.storage.datastore import Documents, Store
from engines.folders import checksum
from engines.progress import Progress, no_progress
from engines.reproduce.entry import StoreNeed
from engines.reproduce.questions import STORE_PROMPTS
from engines.request import Request

if TYPE_CHECKING:
    from engines.runtime import Runtime

_WRITING = 30.0  # seconds that may be spent on writing answers for a small datastore
_OF_ANSWERS = ("answers", "temperature", "top_p", "max_new_tokens")
_PARTS = ("tokens", "document_limit", "dims", "z_norm", "unit_norm", *_OF_ANSWERS)


@dataclass(frozen=True, slots=True)
class PreparedStore:
    """A datastore as an entry uses it.

    Attributes:
        need: what was needed.
        name: of the datastore.
        missing: it has to be built, or its build was not finished.
        estimate: of that build.
    """

    need: StoreNeed
    name: str
    missing: bool
    estimate: BuildEstimate | None = None


class DatastoreBuilder:
    """Finds and builds what entries need, for one loaded model. Hidden states that one datastore was made of are not
    read anew for the next. ``most``: tokens of a datastore at most, None for no limit."""

    def __init__(self, runtime: Runtime, needs: Sequence[StoreNeed], most: int | None = None) -> None:
        self._runtime = runtime
        self._reader = None
        self._most, self.needs = most, tuple(needs)

    def prepared(self) -> list[PreparedStore]:
        """What there is, and what has to be built."""
        found = {entry.name for entry in catalog.listing() if entry.manifest is not None and not entry.unfinished}
        out = []
        for need in self.needs:
            name = self._shipped(need) or self._name(need)
            missing = name not in found
            out.append(PreparedStore(need, name, missing, self._estimate(need) if missing else None))
        return out

    def build(self, wanted: PreparedStore, progress: Progress = no_progress) -> Store:
        """Build it, or go on with it; opened where it is there. Raises SpecError: see ``build_spec.open_corpus`` and
        ``build_spec.build``."""
        if not wanted.missing:
            return self._runtime.open_datastores.open(wanted.name)
        need, runtime = wanted.need, self._runtime
        spec = BuildSpec(  # without sources: it is no build that the user could repeat
            wanted.name, (), need.kind, limit=self._tokens(need), document_limit=need.document_limit,
            recipe=_recipe(need))
        reader = self._states() if spec.needs_model else None
        build_spec.build(spec, self._corpus(need, progress), runtime.tokenizer, runtime, progress, reader=reader)
        runtime.open_datastores.refresh()
        return self._runtime.open_datastores.open(wanted.name)

    def _tokens(self, need: StoreNeed) -> int | None:
        """Most tokens of its datastore. Where there is a limit, and answers have to be written first, it is also what
        this model writes in half a minute: rounded down to a power of two, so that it is the same each time."""
        limits = [most for most in (need.tokens, self._most) if most is not None]
        if self._most is not None and need.source == "answers" and self._greedy(need) is None:
            limits.append(1 << int(math.log2(max(64, _WRITING / self._runtime.fixed_prices.target.at(1)))))
        return min(limits, default=None)

    def _shipped(self, need: StoreNeed) -> str:
        """The datastore that ships and is what is needed: greedy answers of this model, all of them; "" for none."""
        plain = StoreNeed(name=need.name, kind=need.kind, max_new_tokens=need.max_new_tokens)
        return next((name for name, store in self._answers() if store.manifest.kind in (need.kind, "both")), "") if (
            need == plain) else ""

    def _answers(self) -> Iterator[tuple[str, Store]]:
        """Shipped datastores of this model's own answers, the largest first."""
        found = []
        for entry in catalog.listing():
            facts = entry.manifest
            sources = facts.parameters.get("sources") if facts is not None and entry.shipped else None
            if isinstance(sources, dict) and sources.get("model") == self._runtime.identity.fingerprint:
                found.append((entry.name, Store(entry.folder)))
        return iter(sorted(found, key=lambda item: -item[1].manifest.tokens))

    def _name(self, need: StoreNeed) -> str:
        parts: dict[str, Any] = {part: getattr(need, part) for part in _PARTS} | {"tokens": self._tokens(need)}
        if need.kind == "sparse":
            parts |= dict.fromkeys(("dims", "z_norm", "unit_norm"))
        if need.source == "python":
            parts |= dict.fromkeys(_OF_ANSWERS) | {"python": sys.version_info[:3]}
        elif store := self._greedy(need):
            parts |= dict.fromkeys(_OF_ANSWERS) | {"of": store.manifest.parameters["sources"]}
        else:
            parts["prompts"] = checksum(STORE_PROMPTS)
        made = [need.source, need.kind, parts, self._runtime.open_datastores.tokenizer]
        if need.kind != "sparse" or need.source == "answers":
            made.append(self._runtime.identity.fingerprint)
        digest = hashlib.sha256(json.dumps(made).encode()).hexdigest()[:10]
        return f"{catalog.TABLE_PREFIX}{need.source}-{need.kind}-{digest}"

    def _corpus(self, need: StoreNeed, progress: Progress) -> Corpus:
        if need.source == "python":
            return open_corpus(BuildSpec(STANDARD_LIBRARY, (STANDARD_LIBRARY,)), None, progress)
        if store := self._greedy(need):
            return KeptTexts(self._runtime, store)
        spec = BuildSpec(
            "answers", (ANSWERS,), prompts=str(STORE_PROMPTS), answers=need.answers, temperature=need.temperature,
            top_p=need.top_p, max_new_tokens=need.max_new_tokens,
        )
        return open_corpus(spec, lambda: self._runtime)

    def _greedy(self, need: StoreNeed) -> Store | None:
        """A shipped datastore of greedy answers, from which those that are needed are read, in the length they have."""
        return next((store for _, store in self._answers()), None) if not need.temperature else None

    def _states(self) -> KeptStates:
        if self._reader is None:
            from engines.datastores.building.hidden_states import HiddenStates

            self._reader = KeptStates(HiddenStates(self._runtime.target, self._runtime.identity))
        return self._reader

    def _estimate(self, need: StoreNeed) -> BuildEstimate:
        """What building it will take at most."""
        price, store = self._runtime.prices[0], self._greedy(need) if need.source == "answers" else None
        tokens, seconds = self._tokens(need), 0.0
        if need.source == "answers":
            whole = store.manifest.tokens if store else _prompts() * need.answers * need.max_new_tokens
            tokens = min(tokens or whole, whole)
            seconds += 0.0 if store else tokens * price.at(1)
        if tokens is None:
            return BuildEstimate(None)
        found = build_spec.of_tokens(tokens, self._runtime.tokenizer, seconds)
        if need.kind != "sparse":
            found = build_spec.with_dense_part(found, _recipe(need), self._runtime)
        return replace(found, seconds=found.seconds or None)


def _recipe(need: StoreNeed) -> Recipe:
    return Recipe(need.dims, need.z_norm, need.unit_norm)


def _prompts() -> int:
    from engines.datastores.building.model_answers import read_prompts

    return len(read_prompts(Path(STORE_PROMPTS)))


class KeptTexts:
    """The documents of a datastore of a model's answers once more, as a ``corpus.Corpus``."""

    unit = "answers"

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime, self._documents, self._tokens = runtime, Documents(store), store.array("tokens")
        self.total = len(self._documents)
        self.identity: dict[str, Any] = {"kind": "datastore", "of": dict(store.manifest.parameters["sources"])}

    def context(self, document: int) -> list[int]:
        """Token ids of the prompt that a document answers, as the model reads them."""
        from engines.tokenization import encode

        request = Request((("user", self._source(document)),))
        return encode(self._runtime.tokenizer, request, self._runtime.target.vocab_size)[0]

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``."""
        for number in range(resume or 0, self.total):
            begin, end = self._documents.bounds(number)
            yield Document(self._source(number), tokens=self._tokens[begin:end].astype(int).tolist()), number + 1

    def _source(self, document: int) -> str:
        return self._documents.place(self._documents.bounds(document)[0]).source


class KeptStates:
    """Reads hidden states, those of the same text once: datastores that differ in what is made of them share it. They
    are kept in float16, as a build writes them. ``identity``, ``context``, ``batch``: as of
    ``hidden_states.HiddenStates``."""

    def __init__(self, reader: Any) -> None:
        self._reader, self.identity, self.context, self.batch = reader, reader.identity, reader.context, reader.batch
        self._kept: dict[bytes, np.ndarray] = {}

    def __call__(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Float32 [n, H] for each text int64 [n]. Raises RunFailed if the model breaks."""
        keys = [np.asarray(text, np.int64).tobytes() for text in texts]
        new = {key: text for key, text in zip(keys, texts) if key not in self._kept}
        if new:
            for key, states in zip(new, self._reader(list(new.values())), strict=True):
                self._kept[key] = np.clip(states, -65504, 65504).astype(np.float16)
        return [self._kept[key].astype(np.float32) for key in keys]
