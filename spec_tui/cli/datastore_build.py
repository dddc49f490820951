"""``spec-tui datastore build``: from texts or from the model's own answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from engines.errors import UsageProblem
from engines.hub.download_progress import in_bytes
from spec_tui.cli.datastore_progress import BuildProgressLine
from spec_tui.cli.failures import INTERRUPTED, narrate
from spec_tui.cli.options import Format, ModelOptions, OutputFormat
from spec_tui.present.progress import left_out, takes
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildEstimate, BuildSpec
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
    from engines.datastores.search.reduce import Recipe

    sources = (*(from_ or ()), *(more or ()))
    order = BuildSpec(
        name, sources, kind, prompts, answers, temperature, max_new_tokens, engine, system, limit,
        Recipe(dims, z_norm, unit_norm), index, sample, window,
    )
    order.check()
    if not fresh and not replace:
        _check_free(name)
    try:
        store = _build(order, models.load, fresh, replace)
    except KeyboardInterrupt:
        narrate(f"\nspec-tui: interrupted; {_left(name)}")
        return INTERRUPTED
    _tell(store, format)
    return 0


def _check_free(name: str) -> None:
    """Say that the name is taken before anything is loaded. Raises UsageProblem."""
    from engines.datastores.storage import catalog as places

    if any(e.name == name and not e.unfinished for e in places.listing()):
        raise UsageProblem(f"there is a datastore {name}", "choose another name, remove it first, or use --replace")


def _build(order: BuildSpec, load: LoadRequest, fresh: bool, replace: bool) -> Store:
    from spec_tui.cli.run import load_decoder

    runtime = load_decoder(load) if order.needs_model else None
    tokenizer = runtime.tokenizer if runtime is not None else tokenizer_of(load)
    from engines.datastores.building import build_spec as orders

    with BuildProgressLine() as pace:
        corpus = orders.corpus_of(order, runtime, pace.show)
    if words := left_out(getattr(corpus, "skipped", {})):
        narrate(words)
    _say_what_it_takes(orders.outlook(order, corpus, tokenizer, runtime))
    with BuildProgressLine() as pace:
        return orders.build(order, corpus, tokenizer, runtime, pace.show, fresh, replace)


def tokenizer_of(load: LoadRequest) -> Any:
    """The tokenizer of a model, without its weights. Raises ModelUnavailable."""
    from spec_tui.cli.output import Status
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    with Status() as status:
        from engines.datastores.building.build_spec import tokenizer_of as found
        from engines.hub.model_files import TrustPolicy

        terms = TrustPolicy(load.allow_pickle, load.trust_remote_code)
        return found(load.model, load.revision, terms, status.show)


def _say_what_it_takes(found: BuildEstimate) -> None:
    """The estimate, and whether the disk has room for it."""
    from engines.datastores.building.datastore_service import free

    narrate(", ".join(takes(found.tokens, found.size, found.building, found.seconds, found.most)))
    left = free()
    if found.building and found.building > left:
        narrate(f"note: the disk has {in_bytes(left)} left; SPEC_TUI_DATA_DIR chooses another place for datastores")


def _left(name: str) -> str:
    from engines.datastores.storage import catalog as places

    if any(e.name == name and e.unfinished for e in places.listing()):
        return "what is done stays: the same command goes on from there"
    return "nothing had been done yet"


def _tell(store: Store, format: Format) -> None:
    from spec_tui.cli.datastore import summary

    facts = summary(store)
    if format is Format.json:
        print(json.dumps(facts, indent=2))
        return
    keys = f", {facts['keys']:,} keys" if facts["keys"] else ""
    print(f"{facts['name']}: {facts['kind']}, {facts['tokens']:,} tokens in {facts['documents']:,} documents{keys}, "
          f"{in_bytes(facts['bytes'])}")  # fmt: skip


