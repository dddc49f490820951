"""``spec-tui datastore``: what drafts are retrieved from. Build, list, look into, check, probe, remove."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, Typer

from engines import methods
from engines.errors import DatastoreProblem, UsageProblem
from engines.folders import free_bytes
from engines.hub.download_progress import in_bytes
from engines.report.encoding import plain
from engines.report.wording import counted
from spec_tui.cli.failures import INTERRUPTED, narrate
from spec_tui.cli.option_groups import (
    Format,
    ModelOptions,
    Only,
    OutputFormat,
    TargetOptions,
    command,
    complete_datastore,
)
from spec_tui.cli.output import console, table
from spec_tui.cli.prompts import argument_text, comma_separated, confirmed
from spec_tui.cli.status_line import StageProgress, Status
from spec_tui.present.datastore_text import source_words
from spec_tui.present.progress_text import estimate_parts, left_out
from spec_tui.present.text import as_json, one_line, padded, visible
from spec_tui.session.engine_commands import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.datastore_events import BuildEstimate, Probed, ProbeDraft
    from engines.datastores.storage.datastore import Store

_STANDARD_LIBRARY = "python-stdlib"  # offered, though not there until it is used

Name = Annotated[str, Argument(metavar="NAME", help="Name of the datastore.", autocompletion=complete_datastore)]

group = Typer(rich_markup_mode=None)


@group.callback(invoke_without_command=True)
def datastore(context: Context) -> None:
    """Datastores: what drafts are retrieved from."""
    if context.invoked_subcommand is None:
        raise UsageProblem("spec-tui datastore takes build, list, info, verify, probe or remove",
                           "for example spec-tui datastore list")


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the text of a datastore comes from."""

    from_: Annotated[list[str] | None, Option(
        "--from", metavar="SOURCE",
        help="Files, folders, python-stdlib, hf:DATASET[:SPLIT][:COLUMN] or model-answers; repeatable."
    )] = None
    columns: Annotated[str, Option(
        metavar="COLUMN,COLUMN", help="Each row of a file of JSON lines, or of a dataset, is a chat: the columns of "
                                      "the question, then the answer, formatted with the model's chat template."
    )] = ""
    limit: Annotated[int | None, Option(metavar="TOKENS", help="Maximum number of tokens.")] = None
    document_limit: Annotated[int | None, Option(
        metavar="TOKENS", help="Maximum number of tokens of each document; 1024 in the DReSD paper."
    )] = None


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """How the model answers, where its answers are the text."""

    prompts: Annotated[str | None, Option(
        metavar="FILE", help="For model-answers: a file with a prompt on each line, plain or as JSON."
    )] = None
    answers: Annotated[int, Option(metavar="N", help="Answers to each prompt (more than one needs a temperature).")] = 1
    temperature: Annotated[float, Option(metavar="T", help="Sampling temperature of the answers; 0 is greedy.")] = 0.0
    top_p: Annotated[float, Option(
        metavar="P", help="Sample the answers from the most probable tokens that together have this probability."
    )] = 1.0
    max_new_tokens: Annotated[int, Option(metavar="N", help="Longest answer, in tokens.")] = 256
    system: Annotated[str, Option(metavar="TEXT", help="System prompt of the answers. Default: none.")] = ""
    with_prompts: Annotated[bool, Option(
        "--with-prompts", help="Store each answer together with its prompt, as the model reads it."
    )] = False
    engine: Annotated[str, Option(metavar="ID", help="Engine that decodes the answers; it affects only the time.")] = ""


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """How hidden states become the keys of a dense datastore."""

    dims: Annotated[int, Option(metavar="D", help="Dense: dimensions of a key after PCA; 0 means no PCA.")] = 64
    z_norm: Annotated[bool, Option(
        "--z-norm/--no-z-norm", help="Dense: scale each dimension to mean 0 and standard deviation 1."
    )] = True
    unit_norm: Annotated[bool, Option("--unit-norm/--no-unit-norm", help="Dense: scale keys to length 1.")] = True
    index: Annotated[str, Option(metavar="INDEX", help="Dense: index; scann, faiss, exact or auto.")] = "auto"
    sample: Annotated[int, Option(
        metavar="N", help="Dense: number of hidden states that PCA and scaling are fitted on."
    )] = 1_000_000
    window: Annotated[int | None, Option(
        metavar="N", help="Dense: tokens of a document read at once. Default: 2048."
    )] = None


