"""``spec-tui head``: draft heads, EAGLE's and Medusa's: trained, listed, described and checked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.folders import check_new_folder, free_bytes, listed, lock, refusal, room_or, typed_path
from engines.heads.head_config import EAGLE, EAGLE3, FAMILIES, MEDUSA
from engines.model.load_options import AUTO, NONE
from engines.progress import BuildProgress
from engines.report.wording import counted
from spec_tui.cli.failures import INTERRUPTED, narrate
from spec_tui.cli.option_groups import Format, ModelOptions, Only, OutputFormat, TargetOptions, command, complete_head
from spec_tui.cli.output import console, table
from spec_tui.cli.prompts import comma_separated
from spec_tui.cli.run import load_once
from spec_tui.cli.status_line import StageProgress
from spec_tui.present.tables import text_width
from spec_tui.present.text import as_json, one_line, wrap

if TYPE_CHECKING:
    from engines.heads.check_head import HeadCheck
    from engines.heads.head_file import HeadFile
    from engines.heads.hidden_state_cache import Text
    from engines.heads.local_heads import LocalHead
    from engines.heads.make_head import HeadSpec
    from engines.heads.training import TrainingProgress

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_TRAINED = (EAGLE, EAGLE3, MEDUSA)
Dtype = StrEnum("Dtype", ["bfloat16", "float16", "float32"])
Family = StrEnum("Family", [family.lower() for family in _TRAINED])

_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,63}")
_OF_EAGLE = Only(lambda given: given["family"] == EAGLE3.lower(), f"--family {EAGLE3.lower()}")
_OF_MEDUSA = Only(lambda given: given["family"] == MEDUSA.lower(), f"--family {MEDUSA.lower()}")
_PROMPTS = "Prompts, one per line or lines of JSON; the model answers them greedily. Repeatable with --answers."
_ANSWERS = "Answers of this model: lines of JSON with prompt and answer, zipped or not. Repeatable."
_CHECKED = 8  # prompts of the showcase
_MEASURED = 4  # prompts that are answered for an estimate
_UNFINISHED = "unfinished_training"  # below the folder of a training
_YEAR = 365 * 24 * 60  # minutes

HeadName = Annotated[str, Argument(metavar="NAME", autocompletion=complete_head, help="A folder, hub id or name.")]


@group.command("list", short_help="The local heads: trained here, or shipped.")
@command
def list_(format: OutputFormat = Format.text) -> int:
    """List the available draft heads, with the model that each was trained for."""
    from engines.heads.local_heads import local_heads

    heads = local_heads()
    if format is Format.json:
        rows = [{**asdict(head), "kind": head.kind, "folder": str(head.folder)} for head in heads]
        print(as_json(rows, indent=2))
        return 0
    words = [(one_line(head.name), f"cannot be used: {one_line(head.fault)}" if head.fault else
              f"{head.title} for {one_line(head.target)}; {'ships' if head.ships else 'trained here'}")
             for head in heads]
    console().print(table(words) if words else "there are no heads here: spec-tui head train makes one")
    return 0


@group.command(short_help="Describe a head: sizes, the features it reads, how it was trained.")
@command
def info(name: HeadName, format: OutputFormat = Format.text, *, models: TargetOptions) -> int:
    """Describe a head, and say whether it fits the model. One that does not is described by its files alone."""
    from engines.hub.known_models import label

    try:
        runtime, head = _with_head(name, models)
    except _Misfit as misfit:
        _describe(misfit, name, format)
        return 0
    target = label(runtime.target.name)
    config, file, price = head.config, head.file, runtime.prices.heads[head.config.kind]
    facts = {
        "head": name, "fits": True, "folder": str(file.folder), "family": config.family, "reads": head.reads.words,
        "layers_in_file": list(file.layers_said), "parameters": head.parameters, "shape": asdict(config),
        "lm_head": "its own" if file.rows is not None else "the target's",
        "embeddings": _embeddings(head),
        "trained_for_these_weights": file.made_for == runtime.target.fingerprint if file.made_for else None,
        "price": [list(point) for point in price.points],
        "share_of_a_forward_pass": price.at(config.rows_a_pass) / runtime.prices.target.at(1), "card": dict(file.card),
    }
    if format is Format.json:
        print(as_json(facts, indent=2))
        return 0
    drafted = f"{config.draft_vocabulary:,} of {config.vocabulary:,} tokens"
    rows = [
        ("head", one_line(name)), ("family", config.family), ("reads", head.reads.words), ("drafts", drafted),
        ("parameters", f"{head.parameters:,}"), ("lm_head", facts["lm_head"]), ("embeddings", facts["embeddings"]),
        *config.choices(), ("trained for", _made_for(facts["trained_for_these_weights"], target)),
        ("one pass takes", f"{facts['share_of_a_forward_pass']:.1%} of a forward pass of {one_line(target)}"),
    ]
    rows += [(one_line(str(key)).replace("_", " "), one_line(_said(value)))
             for key, value in file.card.items() if key != "recipe"]
    console().print(table(rows))
    return 0


def _said(value: Any) -> str:
    """A value of a card: shares by depth as percentages, all else as it is."""
    shares = isinstance(value, list) and value and all(isinstance(v, float) and 0 <= v <= 1 for v in value)
    return ", ".join(f"{share:.0%}" for share in value) if shares else str(value)


def _describe(misfit: _Misfit, name: str, format: Format) -> None:
    """What the files of a head say that does not fit the model."""
    head = misfit.head
    facts = {"head": name, "fits": False, "problem": misfit.message, "hint": misfit.hint, "folder": str(head.folder),
             "family": head.family, "parameters": sum(head.stored.values()), "trained_for": head.target or None,
             "target_width": head.width, "vocabulary": head.vocabulary}
    if format is Format.json:
        print(as_json(facts, indent=2))
        return
    known = [(words, f"{size:,}") for words, size in (
        ("parameters", facts["parameters"]), ("hidden size", head.width), ("vocabulary", head.vocabulary)) if size]
    console().print(table([
        ("head", one_line(name)), ("family", head.family), *known,
        ("trained for", one_line(head.target) or "its file does not say"),
        ("fits", f"no: {one_line(misfit.message)}; {one_line(misfit.hint)}"),
    ]))


@group.command(short_help="Find out why a head accepts nothing: its agreement under other interpretations of its file.")
@command
def check(
    name: HeadName,
    prompts: Annotated[Path | None, Option(metavar="FILE", help="Prompts. Default: some example prompts.")] = None,
    tokens: Annotated[int, Option(metavar="N", min=8, help="Length of each answer, in tokens.")] = 48,
    take: Annotated[Path | None, Option(
        metavar="DIR", help="If another interpretation is clearly better, write the head with it to this new folder.",
    )] = None,
    format: OutputFormat = Format.text,
    *,
    models: TargetOptions,
) -> int:
    """Compare a head's drafts with the target's own choices, by depth, under each interpretation that the file allows:
    how layers are counted, where the residual stream begins, the base of the rotary embedding (rope theta); for Medusa
    heads which state they read and which token the first one drafts.

    The target answers some prompts greedily. Engines always follow the file; another interpretation is used only with
    --take.
    """
    from engines.heads.check_head import as_read
    from engines.heads.check_head import check as check_head
    from engines.heads.hidden_state_cache import Text
    from engines.methods import baseline
    from engines.request import Request
    from engines.tokenization import encode

    if take is not None:
        check_new_folder(take, "name a new folder")
    runtime, head = _with_head(name, models)
    texts = []
    for prompt in _prompts(prompts):
        request = Request((("user", prompt),), baseline().id, max_new_tokens=tokens)
        *_, finished = runtime.run(request)
        asked = encode(runtime.tokenizer, request, runtime.target.vocab_size)[0]
        texts.append(Text((*asked, *finished.tokens), len(asked), True))
    found = check_head(head, runtime.target, texts)
    print(as_json(_check_facts(found), indent=2) if format is Format.json else "\n".join(check_lines(found)))
    if take is not None and found.better is not None:
        stored = next(iter(head.file.weights.values())).dtype
        _write(as_read(head.file, found.better, take), runtime.target.name, str(stored).removeprefix("torch."))
        narrate(f"written with that interpretation to {take}; --head {take} drafts with it")
    elif take is not None:
        narrate("nothing is written")
    return 0


def _check_facts(found: HeadCheck) -> dict[str, Any]:
    return {"positions": found.positions, "readings": [asdict(r) | {"expected": r.accepted} for r in found.readings],
            "better": asdict(found.better) if found.better else None}


def check_lines(found: HeadCheck) -> list[str]:
    """A check for people."""
    width = text_width()
    out = [*wrap(f"agreement with the target at {found.positions} positions, by depth; the best "
                 "interpretation first", width)]
    for reading in found.readings:
        shares = "  ".join(f"{share:4.0%}" for share in reading.agreement)
        out += wrap(f"{'declared' if reading.declared else '':8}  {shares}   {reading.accepted:.2f} tokens   "
                    f"{reading.words}", width, subsequent_indent=" " * 10)
    if found.better is None:
        out.append("No interpretation is clearly better than that of the file.")
    else:
        out += wrap(f"Another interpretation agrees far more often: {found.better.words}. The file probably means "
                    "that: --take DIR writes the head that way, if its layout can express it.", width)
    return out


@group.command(short_help="Write a head for vLLM, including what it shares with the target.")
@command
def export(
    name: HeadName,
    out: Annotated[Path, Argument(metavar="DIR", help="New folder.")],
    weights: Annotated[Dtype, Option(help="Type of its weights.")] = Dtype.bfloat16,
    target_name: Annotated[str | None, Option(metavar="NAME", help="The target as vLLM knows it.")] = None,
    *,
    models: TargetOptions,
) -> int:
    """Write a head in the layout that vLLM loads: vllm-project/speculators' for EAGLE-3, SafeAILab's for EAGLE-1 and 2,
    vLLM's own for Medusa heads.

    Heads that ship, or were trained here, do not contain what they share with the target: its language modelling head
    and its embeddings. The export adds these.
    """
    from engines.heads.compatibility import standing_alone
    from engines.methods.counterparts import vllm_method

    check_new_folder(out, "name a new folder")
    runtime, head = _with_head(name, models)
    whole = replace(standing_alone(head.file, runtime.target), folder=out)
    _write(whole, target_name or runtime.target.name, weights)
    setting = {"method": vllm_method(head.config.family), "model": str(out.resolve()), "num_speculative_tokens": 3}
    print(f"written to {out}\nvllm serve {shlex.quote(one_line(target_name or runtime.target.name))} "
          f"--speculative-config {shlex.quote(json.dumps(setting))}")
    return 0


def _write(file: HeadFile, target: str, dtype: str) -> None:
    """Write a head to its folder. Raises UsageProblem, RunFailed."""
    from engines.heads.checkpoint import write

    try:
        write(file, target, dtype)
    except ValueError as error:
        raise UsageProblem(f"the head {file.name} cannot be written: {error}", "choose another head") from None
    except OSError as error:
        raise RunFailed(f"{file.folder} cannot be written: {error.strerror}", "name another folder") from None


@group.command(short_help="Train a head for a model on the model's own answers.")
@command
def train(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the head.")],
    prompts: Annotated[list[Path] | None, Option(metavar="FILE", help=_PROMPTS)] = None,
    answers: Annotated[list[Path] | None, Option(metavar="FILE", help=_ANSWERS)] = None,
    family: Annotated[Family, Option(
        help="A head that drafts step by step, as in EAGLE-1 and 2 or as in EAGLE-3, or heads side by side."
    )] = Family[EAGLE3.lower()],
    minutes: Annotated[float, Option(metavar="N", min=0.05, max=_YEAR, help="Minutes of training.")] = 60.0,
    vocabulary: Annotated[int | None, Option(
        metavar="N", min=16,
        help="Number of tokens that it can draft, the most frequent in the answers. Default: 8192; EAGLE-1 and 2: all.",
    )] = None,
    layers: Annotated[str, Option(metavar="A,B,C", help="EAGLE-3: layers it reads, from 1."), _OF_EAGLE] = "",
    heads: Annotated[int, Option(metavar="N", min=1, max=16, help="Medusa: number of heads."), _OF_MEDUSA] = 4,
    max_new_tokens: Annotated[int, Option(metavar="N", min=8, help="Length of the answers made here."), Only(
        lambda given: bool(given["prompts"]), "answers that are made to --prompts")] = 192,
    seed: Annotated[int, Option(metavar="S", min=0, max=2**63 - 1, help="Seed of the training.")] = 0,
    work: Annotated[Path | None, Option(metavar="DIR", help="Where to keep an interrupted training.")] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Where to write it. Default: the data folder.")] = None,
    estimate: Annotated[bool, Option("--estimate", help="Print the estimate of time and space, and stop.")] = False,
    format: OutputFormat = Format.text,
    *,
    models: TargetOptions,
) -> int:
    """Train an EAGLE head or Medusa heads for a model, on the model's own answers to prompts or on a file of them.

    ctrl+c keeps what was done, and the same command continues from there. The weights that are best on held-out
    answers are kept. A head trained for a model is loaded whenever that model is. No head is written over another one.
    """
    from engines.heads.local_heads import trained_heads

    _check_training(name, prompts, answers)
    place, folder = work or trained_heads() / f".{name}", out or trained_heads() / name
    if out is None and (why := refusal(folder)):
        raise UsageProblem(f"{folder} cannot be written: {why}",
                           "set SPEC_TUI_DATA_DIR to another folder, or name one with --out")
    check_new_folder(folder, "name another folder with --out, or remove that one" if out else
                     "give the head another name, or remove that folder")
    from engines.heads.make_head import HeadSpec, config_for, recipe_for  # takes seconds

    trained = next(one for one in _TRAINED if one.lower() == family)
    recipe = recipe_for(trained, heads, minutes=minutes, seed=seed)
    spec = HeadSpec(name=name, family=trained, vocabulary=vocabulary, layers=_layers(layers), heads=heads,
                    recipe=recipe)
    to_answer = _to_answer(prompts or [], bool(answers))
    with _locked(place):
        runtime = load_once(replace(models.load, head=NONE))
        config_for(runtime.target, spec)  # what does not fit is refused before prompts are answered
        asked = _Answers(runtime, to_answer, answers or [], place, max_new_tokens)
        try:
            progress = _trained(spec, asked, folder, estimate)
        except KeyboardInterrupt:
            narrate("\nspec-tui: interrupted; the same command continues from what was kept")
            return INTERRUPTED
    if progress is None:
        return 0
    if format is Format.json:
        print(as_json({"head": name, "folder": str(folder), **asdict(progress)}, indent=2))
    else:
        shares = ", ".join(f"{share:.0%}" for share in progress.agreement)
        print(f"{name}: agreement by depth on held-out answers: {shares}; {progress.best:.2f} tokens a round expected\n"
              f"written to {folder}")
    return 0


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep other processes from training in a folder, which is removed where nothing is kept in it. Raises
    UsageProblem: one does so, or it cannot be written."""
    busy = UsageProblem(f"another process is training in {place}", "wait for it, or give another name and --work")
    with lock(place, "training", busy, lambda error: UsageProblem(
        f"{place} cannot be written: {error.strerror}", "choose another --work folder")) as held:
        try:
            yield
        finally:
            with suppress(OSError):
                if [*place.iterdir()] == [file := Path(held.lock_file)]:
                    file.unlink()
                    place.rmdir()


