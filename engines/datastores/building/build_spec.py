"""A datastore to build, as plain data: where its text comes from and what is made of it; its estimate and its build.

Sources are files and folders, ``python-stdlib``, ``hf:DATASET[:SPLIT][:COLUMN]`` and ``model-answers``; a file with one
of these names is written ``./NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines.datastores.building.corpus import Corpus, Document, Encoder, JoinedCorpus, LoadedModel
from engines.datastores.datastore_events import BuildEstimate
from engines.datastores.search.ann import choose
from engines.datastores.search.reduction import Recipe
from engines.datastores.storage import catalog
from engines.datastores.storage.manifest import tokenizer_fingerprint, vocabulary_size
from engines.errors import UsageProblem
from engines.folders import typed_file
from engines.model.load_options import check_type, flag
from engines.progress import Loading, Progress, no_progress
from engines.report import encoding
from engines.request import Request

if TYPE_CHECKING:
    from engines.datastores.building.chats import Chats, Rows
    from engines.datastores.building.text_files import TextFiles
    from engines.datastores.storage.datastore import Store
    from engines.hub.model_source import TrustPolicy

KINDS = ("sparse", "dense", "both")
STANDARD_LIBRARY, ANSWERS, HUB = "python-stdlib", "model-answers", "hf:"
_LIBRARY = re.compile(r"python\d+\.\d+", re.ASCII)
_SAMPLED, _SAMPLED_CHARACTERS = 12, 1 << 15  # files or rows for an estimate, and characters of each file
_SUFFIX_SECONDS = 3e-7  # a token: the suffix array and the checksums
_UNLIMITED = 1 << 62
_OF_ANSWERS = ("prompts", "answers", "temperature", "top_p", "max_new_tokens", "system", "with_prompts", "engine")
_OF_KEYS = (*(of.name for of in fields(Recipe)), "index", "sample", "window")  # a recipe's, then a build's


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What to build.

    Attributes:
        name: of the datastore.
        sources: at least one; ``model-answers`` must be the only one.
        kind: sparse, dense or both.
        prompts: file of prompts, for ``model-answers``.
        answers: to each prompt; more than one needs a temperature.
        temperature, top_p: of the answers. A temperature of 0 is greedy; else answer i has the seed i.
        max_new_tokens: of each answer.
        engine: that decodes the answers, "" for the default; their text does not depend on it.
        system: system prompt of the answers, "" for none.
        with_prompts: each document begins with the prompt that it answers, as the model reads it.
        columns: of a source with rows (a file of JSON lines, a dataset of the hub): each row is a chat, the last column
            its answer and those before it the question. () reads files as text, and of a dataset the column that its
            source names.
        limit, document_limit: most tokens, and most of each document; None for all.
        recipe, index, sample: of a dense part; see ``reduction.Recipe`` and ``dense_build.DensePart``.
        window: most tokens of a text that are read together, None for the default.
    """

    name: str
    sources: tuple[str, ...]
    kind: str = "sparse"
    prompts: str | None = None
    answers: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    engine: str = ""
    system: str = ""
    with_prompts: bool = False
    columns: tuple[str, ...] = ()
    limit: int | None = field(default=None, metadata={"min": 1})
    document_limit: int | None = field(default=None, metadata={"min": 1})
    recipe: Recipe = field(default_factory=Recipe)
    index: str = "auto"
    sample: int = field(default=1_000_000, metadata={"min": 1})
    window: int | None = field(default=None, metadata={"min": 4})

    @property
    def from_answers(self) -> bool:
        """Whether the model writes the text."""
        return ANSWERS in self.sources

    @property
    def needs_model(self) -> bool:
        """Whether more than a tokenizer is needed."""
        return self.from_answers or self.kind != "sparse"

    def check(self) -> None:
        """Raises UsageProblem for what is wrong whatever the model and the sources hold."""
        catalog.check_name(self.name)
        if not self.sources:
            raise UsageProblem("nothing to build from", f"name files or folders, {STANDARD_LIBRARY}, {HUB}DATASET or "
                               f"{ANSWERS} as the source")  # fmt: skip
        if not isinstance(self.sources, tuple | list):  # the first character of a string may be /, the whole disk
            raise UsageProblem("sources is not a tuple of strings", f'give ("{self.sources}",)')
        if not all(isinstance(source, str) for source in self.sources):
            raise UsageProblem("sources is not a tuple of strings", "give paths as strings: str(path)")
        for of in fields(self):
            value, least = getattr(self, of.name), of.metadata.get("min")
            check_type(of, value)
            if None not in (value, least) and value < least:
                name = of.name.replace("_", "-")
                raise UsageProblem(f"{name} {value} is out of range", f"--{name} is at least {least}")
        if self.name == STANDARD_LIBRARY and self.sources != (STANDARD_LIBRARY,):
            raise UsageProblem(f"{STANDARD_LIBRARY} is the name of the standard library's datastore",
                               f"choose another name, or build it from {STANDARD_LIBRARY} alone")
        if self.kind not in KINDS:
            raise UsageProblem(f"there is no kind {self.kind!r}", f"kinds are: {', '.join(KINDS)}")
        if self.from_answers:
            self._check_answers()
        else:
            self._refuse(_OF_ANSWERS, f"--from {ANSWERS}")
        if self.kind == "sparse":
            self._refuse(_OF_KEYS, "--kind dense or both")
        if self.columns:
            self._check_columns()
        choose(self.index, 0)

    def _refuse(self, names: tuple[str, ...], where: str) -> None:
        """Raises UsageProblem for a value that differs from its default: it is for other builds."""
        default = BuildSpec(self.name, self.sources)
        for name in names:
            of, plain = (self.recipe, default.recipe) if hasattr(default.recipe, name) else (self, default)
            if getattr(of, name) != getattr(plain, name):
                raise UsageProblem(f"{flag(name)} would change nothing here", f"it is for {where}")

    def _check_columns(self) -> None:
        if len(self.columns) < 2:
            raise UsageProblem(f"one column, {self.columns[0]}, is not a chat",
                               "name the columns of the question, then the answer: --columns prompt,answer")
        if len(self.sources) > 1 or self.sources[0] in (STANDARD_LIBRARY, ANSWERS):
            raise UsageProblem("--columns needs one file of JSON lines, or one dataset",
                               f"for example --from chats.jsonl, or --from {HUB}OWNER/NAME")

    def _check_answers(self) -> None:
        if len(self.sources) > 1:
            raise UsageProblem(f"{ANSWERS} cannot be combined with other sources",
                               "build two datastores and use them together")
        if self.prompts is None:
            raise UsageProblem(f"{ANSWERS} needs questions to answer",
                               "give a file with a prompt on each line: --prompts FILE")
        if self.answers < 1:
            raise UsageProblem(f"{self.answers} answers to a prompt cannot be made", "--answers is at least 1")
        if self.answers > 1 and self.temperature == 0:
            raise UsageProblem("greedy answers to a prompt are all the same", "give a temperature above 0")
        self.request("x").check()

    def with_absolute_paths(self) -> BuildSpec:
        """The same build, described independently of the current folder."""
        sources = tuple(
            s if s in (STANDARD_LIBRARY, ANSWERS) or s.startswith(HUB) else _absolute(s) for s in self.sources
        )
        return replace(self, sources=sources, prompts=self.prompts and _absolute(self.prompts))

    def request(self, prompt: str, number: int = 0) -> Request:
        """The request for answer ``number`` to a prompt."""
        turns = ((("system", self.system),) if self.system else ()) + (("user", prompt),)
        return Request(
            turns, self.engine, temperature=self.temperature, top_p=self.top_p, seed=number,
            max_new_tokens=self.max_new_tokens, keeps=False,
        )