@group.command(short_help="Build one from files, folders, the hub or the model's answers.")
@command
def build(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the new datastore.")],
    more: Annotated[list[str] | None, Argument(metavar="SOURCE", help="More sources, for --from *.py.")] = None,
    kind: Annotated[str, Option(
        metavar="sparse|dense|both", help="sparse: exact matches; dense: hidden states of the model; both."
    )] = "sparse",
    *,
    text: TextOptions,
    answering: AnswerOptions,
    keys: KeyOptions,
    fresh: Annotated[bool, Option("--fresh", help="Start over, and drop what an interrupted build left.")] = False,
    replace: Annotated[bool, Option(
        "--replace", help="Replace a datastore of this name when the new one is complete."
    )] = False,
    format: OutputFormat = Format.text,
    models: ModelOptions,
) -> int:
    """Build a datastore. An estimate comes first; ctrl+c keeps what is done, and the same command continues;
    a document that was being tokenized is tokenized again.

    It belongs to the model's tokenizer, a dense one to the model itself. Symbolic links and hidden files in folders,
    binary files and files of more than 4 MB are skipped and counted.
    """
    from engines.datastores.building.build_journal import check_free

    spec = _spec(name, kind, more or [], text, answering, keys)
    spec.check()
    if spec.engine:
        methods.find(spec.engine)  # a wrong one is told before anything is loaded
    if not fresh:
        check_free(name, replace)
    try:
        store = _build(spec, models.load, fresh, replace)
    except KeyboardInterrupt:
        narrate(f"\nspec-tui: interrupted; {_what_is_left(name)}")
        return INTERRUPTED
    _print_store(store, format)
    return 0


def _spec(
    name: str, kind: str, more: list[str], text: TextOptions, answering: AnswerOptions, keys: KeyOptions
) -> BuildSpec:
    """What the flags ask for, not checked yet."""
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.search.reduction import Recipe

    given = asdict(answering) | {"system": argument_text(answering.system, "--system")}
    return BuildSpec(
        name=name, sources=(*(text.from_ or ()), *more), kind=kind, **given,
        columns=tuple(comma_separated(text.columns, "--columns")),
        limit=text.limit, document_limit=text.document_limit, recipe=Recipe(keys.dims, keys.z_norm, keys.unit_norm),
        index=keys.index, sample=keys.sample, window=keys.window,
    )


@group.command(name="list", short_help="The datastores on this machine.")
@command
def list_(format: OutputFormat = Format.text) -> int:
    """List the available datastores: your own, those that ship, unfinished builds; and what is built when searched."""
    from engines.datastores.storage import catalog
    from engines.datastores.storage.datastore import Store

    entries = catalog.listing()
    rows = []
    for entry in entries:
        facts = datastore_facts(Store(entry.folder)) if entry.manifest is not None else {
            "name": entry.name, "bytes": entry.size}
        rows.append(facts | {"shipped": entry.shipped, "unfinished": entry.unfinished, "problem": entry.problem,
                             "hint": entry.hint})
    offered = not any(e.name == _STANDARD_LIBRARY and e.manifest is not None for e in entries)
    if format is Format.json:
        print(as_json(rows + [{"name": _STANDARD_LIBRARY, "offered": True}] * offered, indent=2))
        return 0
    lines = [(row["name"], _line(row)) for row in rows]
    if offered:
        lines.append((_STANDARD_LIBRARY, "the standard library of this Python; built in seconds when first searched"))
    _print(lines)
    return 0


@group.command(short_help="A datastore's contents, and how it was made.")
@command
def info(name: Name, format: OutputFormat = Format.text) -> int:
    """Describe a datastore: kind, sizes, model, sources, how its dense part was made."""
    from engines.datastores.storage.catalog import open_store

    store = open_store(name)
    if format is Format.json:
        print(as_json(datastore_facts(store) | {"parameters": dict(store.manifest.parameters)}, indent=2))
    else:
        _print([(one_line(key), one_line(value)) for key, value in _facts(store)])
    return 0


