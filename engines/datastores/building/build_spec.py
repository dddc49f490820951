"""A datastore to be built, as plain data: where its text comes from, and what is made of it.

Sources are files and folders, ``python-stdlib``, ``hf:DATASET[:SPLIT][:COLUMN]`` and ``model-answers``; a file that is
called like one of these is meant by ``./NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.datastores.building.corpus import Corpus, Encoder, Joined
from engines.datastores.building.progress import Progress, no_progress
from engines.datastores.search.ann import choose
from engines.datastores.search.reduce import Recipe
from engines.datastores.storage import catalog as places
from engines.errors import UsageProblem
from engines.report import encoding

if TYPE_CHECKING:
    from engines.datastores.storage.datastore import Store
    from engines.hub.model_files import TrustPolicy
    from engines.report.events import Loading
    from engines.runtime import Runtime

KINDS = ("sparse", "dense", "both")
STANDARD_LIBRARY, ANSWERS, HUB = "python-stdlib", "model-answers", "hf:"
_LIBRARY = re.compile(r"python\d+\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What is wanted.

    Attributes:
        name: of the datastore.
        sources: at least one; ``model-answers`` stands alone.
        kind: sparse, dense or both.
        prompts: file of prompts, for ``model-answers``.
        answers, temperature, max_new_tokens, engine, system: see ``answers.Sampled``.
        limit: tokens at most, None for all.
        recipe, index, sample: of a dense part; see ``reduce.Recipe`` and ``dense_build.DenseBuilder``.
        window: tokens of a text that are read together at most, None for the usual number.
    """

    name: str
    sources: tuple[str, ...]
    kind: str = "sparse"
    prompts: str | None = None
    answers: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 256
    engine: str = ""
    system: str = ""
    limit: int | None = None
    recipe: Recipe = field(default_factory=Recipe)
    index: str = "auto"
    sample: int = 1_000_000
    window: int | None = None

    @property
    def answered(self) -> bool:
        """Whether the model writes the text."""
        return ANSWERS in self.sources

    @property
    def needs_model(self) -> bool:
        """Whether more than a tokenizer is needed."""
        return self.answered or self.kind != "sparse"

    def check(self) -> None:
        """What can be said before anything is loaded. Raises UsageProblem."""
        places.check_name(self.name)
        if not self.sources:
            raise UsageProblem("nothing to build from", f"name files or folders, {STANDARD_LIBRARY}, {HUB}DATASET or "
                               f"{ANSWERS}: --from")  # fmt: skip
        if self.kind not in KINDS:
            raise UsageProblem(f"there is no kind {self.kind!r}", f"kinds are: {', '.join(KINDS)}")
        if self.answered and len(self.sources) > 1:
            raise UsageProblem(f"{ANSWERS} stands alone", "build two datastores and use them together")
        if self.answered and self.prompts is None:
            raise UsageProblem(f"{ANSWERS} needs questions to answer", "give a file of prompts: --prompts FILE")
        if not self.answered and (self.prompts is not None or self.answers != 1 or self.temperature or self.system):
            raise UsageProblem(f"prompts, answers, temperature and system are for {ANSWERS}", f"--from {ANSWERS}")
        for name, value, least in (("limit", self.limit, 1), ("sample", self.sample, 1), ("window", self.window, 4)):
            if value is not None and value < least:
                raise UsageProblem(f"{name} {value} is out of range", f"--{name} is at least {least}")
        choose(self.index, 0)
        if self.answered:
            self.sampled().request("x").check()

    def anywhere(self) -> BuildSpec:
        """The same with whole paths: what means the same from any folder."""
        sources = tuple(s if s in (STANDARD_LIBRARY, ANSWERS) or s.startswith(HUB) else _whole(s) for s in self.sources)
        return replace(self, sources=sources, prompts=self.prompts and _whole(self.prompts))

    def sampled(self) -> Any:
        """How answers are made, an ``answers.Sampled``. Raises UsageProblem."""
        from engines.datastores.building.model_answers import Sampled

        return Sampled(self.answers, self.temperature, self.max_new_tokens, self.engine, self.system)