def _absolute(path: str) -> str:
    return str(typed_file(path).absolute())


def unfinished_build(name: str) -> BuildSpec | None:
    """The spec of an unfinished build; None if it is not known."""
    from engines.datastores.building.build_journal import unfinished_spec

    try:
        return encoding.build(BuildSpec, unfinished_spec(name))
    except (ValueError, UsageProblem):
        return None


def open_corpus(
    spec: BuildSpec, model: Callable[[], LoadedModel] | None = None, progress: Progress = no_progress
) -> Corpus:
    """The text to build from; ``model`` gives, once the prompts are read, the model that writes the answers.

    Raises:
        UsageProblem: a source does not exist or holds no text.
        ModelUnavailable: a dataset of the hub cannot be read.
    """
    from engines.datastores.building.text_files import standard_library, text_files

    if spec.from_answers:
        from engines.datastores.building.model_answers import ModelAnswers, read_prompts

        assert model is not None
        prompts = read_prompts(Path(spec.prompts))
        return ModelAnswers(model(), prompts, spec)
    if spec.columns:
        from engines.datastores.building.chats import Chats

        return Chats(_rows(spec.sources[0]), spec.columns)
    parts: list[Corpus] = []
    paths: list[Path] = []
    for source in (*spec.sources, None):
        named = source is None or source == STANDARD_LIBRARY or source.startswith(HUB)
        if named and paths:
            parts.append(text_files(paths, progress=progress))
            paths = []
        if not named:
            paths.append(typed_file(source))
        elif source == STANDARD_LIBRARY:
            parts.append(standard_library(progress))
        elif source is not None:
            from engines.datastores.building.hub_dataset import hub_dataset

            parts.append(hub_dataset(source.removeprefix(HUB)))
    return parts[0] if len(parts) == 1 else JoinedCorpus(parts)