@group.command(short_help="Compare checksums; measure how good an index is.")
@command
def verify(
    names: Annotated[list[str] | None, Argument(metavar="NAME", help="Datastores to check. Default: all.")] = None,
    recall: Annotated[bool, Option(
        "--recall", help="Measure recall@10 of held-out keys against exact search."
    )] = False,
    mrr: Annotated[bool, Option("--mrr", help="Measure the mean reciprocal rank of stored keys.")] = False,
    sample: Annotated[int, Option(metavar="N", help="Number of keys for --mrr.", min=1), Only(
        lambda given: given["mrr"], "--mrr")] = 1000,
    format: OutputFormat = Format.text,
) -> int:
    """Read every byte and compare it with its checksum; exit code 3 if something is damaged.

    --recall and --mrr measure the index of a dense part: what share of the nearest keys it finds, and the paper's mean
    reciprocal rank.
    """
    from engines.datastores.storage import catalog

    chosen = names or [e.name for e in catalog.listing() if not e.unfinished]
    if not chosen:
        raise UsageProblem("there are no datastores to verify", "spec-tui datastore build makes one")
    for name in chosen:  # before any is read, which may take minutes
        catalog.find(name)
    results = [_verified(name, recall, mrr, sample) for name in dict.fromkeys(chosen)]
    if format is Format.json:
        print(as_json(results, indent=2))
    else:
        _print([(r["name"], r["problem"] or _sound(r)) for r in results])
    return DatastoreProblem.exit_code if any(r["problem"] for r in results) else 0


@group.command(short_help="What would be drafted after a text, and from where.")
@command
def probe(
    text: Annotated[str, Argument(metavar="TEXT", help="The end of a context; the draft follows it.")],
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Prompt whose answer begins with TEXT.")] = None,
    datastore: Annotated[list[str] | None, Option(
        metavar="NAME", help="Datastore to search. Repeatable. Default: all that fit the model."
    )] = None,
    format: OutputFormat = Format.text,
    *,
    models: TargetOptions,
) -> int:
    """Show what would be drafted after a text: the matched suffix, the tree with its counts, the places; for dense
    parts the similarities of the nearest neighbours."""
    text = argument_text(text, "TEXT")
    prompt = prompt and argument_text(prompt, "--prompt")
    if not (text.strip() or (prompt and prompt.strip())):
        raise UsageProblem("the text is empty", "give the end of a context, or --prompt with it")
    found = _probe(text, prompt, datastore or [], models.load)
    if format is Format.json:
        print(as_json(plain(found), indent=2))
    else:
        print("\n".join(line for probed in found for line in _lines(probed)))
    return 0


@group.command(short_help="Delete a datastore, and what an interrupted build of it left.")
@command
def remove(name: Name, yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False) -> int:
    """Delete a datastore of yours. It asks first, unless --yes is given."""
    from engines.datastores.storage import catalog

    catalog.check_name(name)
    found = [e for e in catalog.listing() if e.name == name and not e.shipped]
    if not found:
        catalog.remove(name)  # which says why not
    size = in_bytes(sum(e.size for e in found))
    if not yes and not confirmed(f"remove datastore {name} ({size})?", "give --yes"):
        narrate("nothing was removed")
        return 1
    catalog.remove(name)
    narrate(f"removed {name}")
    return 0


def _build(spec: BuildSpec, load: LoadRequest, fresh: bool, replace: bool) -> Store:
    from spec_tui.cli.run import load_decoder
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    from engines.datastores.building.build_spec import build, estimate_build, open_corpus

    loaded = cache(lambda: load_decoder(load))
    with StageProgress() as progress:  # before the model is loaded: what is wrong with a source is told at once
        corpus = open_corpus(spec, loaded, progress.show)
    runtime = loaded() if spec.needs_model else None
    tokenizer = runtime.tokenizer if runtime is not None else tokenizer_of(load)
    if words := left_out(getattr(corpus, "skipped", {})):
        narrate(words)
    _print_estimate(estimate_build(spec, corpus, tokenizer, runtime))
    with StageProgress() as progress:
        return build(spec, corpus, tokenizer, runtime, progress.show, fresh, replace)


