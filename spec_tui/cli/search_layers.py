"""``spec-tui search-layers``: which sublayers the target leaves out when it drafts, searched by the measured speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from engines.model.skipped_layers import SkippedLayers
from engines.progress import BuildProgress
from engines.report import encoding
from spec_tui.cli.failures import INTERRUPTED, narrate
from spec_tui.cli.option_groups import Format, ModelOptions, OutputFormat, Without
from spec_tui.cli.run import load_decoder
from spec_tui.cli.stage_progress import StageProgress
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from engines.methods.draft_verify.layer_search.search import SearchProgress
    from engines.methods.draft_verify.layer_search.search_store import Search, SearchTrial, StoredSearch

_PROMPTS = "Prompts to measure on, one per line, or lines of JSON with a prompt. Default: eight of the showcase."
_TRIALS = "Number of sets to try, those of earlier runs included."
_TOKENS = "Length of each answer, in tokens."
_SHOWCASES_EACH = 2  # of every kind; eight prompts in all, as in the paper

# A search does not say which threads or which forwards it was measured with, so it takes the usual ones.
SearchedModel = Annotated[
    ModelOptions,
    Without("draft_model", "draft_revision", "draft_quantize", "head", "strict", "native", "arithmetic", "threads"),
]


def search_layers(
    prompts: Annotated[Path | None, Option(metavar="FILE", help=_PROMPTS)] = None,
    trials: Annotated[int, Option(metavar="N", help=_TRIALS)] = 100,
    tokens: Annotated[int, Option(metavar="N", help=_TOKENS)] = 32,
    seed: Annotated[int, Option(metavar="S", help="Seed of the search.")] = 0,
    fresh: Annotated[bool, Option("--fresh", help="Start over, and drop the earlier search.")] = False,
    show: Annotated[bool, Option("--show", help="List earlier searches and end.")] = False,
    remove: Annotated[str | None, Option(metavar="ID", help="Delete an earlier search; --show lists the ids.")] = None,
    format: OutputFormat = Format.text,
    *,
    models: SearchedModel,
) -> int:
    """Search which sublayers to leave out when the target drafts for itself (Draft & Verify; engine draft-verify).

    Bayesian optimisation proposes sets; each is measured in tokens/s against autoregressive decoding, in turns. What
    is found holds for prompts like these, this model and this machine. ctrl+c keeps the trials, and the same command
    goes on.
    """
    if show or remove is not None:
        return _list_or_remove(remove, format)
    from engines.methods.draft_verify.layer_search.search import SearchSpec, run_search

    spec = SearchSpec(_prompts(prompts), trials, tokens, seed, fresh)
    spec.check()
    runtime = load_decoder(models.load)
    display = SearchDisplay()
    try:
        with display:
            found = run_search(spec, runtime, display.show_search)
    except KeyboardInterrupt:
        narrate(f"\nspec-tui: interrupted; {display.what_is_left(fresh)}")
        return INTERRUPTED
    print(json.dumps(facts_of(found), indent=2) if format is Format.json else "\n".join(lines(found)))
    return 0


def _prompts(file: Path | None) -> tuple[str, ...]:
    if file is None:
        from spec_tui.learn.showcase_prompts import SHOWCASES

        kinds = dict.fromkeys(showcase.kind for showcase in SHOWCASES)
        return tuple(s.prompt for kind in kinds for s in [s for s in SHOWCASES if s.kind == kind][:_SHOWCASES_EACH])
    from engines.datastores.building.model_answers import read_prompts

    return tuple(read_prompts(file))


class SearchDisplay(StageProgress):
    """Shows a search while it is entered: a bar on a terminal, in a pipe one line for each better set."""

    _best: SearchTrial | None = None
    _trials = 0

    def __enter__(self) -> SearchDisplay:
        super().__enter__()
        self.show(BuildProgress("measuring autoregressive decoding", 0, None, "trials"))
        return self

    def show_search(self, progress: SearchProgress) -> None:
        """The next step."""
        if progress.step.unit == "trials":
            self._trials = progress.step.done
        best = progress.best
        words = f"best {best.speed_up:.2f}x without {best.skipped}" if best else ""
        if best != self._best and not self.terminal:
            narrate(f"{self._trials} trials: {words}")
        self._best = best
        self.show(progress.step, f"; {words}" if words else "")

    def what_is_left(self, fresh: bool = False) -> str:
        """What an interruption leaves; ``fresh``: the command begins anew."""
        if not self._trials:
            return "what earlier runs measured is kept"
        return f"{self._trials} trials are kept: the same command{' without --fresh' * fresh} goes on from there"


def facts_of(search: Search) -> dict[str, Any]:
    """The object of ``--format json``: speeds in tokens/s, speed-ups over autoregressive decoding."""
    identity, settings, best = search.identity, search.settings, search.best
    plain = encoding.plain
    return {
        "id": identity.id, "model": search.model, "dtype": identity.dtype, "machine": plain(identity.machine),
        "layers": identity.layers, "prompts": settings.prompts, "tokens": settings.tokens, "seed": settings.seed,
        "best": None if best is None else plain(best)
        | plain(SkippedLayers.parse(best.skipped, identity.layers)) | {"confirmed": search.found is not None},
        "slow_trials": search.busy_trials, "trials": [plain(trial) for trial in search.trials],
    }


def lines(search: Search) -> list[str]:
    """The same for people."""
    identity, settings, best = search.identity, search.settings, search.best
    out = [
        one_line(f"{search.model}, {identity.dtype}: {identity.layers} layers, {len(search.trials)} sets tried on "
                 f"{settings.prompts} prompts of {settings.tokens} tokens"),
        f"best: without {best.skipped}",
        f"  {best.speed_up:.2f}x of autoregressive decoding: {best.tokens_per_second:.1f} against"
        f" {best.baseline:.1f} tokens/s",
        f"  the median of runs that measured it again, {best.low:.2f}x to {best.high:.2f}x",
    ]
    if best.speed_up <= 1:
        out.append("No set is faster here: drafting takes more time than it saves.")
    if search.busy_trials:
        out.append(f"note: the machine was busy during {search.busy_trials} of {len(search.trials)} trials: "
                   "they say little")
    return [*out, "--engine draft-verify uses it."]


def _list_or_remove(remove: str | None, format: Format) -> int:
    from engines.methods.draft_verify.layer_search import search_store

    if remove is not None:
        search_store.remove(remove)
        narrate(f"removed {remove}")
        return 0
    entries = search_store.listing()
    if format is Format.json:
        print(json.dumps([_entry(entry) for entry in entries], indent=2))
        return 0
    if not entries:
        print("no layer search was run yet")
    for entry in entries:
        print(f"{entry.id}  {_words(entry)}")
    return 0


def _entry(entry: StoredSearch) -> dict[str, Any]:
    return {"id": entry.id, "problem": entry.problem or None} | (facts_of(entry.search) if entry.search else {})


def _words(entry: StoredSearch) -> str:
    search = entry.search
    if search is None:
        return one_line(entry.problem)
    best, machine = search.best, search.identity.machine
    found = f"{best.speed_up:.2f}x without {best.skipped}" if best else "no set tried yet"
    state = "" if search.found else ", unfinished"
    where = f"{machine.processor or machine.system}, {machine.cpus} CPUs" if machine.device == "cpu" else machine.device
    return one_line(f"{search.model}, {search.identity.dtype}: {found}; {len(search.trials)} trials{state}; {where}")