def _rows(source: str) -> Rows:
    if source.startswith(HUB):
        from engines.datastores.building.hub_dataset import hub_dataset

        return hub_dataset(source.removeprefix(HUB))
    from engines.datastores.building.chats import JsonRows

    return JsonRows(typed_file(source))


def estimate_build(spec: BuildSpec, corpus: Corpus, tokenizer: Any, model: LoadedModel | None = None) -> BuildEstimate:
    """An estimate in a fraction of a second: files are sampled, and answers are taken to be as long as they may be.
    Raises UsageProblem: the model's chat template refuses a row's chat."""
    parts = corpus.parts if isinstance(corpus, JoinedCorpus) else [corpus]
    if all(map(_can_be_sampled, parts)):
        estimate = _of_parts(parts, Encoder(tokenizer), spec)
    elif spec.from_answers:
        written = corpus.total * spec.max_new_tokens
        tokens = min(written + corpus.prompt_tokens, spec.limit or _UNLIMITED)
        estimate = of_tokens(tokens, tokenizer, min(written, tokens) * model.prices[0].at(1))
    elif spec.limit is not None:
        estimate = of_tokens(spec.limit, tokenizer)
    else:
        return BuildEstimate(None)
    if spec.kind == "sparse":
        return estimate
    return with_dense_part(estimate, spec.recipe, model)


def _can_be_sampled(corpus: Corpus) -> bool:
    from engines.datastores.building.chats import Chats
    from engines.datastores.building.text_files import TextFiles

    return isinstance(corpus, TextFiles) or (isinstance(corpus, Chats) and corpus.chats is not None)


def _of_parts(parts: Sequence[TextFiles | Chats], encoder: Encoder, spec: BuildSpec) -> BuildEstimate:
    """The estimate of a sparse build of these, one after another, the last of them as far as the limit goes."""
    found: list[BuildEstimate] = []
    for part in parts:
        left = spec.limit and spec.limit - sum(each.tokens for each in found)
        if left is None or left > 0:
            found.append(estimate_sparse(part, encoder, left, spec.document_limit))
    return BuildEstimate(*(sum(getattr(each, name) for each in found)
                           for name in ("tokens", "size", "building", "seconds")))


def of_tokens(tokens: int, tokenizer: Any, seconds: float | None = None) -> BuildEstimate:
    """The estimate of a sparse build of so many tokens at most, in so many seconds."""
    from engines.datastores.search.sparse import token_bytes

    size = tokens * token_bytes(vocabulary_size(tokenizer))
    return BuildEstimate(tokens, size, size, seconds, upper_bound=True)


def with_dense_part(sparse: BuildEstimate, recipe: Recipe, model: LoadedModel) -> BuildEstimate:
    """The estimate of a build with a dense part too, given that of its sparse part."""
    from engines.datastores.building.dense_build import estimate_dense

    size, building = estimate_dense(sparse.tokens, model.identity.width, recipe)
    price = model.prices[0]
    rows = price.points[-1][0]
    seconds = None if sparse.seconds is None else sparse.seconds + sparse.tokens * price.at(rows) / rows
    return replace(sparse, size=sparse.size + size, building=sparse.size + building, seconds=seconds)