def _trained(spec: HeadSpec, asked: _Answers, folder: Path, estimate: bool) -> TrainingProgress | None:
    """How the training of a head ended that is now in the folder; None where only the ``estimate`` was asked for.
    Raises UsageProblem; RunFailed: a folder cannot be written."""
    from engines.heads.hidden_state_cache import check_not_begun
    from engines.heads.make_head import make_head
    from engines.heads.training import check_enough

    check_enough(len(asked))
    target, unfinished = asked.runtime.target, asked.place / _UNFINISHED
    try:
        if asked.made < len(asked.prompts):
            check_not_begun(unfinished)
        with TrainingDisplay() as display:
            narrate(_takes(spec, asked, display))
            if estimate:
                return None
            progress = make_head(target, target.name, asked.texts(display), spec, unfinished, folder, display.reading,
                                 display.training)
    except OSError as error:
        raise RunFailed(f"{error.filename or asked.place} cannot be written: {error.strerror}",
                        room_or(error, "choose other folders with --work and --out")) from None
    if asked.prompts:
        narrate(f"the answers to the prompts are kept in {asked.file}")
    return progress


def _check_training(name: str, prompts: list[Path] | None, answers: list[Path] | None) -> None:
    if not _NAME.fullmatch(name):
        raise UsageProblem(f"{name!r} is not a valid name for a head",
                           "use letters, digits, dots, dashes and underscores")
    if name.lower() in (words := (AUTO, NONE, *FAMILIES)):
        raise UsageProblem(f"no head can have the name {name}: --head {name.lower()} has a meaning of its own",
                           f"choose another name than {', '.join(words)}")
    if not (prompts or answers):
        raise UsageProblem("there is nothing to train on", "give --prompts FILE, or --answers FILE")


