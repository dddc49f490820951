"""Suffix decoding: what followed the end of the text before, in this conversation and in past answers, by counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.methods import counterparts as other
from engines.methods import note_of
from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import HISTORY, OUTPUT, PROMPT
from engines.methods.shared.explain import Words, place, suffix, top
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixNote(Note):
    """Attributes:
    match: tokens of the suffix that the draft follows; ``hits``: its occurrences that were counted.
    score: accepted tokens expected of the draft by these counts.
    answers: past answers that were searched; None where none are kept.
    """

    match: int | None = labelled("match")
    hits: int | None = labelled("hits")
    score: float | None = labelled("score")
    answers: int | None = labelled("past answers")


def _counterparts(options: Mapping[str, Any], setup: other.DraftSetup) -> tuple[other.Counterpart, ...]:
    tree = options["shape"] == "tree"
    lost = other.CHAIN if tree else ""
    return (
        other.sglang(setup, "NGRAM", "how probable a drafted token has to be, and how the size follows the match",
                     num_draft_tokens=options["num_tokens"] + 1, ngram_match_type="PROB",
                     ngram_max_bfs_breadth=10 if tree else 1, ngram_max_trie_depth=options["depth"]),
        other.vllm(setup, lost, method="suffix", num_speculative_tokens=options["num_tokens"],
                   suffix_decoding_max_tree_depth=options["depth"], suffix_decoding_max_spec_factor=options["factor"],
                   suffix_decoding_min_token_prob=options["min_prob"]),
    )


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    note: SuffixNote = note_of(run.started, event)
    first = event.draft.origins[0]
    words = [f"Suffix decoding asks no model. The end of the text, its last {tokens(note.match or 0)}, "
             f"{suffix(run, event, note.match)}, occurred {counted(note.hits or 0, 'time')} before, in the "
             f"{place(first)}. It drafts {tokens(len(event.draft.tokens))} of what followed, the likeliest "
             f"first {top(event)}."]
    if not deep:
        return words
    if note.answers is not None:
        words.append(f"This conversation and {counted(note.answers, 'past answer')} were searched.")
    score = f": {note.score:.2f} here" if note.score is not None else ""
    return [*words, "A token's probability is its share of what followed these occurrences. Each length of match, in "
                    "this conversation and in past answers, gives a draft; the score of one is the number of tokens "
                    f"expected to be accepted, the sum over its paths, and the best is taken{score}. It took "
                    f"{ms(event.draft_seconds)}."]


SPEC = MethodSpec(
    id="suffix",
    title="Suffix decoding",
    summary="Counts what followed the end of the text in this conversation and in past answers of the model, and "
            "drafts the most frequent continuations.",
    source="Oliaro et al. 2025 (SuffixDecoding)",
    drafter="engines.methods.suffix.drafter:Suffix",
    order=30,
    explain=_explain,
    why_empty=lambda run, event: (
        "the last token of the text occurs nowhere before, neither in this conversation nor in past answers"),
    reference="SuffixDecoding (Oliaro et al. 2025), section 3",
    note=SuffixNote,
    origins=(PROMPT, OUTPUT, HISTORY),
    drafts_from="this conversation with past answers",
    trials=({"shape": "chain"}, {"budget": "paper"}),
    counterparts=_counterparts,
    options=(
        BUDGET,
        Option("shape", "tree", "One path, always to the most frequent token, or a tree of the most probable nodes.",
               choices=("chain", "tree")),
        Option("depth", 64, "Longest suffix looked for, in tokens.", 1, 64),
        Option("num_tokens", 32, "Maximum number of tokens drafted.", 1, 64, paper=64),
        Option("factor", 16.0, "Maximum number of tokens drafted for each token of the match.", 0.1, 64, paper=1),
        Option("offset", 0, "Tokens drafted in addition to these, at most.", 0, 64),
        Option("min_prob", 0.1, "Tokens whose path has a lower probability than this are not drafted.", 0, 1),
        Option("history", 1000, "Past answers of this model that are searched, the latest; kept on this machine as "
               "token ids, and forgotten by spec-tui forget. 0 neither searches nor keeps any.", 0, 10_000,
               paper=10_000),
    ),
)