def estimate_sparse(
    corpus: TextFiles | Chats, encoder: Encoder, limit: int | None = None, document_limit: int | None = None,
) -> BuildEstimate:
    """What ``build_datastore`` of these files, or of the chats of a file, will take, measured on a few of them. Raises
    UsageProblem: the model's chat template refuses a chat."""
    from engines.datastores.search.sparse import token_bytes

    texts, documents, scale = _sampled(corpus)
    clock = perf_counter()
    encoded = encoder(texts)
    seconds = perf_counter() - clock
    found, lines = sum(len(e.tokens) for e in encoded), sum(len(e.lines) for e in encoded)
    most = min(limit or _UNLIMITED, documents * (document_limit or _UNLIMITED))
    scale *= min(1.0, most / max(1.0, found * scale))
    tokens = round(found * scale)
    size = round(tokens * token_bytes(encoder.vocab_size) + lines * scale * 4)
    return BuildEstimate(tokens, size, size, seconds * scale + tokens * _SUFFIX_SECONDS)


def _sampled(corpus: TextFiles | Chats) -> tuple[list[Document], int, float]:
    """The beginnings of a few documents; how many documents there are; the size of all of them over that of these."""
    from engines.datastores.building.chats import Chats
    from engines.datastores.search.continuations import spread

    chats = isinstance(corpus, Chats)
    places = spread(corpus.total if chats else len(corpus.files), _SAMPLED)
    chosen = [found[0] for i in places if (found := next(corpus.documents(int(i)), None)) is not None]
    if chats:
        return chosen, corpus.chats, corpus.chats / max(1, len(chosen))
    texts = [Document(d.source, d.text[:_SAMPLED_CHARACTERS], line=1) for d in chosen]
    return texts, len(corpus.files), corpus.total / max(1, sum(len(d.text.encode()) for d in texts))


def build(
    spec: BuildSpec, corpus: Corpus, tokenizer: Any, model: LoadedModel | None = None, progress: Progress = no_progress,
    fresh: bool = False, replace: bool = False, reader: Any = None,
) -> Store:
    """Build a datastore; an interrupted build of the same continues. ``reader``: of hidden states, None for one of the
    model. Raises UsageProblem, DatastoreProblem, RunFailed: see ``build_datastore``."""
    from engines.datastores.building.build_datastore import build_datastore

    dense: dict[str, Any] = {}
    if spec.kind != "sparse":
        from engines.datastores.building.hidden_states import WINDOW, HiddenStates, tokens_before

        window = spec.window or (None if spec.from_answers else WINDOW)
        dense = {"reader": reader or HiddenStates(model.target, model.identity, window), "recipe": spec.recipe,
                 "index": spec.index, "sample": spec.sample, "before": tokens_before(corpus, tokenizer)}
    return build_datastore(
        spec.name, corpus, tokenizer, kind=spec.kind, limit=spec.limit, document_limit=spec.document_limit,
        progress=progress, fresh=fresh, replace=replace,
        spec=encoding.plain(spec.with_absolute_paths()) if spec.sources else None, **dense,
    )


def open_standard_library(tokenizer: Any, progress: Progress = no_progress) -> Store:
    """The standard library of this Python as a sparse datastore for this tokenizer. It is built, in seconds, if it is
    missing or was built for another tokenizer or Python. A datastore of the user's with this name is opened as it is.
    Raises UsageProblem, DatastoreProblem: see ``build_datastore`` and ``catalog.open_store``."""
    from engines.datastores.building.build_datastore import build_datastore
    from engines.datastores.building.text_files import library_name, standard_library

    fingerprint = tokenizer_fingerprint(tokenizer)
    entry = next((e for e in catalog.listing() if e.name == STANDARD_LIBRARY and not e.unfinished), None)
    if entry is not None and entry.manifest is not None:
        roots = (entry.manifest.parameters.get("sources") or {}).get("roots")
        ours = roots and _LIBRARY.fullmatch(",".join(map(str, roots))) and entry.manifest.kind == "sparse"
        if not ours or (roots == [library_name()] and entry.manifest.tokenizer == fingerprint):
            return catalog.open_store(STANDARD_LIBRARY, fingerprint)
    corpus = standard_library(progress)
    return build_datastore(STANDARD_LIBRARY, corpus, tokenizer, progress=progress, fresh=True, replace=True)


def load_tokenizer_of(
    model: str | None, revision: str | None, terms: TrustPolicy, progress: Callable[[Loading], None] = lambda _: None
) -> Any:
    """The tokenizer of a model (None: the shipped one), without its weights. Raises ModelUnavailable."""
    from engines.hub.known_models import default_model
    from engines.hub.model_source import locate
    from engines.model.loading import load_tokenizer

    return load_tokenizer(locate(model or default_model(), revision, terms, "target", progress))