def _to_answer(files: list[Path], more: bool) -> list[str]:
    """The prompts of these files, each once; ``more``: answers are given too. Raises UsageProblem: a file is none of
    prompts, or all of them are too few to train on."""
    from engines.datastores.building.model_answers import read_prompts
    from engines.heads.training import check_enough

    prompts = list(dict.fromkeys(prompt for file in files for prompt in read_prompts(file)))
    if not more:
        check_enough(len(prompts))
    return prompts


class _Answers:
    """What a head is trained on: answers of files, and those that the model still has to make to prompts."""

    def __init__(
        self, runtime: Any, prompts: list[str], answers: list[Path], place: Path, max_new_tokens: int
    ) -> None:
        from engines.heads.self_generated_data import read_answers

        self.runtime, self.place, self.length = runtime, place, max_new_tokens
        self.file = place / "answers.jsonl"
        self.given = [text for file in answers for text in read_answers(runtime, file)]
        self.prompts = prompts

    def __len__(self) -> int:
        return len(self.given) + len(self.prompts)

    def _made(self) -> list[bool]:
        from engines.heads.self_generated_data import kept_answers

        kept = kept_answers(self.runtime, self.file, self.length)
        return [prompt in kept for prompt in self.prompts]

    @property
    def made(self) -> int:
        """How many prompts this model has answered, in the folder of the training."""
        return sum(self._made())

    def texts(self, display: TrainingDisplay, most: int | None = None) -> list[Text]:
        """All of them, or those that are given and ``most`` more, of prompts that are not answered yet if there are."""
        from engines.heads.self_generated_data import generate_answers
        from engines.methods import baseline

        prompts = self.prompts
        if most is not None:
            prompts = [prompt for _, prompt in sorted(zip(self._made(), prompts), key=itemgetter(0))[:most]]
        if not prompts:
            return self.given
        return self.given + generate_answers(self.runtime, prompts, self.file, baseline().id, self.length,
                                        display.answering)


