"""``spec-tui datastore probe``: what would be drafted after a text, and from where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from typer import Argument, Option

from engines.errors import SpecError, UsageProblem
from spec_tui.cli.failures import narrate
from spec_tui.cli.options import Format, OutputFormat, TargetOptions
from spec_tui.present.text import one_line, visible
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.events import ProbeDraft
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.tokenization import Detokenizer

_TEXT = "What the draft would follow: the end of a context."
_PROMPT = "Take TEXT as the beginning of the answer to this."
_STORE = "Look up in this one; repeatable. Default: all that fit the model."
_KIND = "Look only there; dense needs the model. Default: both."


def probe(
    text: Annotated[str, Argument(metavar="TEXT", help=_TEXT)],
    prompt: Annotated[str | None, Option(metavar="TEXT", help=_PROMPT)] = None,
    datastore: Annotated[list[str] | None, Option(metavar="NAME", help=_STORE)] = None,
    kind: Annotated[str, Option(metavar="sparse|dense|both", help=_KIND)] = "both",
    nodes: Annotated[int, Option(metavar="N", help="Sparse: heaviest nodes of the trie.", min=1, max=512)] = 24,
    drafts: Annotated[int, Option(metavar="N", help="Dense: neighbours.", min=1, max=512)] = 10,
    length: Annotated[int, Option(metavar="N", help="Tokens of a continuation.", min=1, max=64)] = 10,
    format: OutputFormat = Format.text,
    *,
    models: TargetOptions,
) -> int:
    """Show what would be drafted after a text: the matched suffix, the tree with its counts, the places; for dense
    parts the similarities of the nearest neighbours."""
    if kind not in ("sparse", "dense", "both"):
        raise UsageProblem(f"there is no kind {kind!r}", "look into sparse, dense or both")
    sizes = {"c": nodes, "drafts": drafts, "length": length}
    facts = _probe(text, prompt, datastore or [], kind, sizes, models.load)
    if format is Format.json:
        print(json.dumps(msgspec.to_builtins(facts), indent=2))
    else:
        print("\n".join(line for found in facts["datastores"] for line in _lines(found)))
    return 0


def _probe(
    text: str, prompt: str | None, names: list[str], kind: str, sizes: dict[str, int], load: LoadRequest
) -> dict[str, Any]:
    """The context's tokens, and the drafts of each datastore. Raises UsageProblem, DatastoreProblem."""
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.datastores.storage.manifest import tokenizer_fingerprint, vocabulary_size
    from engines.methods.shared import probe as probes
    from engines.tokenization import Detokenizer
    from spec_tui.cli.datastore_build import tokenizer_of

    tokenizer = tokenizer_of(load)
    datastores = OpenDatastores(tokenizer_fingerprint(tokenizer), offered=_offered(tokenizer))
    parts = _parts(datastores, names, kind)
    model = None
    if any("dense" in kinds for kinds in parts.values()):
        from spec_tui.cli.run import load_decoder

        model = load_decoder(load)
        datastores.model = model.identity
    vocab_size = vocabulary_size(tokenizer) if model is None else model.target.vocab_size
    context = probes.context_of(tokenizer, text, prompt, vocab_size)
    detokenizer = Detokenizer(tokenizer)
    results, state = [], None
    for name, kinds in parts.items():
        result: dict[str, Any] = {"name": name, "sparse": None, "dense": None, "problem": ""}
        if "sparse" in kinds:
            draft = probes.probe_part("sparse", name, context, datastores, detokenizer, vocab_size, sizes=sizes)
            result["sparse"] = _facts(draft, context, detokenizer)
        if "dense" in kinds:
            try:
                datastores.open(name).check_model(model.identity)
                state = state or probes.last_hidden_state(model, context, None if text else prompt)
                draft = probes.probe_part("dense", name, state[0], datastores, detokenizer, vocab_size, state[1], sizes)
                result["dense"] = _facts(draft, context, detokenizer)
            except SpecError as error:
                if names:
                    raise
                result["problem"] = error.message
        results.append(result)
    return {"tokens": context, "datastores": results}


def _facts(draft: ProbeDraft, context: list[int], detokenizer: Detokenizer) -> dict[str, Any]:
    """A draft with the text of the suffix that matched."""
    matched = context[len(context) - (draft.retrieval.match or 0) :]
    return {"suffix": "".join(map(detokenizer.piece, matched)), "probe": draft}


def _offered(tokenizer: Any) -> dict[str, Callable]:
    """The datastore that is built when it is used, with a progress bar."""
    from engines.datastores.building.build_spec import STANDARD_LIBRARY, open_standard_library
    from spec_tui.cli.stage_progress import StageProgress

    def open_with_progress() -> Any:
        with StageProgress() as progress:
            return open_standard_library(tokenizer, progress.show)

    return {STANDARD_LIBRARY: open_with_progress}


def _parts(datastores: OpenDatastores, names: list[str], kind: str) -> dict[str, tuple[str, ...]]:
    """The parts to search, by datastore: those named, or all that fit this tokenizer. Raises UsageProblem,
    DatastoreProblem."""
    from engines.datastores.storage import catalog

    wanted = ("sparse", "dense") if kind == "both" else (kind,)
    fitting = [e.name for e in catalog.listing() if e.manifest and e.manifest.tokenizer == datastores.tokenizer]
    parts = {}
    for name in names or fitting:
        present = datastores.open(name).manifest.kind
        parts[name] = tuple(part for part in wanted if present in (part, "both"))
        if names and not parts[name]:
            raise UsageProblem(f"datastore {name} has no {kind} part", "leave out --kind")
    if not any(parts.values()):
        raise UsageProblem(
            "no datastore fits this model", "spec-tui datastore build makes one; --datastore python-stdlib too"
        )
    return {name: kinds for name, kinds in parts.items() if kinds}


def _lines(result: dict[str, Any]) -> Iterator[str]:
    for part in ("sparse", "dense"):
        if result[part] is not None:
            yield _head(f"{result['name']}, {part}", **result[part])
            yield from _tree_lines(result[part]["probe"])
    if result["problem"]:
        narrate(f"note: {result['problem']}")


def _head(title: str, suffix: str, probe: ProbeDraft) -> str:
    found = probe.retrieval
    time = f"({found.seconds * 1000:.2f} ms)"
    if found.match is None:
        cosines = " ".join(f"{score:.3f}" for score in found.scores) or "none"
        remark = f"; {one_line(probe.remark)}" if probe.remark else ""
        return f"{title}: {found.hits:,} neighbours begin as the text ends {time}; cosines {cosines}{remark}"
    if not found.match:
        return f"{title}: no suffix of the text with two or more tokens occurs {time}"
    plural = "occurrence" if found.hits == 1 else "occurrences"
    return f"{title}: {found.match} tokens match, {found.hits:,} {plural}: {one_line(suffix)} {time}"


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
        yield words if origin == shown else f"{words:<46}  {place}"
        shown = origin
