"""``spec-tui datastore probe``: what would be drafted after a text, and from where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from engines.errors import SpecError, UsageProblem
from spec_tui.cli.failures import narrate
from spec_tui.cli.options import Format, OutputFormat, TargetOptions
from spec_tui.present.text import one_line, visible
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.events import DenseProbe, FoundPassage, SparseProbe
    from engines.datastores.storage.datastore import Store

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
    """Look up what would be drafted after a text: the matched suffix, the trie with its weights, the passages; of dense
    parts the nearest neighbours with their distances."""
    if kind not in ("sparse", "dense", "both"):
        raise UsageProblem(f"there is no kind {kind!r}", "look into sparse, dense or both")
    facts = _probed(text, prompt, datastore or [], kind, (nodes, drafts, length), models.load)
    if format is Format.json:
        print(json.dumps(_plain(facts), indent=2))
    else:
        print("\n".join(line for found in facts["datastores"] for line in _lines(found)))
    return 0


def _probed(text: str, prompt: str | None, names: list[str], kind: str, sizes: tuple, load: LoadRequest) -> dict:
    """Everything that was found: the context's tokens, and a part for each datastore."""
    from spec_tui.cli.datastore_build import tokenizer_of

    nodes, drafts, length = sizes
    tokenizer = tokenizer_of(load)
    stores = _stores(names, tokenizer, kind)
    runtime = None
    if kind != "sparse" and any(store.manifest.kind != "sparse" for store in stores):
        from spec_tui.cli.run import load_decoder

        runtime = load_decoder(load)
    from engines.datastores.search import probe as probes
    from engines.datastores.search.dense import DenseStore
    from engines.datastores.search.sparse import SparseStore
    from engines.detokenizer import Detokenizer

    piece = Detokenizer(tokenizer).piece
    context, begun = probes.context_of(tokenizer, text, prompt, runtime.target.vocab_size if runtime else 1 << 31)
    hidden = None
    facts: dict[str, Any] = {"tokens": context, "datastores": []}
    for store in stores:
        found: dict[str, Any] = {"name": store.name, "sparse": None, "dense": None, "problem": ""}
        if kind != "dense" and store.manifest.kind != "dense":
            found["sparse"] = probes.probe_sparse(SparseStore(store), context, piece, nodes, length)
        if kind != "sparse" and store.manifest.kind != "sparse":
            try:
                store.check_model(runtime.mark)
                hidden = probes.last_state(runtime, context, begun) if hidden is None else hidden
                emitted = context[-1] if begun else None
                found["dense"] = probes.probe_dense(DenseStore(store), hidden, emitted, piece, drafts, length)
            except SpecError as error:
                if names:
                    raise
                found["problem"] = error.message
        facts["datastores"].append(found)
    return facts


def _stores(names: list[str], tokenizer: Any, kind: str) -> list[Store]:
    """Those named, or all that fit this tokenizer. Raises UsageProblem, DatastoreProblem."""
    from engines.datastores.building.build_spec import STANDARD_LIBRARY, offered
    from engines.datastores.storage import catalog as places
    from engines.datastores.storage.datastore import open_store
    from engines.datastores.storage.tokenizer_fingerprint import of_tokenizer
    from spec_tui.cli.datastore_progress import BuildProgressLine

    mark, found = of_tokenizer(tokenizer), []
    for name in dict.fromkeys(names):
        if name == STANDARD_LIBRARY:
            with BuildProgressLine() as pace:
                found.append(offered(tokenizer, pace.show))
        else:
            found.append(open_store(name, mark))
        if kind not in (found[-1].manifest.kind, "both") and found[-1].manifest.kind != "both":
            raise UsageProblem(f"datastore {name} has no {kind} part", "leave out --kind")
    if not names:
        kinds = {"both": ("sparse", "dense", "both"), "sparse": ("sparse", "both"), "dense": ("dense", "both")}[kind]
        fitting = (e for e in places.listing() if e.manifest and e.manifest.tokenizer == mark)
        found = [open_store(e.name, mark) for e in fitting if e.manifest.kind in kinds]
    if not found:
        raise UsageProblem(
            "no datastore at hand fits this model", "spec-tui datastore build makes one; --datastore python-stdlib too"
        )
    return found


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    stores = [
        found | {part: asdict(found[part]) if found[part] is not None else None for part in ("sparse", "dense")}
        for found in facts["datastores"]
    ]
    return facts | {"datastores": stores}


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if found["sparse"] is not None:
        yield from _sparse_lines(found["name"], found["sparse"])
    if found["dense"] is not None:
        yield from _dense_lines(found["name"], found["dense"])
    if found["problem"]:
        narrate(f"note: {found['problem']}")


def _sparse_lines(name: str, found: SparseProbe) -> Iterator[str]:
    if not found.matched:
        yield f"{name}, sparse: no suffix of two tokens or more occurs"
        return
    plural = "occurrence" if found.occurrences == 1 else "occurrences"
    yield (f"{name}, sparse: {found.matched} tokens match, {found.occurrences:,} {plural}: "
           f"{one_line(found.suffix)} ({found.seconds * 1000:.2f} ms)")  # fmt: skip
    depths: list[int] = []
    told: FoundPassage | None = None
    for node in found.nodes:
        depths.append(0 if node.parent < 0 else depths[node.parent] + 1)
        same = told is not None and (told.source, told.line, told.before) == (
            node.found.source, node.found.line, node.found.before)  # fmt: skip
        told = node.found
        words = f"  {node.count:>6,}  {'  ' * depths[-1]}{visible(node.text)}"
        yield words if same else f"{words:<46}  {_place(node.found)}"


def _dense_lines(name: str, found: DenseProbe) -> Iterator[str]:
    note = f"; {one_line(found.remark)}" if found.remark else ""
    yield (f"{name}, dense: {found.candidates:,} neighbours looked at, {found.matching:,} begin as the text ends "
           f"({found.seconds * 1000:.2f} ms){note}")  # fmt: skip
    if found.neighbours:
        yield "  cosine  distance"
    for row in found.neighbours:
        words = f"  {row.score:>6.3f}  {row.distance:>8.3f}  {one_line(row.text, 44)}"
        yield f"{words:<66}  {_place(row.found)}"


def _place(found: FoundPassage) -> str:
    line = f":{found.line}" if found.line else ""
    return f"{one_line(found.source, 60)}{line}"