def _whole(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def begun(name: str) -> BuildSpec | None:
    """The order of an unfinished build; None where it is not known. Raises UsageProblem: not a name."""
    from engines.datastores.building.build_journal import begun_with

    try:
        return encoding.build(BuildSpec, begun_with(name))
    except (ValueError, UsageProblem):
        return None


def corpus_of(order: BuildSpec, runtime: Runtime | None = None, progress: Progress = no_progress) -> Corpus:
    """The text of an order.

    Args:
        runtime: where the model answers.

    Raises:
        UsageProblem: a source that there is not, or that holds no text.
        ModelUnavailable: a dataset of the hub that can't be had.
    """
    if order.answered:
        from engines.datastores.building.model_answers import Answers, read_prompts

        assert runtime is not None
        return Answers(runtime, read_prompts(Path(order.prompts)), order.sampled(), runtime.mark.fingerprint)
    parts: list[Corpus] = []
    paths: list[Path] = []
    for source in order.sources:
        if source == STANDARD_LIBRARY or source.startswith(HUB):
            parts += _files(paths, progress)
            parts.append(_named(source, progress))
        else:
            paths.append(Path(source).expanduser())
    parts += _files(paths, progress)
    return parts[0] if len(parts) == 1 else Joined(parts)


def _named(source: str, progress: Progress) -> Corpus:
    if source == STANDARD_LIBRARY:
        from engines.datastores.building.text_files import standard_library

        return standard_library(progress)
    from engines.datastores.building.hub_dataset import hub_dataset

    return hub_dataset(source.removeprefix(HUB))


def _files(paths: list[Path], progress: Progress) -> list[Corpus]:
    """The paths so far as one corpus, and none left."""
    from engines.datastores.building.text_files import files

    found = [files(list(paths), progress=progress)] if paths else []
    paths.clear()
    return found


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """What a build will take, as far as it can be told; None where it can't.

    Attributes:
        tokens: of the datastore.
        size, building: bytes of the datastore, and on the disk while it is built.
        seconds: in all.
        most: these are the most that it can be.
    """

    tokens: int | None
    size: int | None = None
    building: int | None = None
    seconds: float | None = None
    most: bool = False


def outlook(order: BuildSpec, corpus: Corpus, tokenizer: Any, runtime: Runtime | None = None) -> BuildEstimate:
    """An estimate, in a fraction of a second: files are sampled; answers can be as long as they may."""
    from engines.cost.curve import CostCurve
    from engines.datastores.building import size_estimate as estimate
    from engines.datastores.building.text_files import Files

    if isinstance(corpus, Files):
        found = estimate.estimate(corpus, Encoder(tokenizer), order.limit)
        tokens, size, seconds = found.tokens, found.size, found.seconds
    elif order.answered:
        tokens = min(corpus.total * order.max_new_tokens, order.limit or 1 << 62)
        size, seconds = 6 * tokens, tokens * CostCurve(runtime.ready.price).at(1)
    elif order.limit is not None:
        tokens, size, seconds = order.limit, 6 * order.limit, None
    else:
        return BuildEstimate(None)
    building = size
    if order.kind != "sparse":
        from engines.datastores.building.dense_build import estimate as of_keys

        keys = of_keys(tokens, runtime.mark.width, order.recipe)
        price = CostCurve(runtime.ready.price)
        rows = price.points[-1][0]
        size, building = size + keys.size, size + keys.building
        seconds = seconds and seconds + tokens * price.at(rows) / rows
    return BuildEstimate(tokens, size, building, seconds, most=not isinstance(corpus, Files))


def build(
    order: BuildSpec, corpus: Corpus, tokenizer: Any, runtime: Runtime | None = None, progress: Progress = no_progress,
    fresh: bool = False, replace: bool = False,
) -> Store:
    """Build what was ordered; an interrupted build of the same is taken up.

    Raises:
        UsageProblem, DatastoreProblem, RunFailed: see ``build.build_sparse`` and ``hidden.build_dense``.
    """
    from engines.datastores.building.sparse_build import build_sparse

    told = encoding.plain(order.anywhere())
    if order.kind == "sparse":
        return build_sparse(order.name, corpus, tokenizer, limit=order.limit, progress=progress, fresh=fresh,
                            replace=replace, order=told)  # fmt: skip
    from engines.datastores.building.hidden_states import WINDOW, ModelReader, before
    from engines.datastores.building.hidden_windows import build_dense

    window = order.window or (None if order.answered else WINDOW)
    return build_dense(
        order.name, corpus, tokenizer, ModelReader(runtime, window), kind=order.kind, recipe=order.recipe,
        index=order.index, limit=order.limit, sample=order.sample, before=before(corpus, tokenizer),
        progress=progress, fresh=fresh, replace=replace, order=told,
    )


def offered(tokenizer: Any, progress: Progress = no_progress) -> Store:
    """The standard library of this Python as a sparse datastore, for this tokenizer; built if it isn't there, or for
    another tokenizer or Python, which takes seconds. What else the user has called so is opened as it is.

    Raises:
        UsageProblem, DatastoreProblem: see ``build.build_sparse`` and ``store.open_store``.
    """
    from engines.datastores.building.sparse_build import build_sparse
    from engines.datastores.building.text_files import library_name, standard_library
    from engines.datastores.storage.datastore import open_store
    from engines.datastores.storage.tokenizer_fingerprint import of_tokenizer

    mark = of_tokenizer(tokenizer)
    entry = next((e for e in places.listing() if e.name == STANDARD_LIBRARY and not e.unfinished), None)
    if entry is not None and entry.manifest is not None:
        roots = (entry.manifest.parameters.get("sources") or {}).get("roots")
        offer = roots and _LIBRARY.fullmatch(",".join(map(str, roots))) and entry.manifest.kind == "sparse"
        if not offer or (roots == [library_name()] and entry.manifest.tokenizer == mark):
            return open_store(STANDARD_LIBRARY, mark)
    corpus = standard_library(progress)
    return build_sparse(STANDARD_LIBRARY, corpus, tokenizer, progress=progress, fresh=True, replace=True)


def tokenizer_of(
    model: str | None, revision: str | None, terms: TrustPolicy, progress: Callable[[Loading], None] = lambda _: None
) -> Any:
    """The tokenizer of a model (None: the one that ships), without its weights. Raises ModelUnavailable."""
    from engines.hub.model_source import locate
    from engines.model.loading import load_tokenizer
    from engines.model.model_pair import shipped_target

    return load_tokenizer(locate(model or str(shipped_target()), revision, terms, "target", progress))