def _takes(spec: HeadSpec, asked: _Answers, display: TrainingDisplay) -> str:
    """What a training takes in time and on disk, by a few answers that are made, read and trained on; and a note if the
    disk has too little space for it."""
    from engines.heads.make_head import estimate
    from engines.hub.download_progress import in_bytes, in_time

    before, began = asked.made, perf_counter()
    some = asked.texts(display, _MEASURED)
    made, seconds = asked.made - before, perf_counter() - began
    if not some:
        raise UsageProblem("the answers are too short to train on", "give more prompts, or others")
    needs = estimate(asked.runtime.target, spec, some, len(asked), asked.place)
    left = len(asked.prompts) - asked.made
    takes = f", which takes about {in_time(seconds / made * left)}" if made else ""
    answering = [f"{counted(left, 'prompt')} still to be answered{takes}"] * bool(left)
    needed = needs.bytes - sum(file.stat().st_size for file in listed(asked.place / _UNFINISHED))
    free = free_bytes(asked.place)
    note = f"\nnote: the disk has {in_bytes(free)} left; --work names another folder" if needed > free else ""
    return "; ".join([
        f"{len(asked):,} answers, about {needs.tokens:,} tokens", *answering,
        f"the target reads them in about {in_time(needs.reading)}, and the training takes up to "
        f"{in_bytes(needs.bytes)} in {asked.place}",
        f"the head has {needs.parameters:,} parameters; {spec.recipe.minutes:g} minutes of training see each answer "
        f"{spec.recipe.minutes * 60 / needs.each_pass:,.1f} times or more (measured on a few)",
    ]) + note


