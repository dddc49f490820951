"""``spec-tui datastore build``: from texts or from the model's own answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from engines.errors import UsageProblem
from engines.hub.download_progress import in_bytes
from spec_tui.cli.failures import INTERRUPTED, narrate
from spec_tui.cli.options import Format, ModelOptions, OutputFormat
from spec_tui.cli.stage_progress import StageProgress
from spec_tui.present.progress import estimate_parts, skipped_files
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.events import BuildEstimate
    from engines.datastores.storage.datastore import Store

_FROM = "Files, folders, python-stdlib, hf:DATASET[:SPLIT][:COLUMN] or model-answers; repeatable."
_MORE = "More sources, so that --from *.py works."
_KIND = "sparse: exact matches; dense: hidden states of the model; both."
_PROMPTS = "For model-answers: prompts, one a line, or lines of JSON with a prompt."
_LIMIT = "Stop after so many tokens."
_DIMS = "Dense: principal components of a key, 0 for no PCA."
_INDEX = "Dense: scann, faiss, exact, or auto."
_SAMPLE = "Dense: hidden states that mean, deviation and PCA are fitted on."
_WINDOW = "Dense: tokens of a document read together. Default: 2048."
_REPLACE = "Let one of this name give way when the new one is complete."


def build(
    name: Annotated[str, Argument(metavar="NAME", help="What it will be called.")],
    more: Annotated[list[str] | None, Argument(metavar="[SOURCE]...", help=_MORE)] = None,
    from_: Annotated[list[str] | None, Option("--from", metavar="SOURCE", help=_FROM)] = None,
    kind: Annotated[str, Option(metavar="sparse|dense|both", help=_KIND)] = "sparse",
    prompts: Annotated[str | None, Option(metavar="FILE", help=_PROMPTS)] = None,
    answers: Annotated[int, Option(metavar="N", help="Answers to each prompt; with a temperature.")] = 1,
    temperature: Annotated[float, Option(metavar="T", help="Of the answers; 0 is greedy.")] = 0.0,
    max_new_tokens: Annotated[int, Option(metavar="N", help="Longest answer, in tokens.")] = 256,
    system: Annotated[str, Option(metavar="TEXT", help="System prompt of the answers. Default: none.")] = "",
    engine: Annotated[str, Option(metavar="ID", help="How answers are decoded; changes only the time.")] = "",
    limit: Annotated[int | None, Option(metavar="TOKENS", help=_LIMIT)] = None,
    dims: Annotated[int, Option(metavar="D", help=_DIMS)] = 64,
    z_norm: Annotated[bool, Option("--z-norm/--no-z-norm", help="Dense: dimensions to mean 0, deviation 1.")] = True,
    unit_norm: Annotated[bool, Option("--unit-norm/--no-unit-norm", help="Dense: keys of length 1.")] = True,
    index: Annotated[str, Option(metavar="INDEX", help=_INDEX)] = "auto",
    sample: Annotated[int, Option(metavar="N", help=_SAMPLE)] = 1_000_000,
    window: Annotated[int | None, Option(metavar="N", help=_WINDOW)] = None,
    fresh: Annotated[bool, Option("--fresh", help="Start over, whatever an interrupted build left.")] = False,
    replace: Annotated[bool, Option("--replace", help=_REPLACE)] = False,
    format: OutputFormat = Format.text,
    *,
    models: ModelOptions,
) -> int:
    """Build a datastore. What it will take is said first; ctrl+c keeps what is done, and the same command goes on.

    It is for the tokenizer of the model, a dense one for the model itself. Links and hidden files in folders, binary
    files and files of more than 4 MB are left out and counted.
    """
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.search.reduction import Recipe

    sources = (*(from_ or ()), *(more or ()))
    spec = BuildSpec(
        name=name, sources=sources, kind=kind, prompts=prompts, answers=answers, temperature=temperature,
        max_new_tokens=max_new_tokens, engine=engine, system=system, limit=limit,
        recipe=Recipe(dims, z_norm, unit_norm), index=index, sample=sample, window=window,
    )
    spec.check()
    if not fresh and not replace:
        _check_free(name)
    try:
        store = _build(spec, models.load, fresh, replace)
    except KeyboardInterrupt:
        narrate(f"\nspec-tui: interrupted; {_what_is_left(name)}")
        return INTERRUPTED
    _print_store(store, format)
    return 0


def _check_free(name: str) -> None:
    """Say that the name is taken before anything is loaded. Raises UsageProblem."""
    from engines.datastores.storage import catalog

    if any(e.name == name and not e.unfinished for e in catalog.listing()):
        raise UsageProblem(f"there is a datastore {name}", "choose another name, remove it first, or use --replace")


def _build(spec: BuildSpec, load: LoadRequest, fresh: bool, replace: bool) -> Store:
    from spec_tui.cli.run import load_decoder

    runtime = load_decoder(load) if spec.needs_model else None
    tokenizer = runtime.tokenizer if runtime is not None else tokenizer_of(load)
    from engines.datastores.building.build_spec import build, estimate_build, open_corpus

    with StageProgress() as progress:
        corpus = open_corpus(spec, runtime, progress.show)
    if words := skipped_files(getattr(corpus, "skipped", {})):
        narrate(words)
    _print_estimate(estimate_build(spec, corpus, tokenizer, runtime))
    with StageProgress() as progress:
        return build(spec, corpus, tokenizer, runtime, progress.show, fresh, replace)


def tokenizer_of(load: LoadRequest) -> Any:
    """The tokenizer of a model, without its weights. Raises ModelUnavailable."""
    from spec_tui.cli.output import Status
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    with Status() as status:
        from engines.datastores.building.build_spec import load_tokenizer_of
        from engines.hub.model_source import TrustPolicy

        terms = TrustPolicy(load.allow_pickle, load.trust_remote_code)
        return load_tokenizer_of(load.model, load.revision, terms, status.show)


def _print_estimate(estimate: BuildEstimate) -> None:
    """The estimate, and a note if the disk has too little space for it."""
    from engines.datastores.storage.catalog import free_bytes

    narrate(", ".join(estimate_parts(estimate)))
    free = free_bytes()
    if estimate.building and estimate.building > free:
        narrate(f"note: the disk has {in_bytes(free)} left; SPEC_TUI_DATA_DIR chooses another place for datastores")


def _what_is_left(name: str) -> str:
    from engines.datastores.storage import catalog

    if any(e.name == name and e.unfinished for e in catalog.listing()):
        return "what is done stays: the same command goes on from there"
    return "nothing had been done yet"


def _print_store(store: Store, format: Format) -> None:
    facts = summary(store)
    if format is Format.json:
        print(json.dumps(facts, indent=2))
        return
    keys = f", {facts['keys']:,} keys" if facts["keys"] else ""
    print(f"{facts['name']}: {facts['kind']}, {facts['tokens']:,} tokens in {facts['documents']:,} documents{keys}, "
          f"{in_bytes(facts['bytes'])}")  # fmt: skip


def summary(store: Store) -> dict[str, Any]:
    """A datastore in plain data, as ``build``, ``info`` and ``list`` print it."""
    facts = store.manifest
    model = facts.model
    return {
        "name": store.name, "kind": facts.kind, "tokens": facts.tokens, "documents": facts.documents,
        "keys": facts.keys, "bytes": facts.size, "created": facts.created, "vocab_size": facts.vocab_size,
        "tokenizer": facts.tokenizer, "model": model.name if model else None,
        "revision": model.revision if model else None,
    }