def tokenizer_of(load: LoadRequest) -> Any:
    """The tokenizer of a model, without its weights. Raises ModelUnavailable."""
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    with Status() as status:
        from engines.datastores.building.build_spec import load_tokenizer_of

        return load_tokenizer_of(load.model, load.revision, load.terms, status.show)


def _print_estimate(estimate: BuildEstimate) -> None:
    """The estimate, and a note if the disk has too little space for it."""
    from engines.datastores.storage.catalog import home

    narrate(", ".join(estimate_parts(estimate, "--limit")))
    free = free_bytes(home())
    if estimate.building and estimate.building > free:
        narrate(f"note: the disk has {in_bytes(free)} left; SPEC_TUI_DATA_DIR chooses another place for datastores")


def _what_is_left(name: str) -> str:
    from engines.datastores.storage import catalog

    if any(e.name == name and e.unfinished for e in catalog.listing()):
        return "the progress is kept: the same command continues"
    return "nothing was built yet"


def _print_store(store: Store, format: Format) -> None:
    facts = datastore_facts(store)
    if format is Format.json:
        print(as_json(facts, indent=2))
        return
    keys = f", {counted(facts['keys'], 'key')}" if facts["keys"] else ""
    tokens, documents = counted(facts["tokens"], "token"), counted(facts["documents"], "document")
    print(f"{facts['name']}: {facts['kind']}, {tokens} in {documents}{keys}, {in_bytes(facts['bytes'])}")


def datastore_facts(store: Store) -> dict[str, Any]:
    """A datastore in plain data, as ``build``, ``info`` and ``list`` print it."""
    facts = store.manifest
    model = facts.model
    return {
        "name": store.name, "kind": facts.kind, "tokens": facts.tokens, "documents": facts.documents,
        "keys": facts.keys, "bytes": facts.size, "created": facts.created, "vocab_size": facts.vocab_size,
        "tokenizer": facts.tokenizer, "model": model.name if model else None,
    }


def _line(row: dict[str, Any]) -> str:
    if row["unfinished"]:
        return f"unfinished, {in_bytes(row['bytes'])}: the command that began it continues it; remove deletes it"
    if row["problem"]:
        return f"cannot be used, {in_bytes(row['bytes'])}: {row['problem']}; {row['hint']}"
    keys = f", {counted(row['keys'], 'key')} of {row['model']}" if row["keys"] else ""
    ships = ", ships with the program" if row["shipped"] else ""
    return f"{row['kind']}, {counted(row['tokens'], 'token')}{keys}, {in_bytes(row['bytes'])}{ships}"


def _facts(store: Store) -> list[tuple[str, str]]:
    facts, dense = store.manifest, store.manifest.parameters.get("dense")
    rows = [
        ("name", store.name), ("folder", str(store.folder)), ("kind", facts.kind),
        ("tokens", f"{facts.tokens:,} in {counted(facts.documents, 'document')}"), ("size", in_bytes(facts.size)),
        ("vocabulary", f"{facts.vocab_size:,} tokens, fingerprint {facts.tokenizer[:16]}"), ("built", facts.created),
        ("from", source_words(facts.parameters.get("sources"))),
    ]
    if facts.model is not None:
        rows.append(("model", f"{facts.model.name}, width {facts.model.width}"))
    if isinstance(dense, dict):
        rows += [("keys", f"{facts.keys:,}"), ("dense", as_json(dense))]
    return rows


def _verified(name: str, recall: bool, mrr: bool, sample: int) -> dict[str, Any]:
    """The result for one datastore; what is wrong with it is part of that. Raises UsageProblem: there is none."""
    from engines.datastores.storage.catalog import open_store
    from engines.progress import ProgressReporter

    result: dict[str, Any] = {"name": name, "problem": ""}
    try:
        with StageProgress() as progress:
            store = open_store(name)
            store.verify(ProgressReporter(f"checksums of {name}", "bytes", progress.show).report)
            result |= {"files": len(store.manifest.files), "bytes": store.manifest.size}
            if (recall or mrr) and store.manifest.kind != "sparse":
                result |= _measured(store, recall, mrr, sample, progress)
            elif recall or mrr:
                result["remark"] = "no dense part to measure"
    except DatastoreProblem as error:
        result["problem"] = error.message
        narrate(f"{error.message}\n  {error.hint}")
    return result


