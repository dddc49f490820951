"""Several sources of drafts: the one with the best score drafts, or a draft head or model where that promises more."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods import known, note_of
from engines.methods.draft_model import SPEC as DRAFT_SPEC
from engines.methods.eagle import SPEC as EAGLE_SPEC
from engines.methods.notes import labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import DRAFT, HISTORY, OUTPUT, PROMPT, RETRIEVAL
from engines.methods.shared.explain import Words, top
from engines.methods.shared.tree_options import DraftNote
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.plain_text import one_line
from engines.report.run_state import RunState
from engines.report.wording import joined, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridNote(DraftNote):
    """Attributes:
    drafted_by: the source whose draft is verified, None where no source found anything.
    scores: accepted tokens expected of the draft of each source that searched.
    copied_rate, model_rate: tokens a second expected of the best of these drafts, and of one of the draft model or
        head, where they were compared.
    match, hits, answers, neighbours, similarity: of the source's own note."""

    drafted_by: str | None = labelled("drafted by")
    scores: dict[str, float] | None = None
    copied_rate: float | None = None
    model_rate: float | None = None
    match: int | None = labelled("match")
    hits: int | None = labelled("hits")
    answers: int | None = labelled("past answers")
    neighbours: int | None = labelled("neighbours")
    similarity: float | None = labelled("similarity")


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    note: HybridNote = note_of(run.started, event)
    drafted = f"{tokens(len(event.draft.tokens))}, the likeliest first {top(event)}"
    words = ["Of the drafts of the sources that searched, the one with the best score is verified. The scores: "
             f"{_scores(note)}. The best draft has {drafted}."]
    if note.draft_forwards:
        told = _scores(note)
        words = [f"The round was drafted by {_source(note.drafted_by or '')}: {drafted}. {_why_the_model(run, note)}"
                 + f" The scores of the copies: {told}." * bool(told)]
    return words + ["A score is the sum of the probabilities of a draft's paths, the number of tokens expected to be "
                    "accepted; with budget=auto they are corrected by how often they were right before, and expected "
                    "tokens per second decide between the best copy and a draft model or head."] * deep


def _why_the_model(run: RunState, note: HybridNote) -> str:
    """Why no copy is verified, as what was compared."""
    if note.copied_rate is not None and note.model_rate is not None:
        return (f"It promised {note.model_rate:.1f} tokens per second, and the best draft that was copied "
                f"{note.copied_rate:.1f}.")
    if run.started is not None and run.started.options.get("budget") == "paper":
        return "No draft that was copied had a score as high as the threshold."
    return "It promised more tokens per second than any draft that was copied."


def _why_empty(run: RunState, event: Round) -> str:
    told = _scores(note_of(run.started, event))
    return "no source found anything" + (f" (scores: {told})" if told else "")


def _scores(note: HybridNote) -> str:
    """The score of each source that searched; "" where there is none."""
    model = note.drafted_by if note.draft_forwards else None  # older traces have a score of it, of another scale
    return joined(f"{_source(name)} {score:.2f}" for name, score in (note.scores or {}).items() if name != model)


def _source(name: str) -> str:
    spec = known(name)
    return spec.drafts_from if spec is not None and spec.drafts_from else one_line(name)


SPEC = MethodSpec(
    id="hybrid",
    title="Hybrid",
    summary="Searches this conversation, past answers and the datastores, and drafts from the source with the best "
            "score, or with the draft model or an EAGLE head where that promises more.",
    source="future work of Gritta et al. 2025 (DReSD); score and the turn to a model: Oliaro et al. 2025 "
           "(SuffixDecoding)",
    drafter="engines.methods.hybrid.drafter:Hybrid",
    order=110,
    explain=_explain,
    why_empty=_why_empty,
    note=HybridNote,
    origins=(DRAFT, RETRIEVAL, PROMPT, OUTPUT, HISTORY),
    options=(
        BUDGET,
        Option("model", True, "Whether the draft model or an EAGLE head drafts where it promises more than the best "
               "source. A head comes first if it agrees with the target and costs clearly less."),
        Option("threshold", 2.0, "Draft model or EAGLE head, budget=paper: it drafts where the best score is below "
               "this. With budget=auto, expected tokens per second decide (acceptance so far, cost).", 0, 64),
        Option("c", 64, "Exact match: maximum number of nodes of the trie that are drafted.", 1, 256),
        Option("length", 10, "Datastores: tokens of a continuation.", 1, 64),
        Option("n_max", 16, "Exact match: longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Exact match: shortest suffix that counts.", 1, 64),
        Option("drafts", 10, "Dense datastores: number of nearest neighbours to draft from.", 1, 64),
    ),
    searches=True,
    default_priority=3,
    helped_by={"model": (*DRAFT_SPEC.needs, *EAGLE_SPEC.needs)},
)
