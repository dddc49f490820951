"""Prompt lookup decoding: what followed the end of the text where it occurs earlier in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.methods import counterparts as other
from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import OUTPUT, PROMPT
from engines.methods.shared.explain import Words, option_range, place, suffix
from engines.methods.spec import GenerateCall, MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, listed, ms, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupNote(Note):
    """Attributes:
    match: tokens of the longest suffix that was found; ``position``: where what follows it begins."""

    match: int | None = labelled("match")
    position: int | None = labelled("position")


def _counterparts(options: Mapping[str, Any], setup: other.DraftSetup) -> tuple[other.Counterpart, ...]:
    tokens, longest = other.size(options, setup), options["max_ngram"]
    lost = other.losses(options)
    return (
        other.vllm(setup, lost, method="ngram", num_speculative_tokens=tokens, prompt_lookup_max=longest,
                   prompt_lookup_min=options["min_ngram"]),
        other.sglang(setup, "NGRAM", other.losses(options, "the shortest and the longest match", trees=True),
                     num_draft_tokens=tokens + 1, ngram_max_bfs_breadth=options["num_candidates"]),
        other.llama_cpp(setup, "ngram-simple",
                        other.losses(options, "shorter matches: exactly so many tokens are looked up"),
                        spec_ngram_simple_size_n=longest, spec_ngram_simple_size_m=tokens),
        other.transformers(setup, lost, prompt_lookup_num_tokens=tokens, max_matching_ngram_size=longest),
    )


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    tree = event.draft
    first = tree.origins[0]
    words = [f"Prompt lookup asks no model. The last {tokens(first.match or 0)}, {suffix(run, event, first.match)}, "
             f"occurred before, in the {place(first)}. What followed there is copied: {listed(tree.pieces)}, "
             f"{tokens(len(tree.tokens))} in {ms(event.draft_seconds)}."]
    if not deep:
        return words
    if len(tree.origins) > 1:
        words.append(f"{counted(len(tree.origins), 'distinct match')} were merged into one tree.")
    return [*words, "The length of a match counts all agreeing tokens before the n-gram too. Of several matches with "
                    "enough tokens after them, the longest is taken, then the latest (Saxena's method takes the "
                    "oldest). A copied token has no draft probability."]


def _why_empty(run: RunState, event: Round) -> str:
    given = run.started.options
    enough = f" with {given.get('num_tokens', '?')} or more tokens after them" if given.get("match") == "oldest" else ""
    return f"the last n tokens, {option_range(run, 'min_ngram', 'max_ngram')}, occur nowhere earlier{enough}"


SPEC = MethodSpec(
    id="pld",
    title="Prompt lookup",
    summary="Finds the last few tokens earlier in the prompt or answer and drafts what followed them.",
    source="Saxena 2023, prompt lookup decoding",
    drafter="engines.methods.pld.drafter:PromptLookup",
    order=20,
    explain=_explain,
    why_empty=_why_empty,
    note=LookupNote,
    origins=(PROMPT, OUTPUT),
    default_priority=1,
    race_place=2,
    generate=GenerateCall(  # 10 is PLD's own default; transformers has none
        "generate+lookup", "generate(prompt_lookup_num_tokens=10)", {"prompt_lookup_num_tokens": 10}
    ),
    trials=({"num_candidates": 4}, {"min_ngram": 2, "max_ngram": 5}, {"budget": "paper"}),
    counterparts=_counterparts,
    options=(
        BUDGET,
        Option("max_ngram", 3, "Longest suffix looked for, in tokens.", 1, 64),
        Option("min_ngram", 1, "Shortest suffix that counts as a match.", 1, 64),
        Option("num_tokens", 32, "Maximum number of tokens copied after a match.", 1, 256, paper=10),
        Option("match", "latest", "Which of the matches of the longest n-gram. latest: the latest of those that match "
               "furthest back. oldest: the first with num_tokens tokens after it, as published.",
               choices=("latest", "oldest"), paper="oldest"),
        Option("num_candidates", 1, "Distinct matches merged into the draft tree.", 1, 16),
    ),
)