class TrainingDisplay(StageProgress):
    """Shows a training while it is entered."""

    _said = 0.0

    def answering(self, done: int, total: int) -> None:
        """So many prompts are answered."""
        self.show(BuildProgress("the model answers", done, total, "answers"))

    def reading(self, done: int, total: int) -> None:
        """So many answers were read by the target."""
        self.show(BuildProgress("the target reads its answers", done, total, "answers"))

    def training(self, progress: TrainingProgress) -> None:
        """An update of the weights."""
        accepted = progress.accepted
        words = f"; loss {progress.losses[0]:.2f}" + (f", {accepted:.2f} tokens a round" if accepted else "")
        step = BuildProgress("training", int(progress.minutes * 60), max(1, int(progress.of * 60)), "seconds")
        if not self.shown and progress.minutes - self._said >= 1:
            self._said = progress.minutes
            narrate(f"{progress.minutes:.0f} of {progress.of:g} minutes{words}")
        self.show(step, words)


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, comma_separated(text, "--layers")))
    except ValueError:
        raise UsageProblem(f"--layers takes numbers, not {text!r}", "for example --layers 2,6,9") from None


def _prompts(file: Path | None) -> list[str]:
    if file is None:
        from spec_tui.learn.showcase_prompts import SHOWCASES

        return [showcase.prompt for showcase in SHOWCASES][:_CHECKED]
    from engines.datastores.building.model_answers import read_prompts

    return read_prompts(file)[: 8 * _CHECKED]