def _measured(store: Store, recall: bool, mrr: bool, sample: int, progress: StageProgress) -> dict[str, Any]:
    from engines.datastores.search import dense as measures

    dense = measures.DenseStore(store)
    found: dict[str, Any] = {"index": dense.index.backend, "remark": dense.remark}
    if recall:
        share = measures.recall(dense, progress=progress.show)
        found["recall"] = None if share is None else {"value": share.value, "k": share.k, "queries": share.queries}
    if mrr:
        found["mrr"] = measures.mean_reciprocal_rank(dense, sample, progress=progress.show)
    return found


def _sound(result: dict[str, Any]) -> str:
    words = [f"sound: {result['files']} files, {in_bytes(result['bytes'])}"]
    if "recall" in result:
        share = result["recall"]
        words.append("no keys were held out to measure recall" if share is None else
                     f"recall@{share['k']} {share['value']:.3f} of {share['queries']} held-out keys")  # fmt: skip
    if "mrr" in result:
        words.append(f"mean reciprocal rank {result['mrr']:.3f}")
    if "index" in result:
        words.append(f"index {result['index']}")
    if result.get("remark"):
        words.append(result["remark"])
    return "; ".join(words)


def _print(rows: list[tuple[str, str]]) -> None:
    console().print(table(rows) if rows else "there are none")


def _probe(text: str, prompt: str | None, names: list[str], load: LoadRequest) -> list[Probed]:
    """The drafts of each datastore: of those named, else of all that fit. Raises UsageProblem, DatastoreProblem."""
    from spec_tui.cli.run import load_decoder

    runtime = load_decoder(load)
    with StageProgress() as progress:  # one may be built now
        for name in names:
            runtime.open_datastores.open(name, progress.show)
    fitting = [info.name for info in runtime.open_datastores.searchable() if info.built]
    if not names and not fitting:
        raise UsageProblem(
            "no datastore fits this model", "spec-tui datastore build makes one; --datastore python-stdlib too")
    return [runtime.datastore_service.probe(name, text, prompt) for name in names or fitting]


def _lines(probed: Probed) -> Iterator[str]:
    for draft in probed.drafts:
        part = "dense" if draft.retrieval.match is None else "sparse"
        yield _head(f"{probed.name}, {part}", "".join(probed.pieces[-(draft.retrieval.match or 0) :]), draft)
        yield from _tree_lines(draft)


def _head(title: str, suffix: str, probe: ProbeDraft) -> str:
    found = probe.retrieval
    time = f"({found.seconds * 1000:.2f} ms)"
    if found.match is None:
        cosines = " ".join(f"{score:.3f}" for score in found.scores) or "none"
        remark = f"; {one_line(probe.remark)}" if probe.remark else ""
        return f"{title}: {found.hits:,} neighbours begin with the last token {time}; cosines {cosines}{remark}"
    if not found.match:
        return f"{title}: no suffix of the text with two or more tokens occurs {time}"
    hits = counted(found.hits, "occurrence")
    return f"{title}: {found.match} tokens match, {hits}: {one_line(suffix)} {time}"


def _tree_lines(probe: ProbeDraft) -> Iterator[str]:
    """A line a node: how often it follows (dense: its share), its text, and its place where that changes."""
    draft, depths, shares, shown = probe.draft, [], [], None
    for node, parent in enumerate(draft.parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        shares.append((draft.probs[node] or 0.0) * (shares[parent] if parent >= 0 else 1.0))
        exact = probe.retrieval.match is not None
        weight = f"{shares[node] * probe.retrieval.used:,.0f}" if exact else f"{shares[node]:.2f}"
        words = f"  {weight:>6}  {'  ' * depths[-1]}{visible(draft.pieces[node])}"
        origin = draft.origins[draft.origin[node]]
        place = f"{one_line(origin.document or '?', 60)}{f':{origin.line}' if origin.line else ''}"
        yield words if origin == shown else f"{padded(words, 46)}  {place}"
        shown = origin