def _embeddings(head: Any) -> str:
    if head.config.family == MEDUSA:
        return "none"
    return "its own" if head.file.embeddings is not None else "the target's"


def _made_for(these: bool | None, target: str) -> str:
    if these is None:
        return f"its file does not say; its sizes fit {one_line(target)}"
    return f"{'these' if these else 'other'} weights {'of' if these else 'than those of'} {one_line(target)}"


class _Misfit(UsageProblem):
    """A head is of another target, by the files of both."""

    def __init__(self, head: LocalHead, name: str, target: str, why: str) -> None:
        super().__init__(f"the head {name} does not fit {target}: {why}", "give a head that was trained for this model")
        self.head = head
        if head.target:
            self.hint = f"it was trained for {one_line(head.target)}: --model {shlex.quote(one_line(head.target))}"


def _with_head(name: str, models: ModelOptions) -> tuple[Any, Any]:
    """The model loaded with the head of this name or family, and that head; where no model is named, the one that the
    head's file names, if it is here. Raises UsageProblem: there is no such head; _Misfit."""
    from engines.heads.local_heads import look_at, place_of
    from spec_tui.session.model_choices import targets

    load, family = replace(models.load, head=name), FAMILIES.get(name.lower())
    folder = place_of(name) if family is None and name not in (AUTO, NONE) else None
    head = look_at(folder) if folder is not None else None
    places = {one.name: one.folder for one in targets(load) if one.folder and not one.problem} if head else {}
    if head and load.model is None and head.target in places:
        narrate(f"note: no model is named, so {one_line(head.target)} is loaded, which the head was trained for")
        load = replace(load, model=head.target)
    try:
        runtime = load_once(load)
    except (UsageProblem, ModelUnavailable):
        if head is not None:
            _check_fits(head, name, load.model, places)
        raise
    found = next((one for one in runtime.heads.values() if name in (one.name, AUTO) or one.config.family == family),
                 None)
    if found is None:
        raise UsageProblem(f"{name} names no head of this model", "spec-tui head list shows them")
    return runtime, found


def _check_fits(head: LocalHead, name: str, model: str | None, places: Mapping[str, Path]) -> None:
    """Raises _Misfit; ModelUnavailable: the model is not here. ``places``: of available models, by name."""
    from engines.hub.known_models import default_model, label, resolve

    model = model or default_model()
    if why := head.differs(places.get(model) or typed_path(resolve(model))):
        raise _Misfit(head, name, label(model), why) from None
