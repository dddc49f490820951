"""A client that invents plausible events: the screens' tests need no model, no process and no clock."""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import replace
from pathlib import Path

from textual.screen import Screen

from engines.cost.budget import BudgetChoice
from engines.datastores.storage.catalog import CatalogEntry
from engines.datastores.storage.manifest import File, Manifest, ModelIdentity
from engines.heads.head_config import EAGLE_HEAD, MEDUSA_HEADS
from engines.laws import LAWS
from engines.methods import drafts_itself, find, known
from engines.methods.admg.rules import leave_out
from engines.report.answer import Answer
from engines.report.events import (
    SAMPLING_FIELDS,
    Audited,
    Auditing,
    Capabilities,
    Choice,
    DatastoreInfo,
    Draft,
    Emitted,
    Failed,
    Finished,
    HeadReads,
    Layers,
    Loading,
    Origin,
    Passage,
    Prefilled,
    Ready,
    Retrieval,
    Round,
    Started,
    Trial,
    Verified,
)
from engines.request import Request
from engines.wire import Event
from spec_tui.session.client import ENGINE, NOT_RUNNING
from spec_tui.session.engine_commands import Audit, Command, DatastoreCommand, Load, LoadRequest, Run

ANSWER = (
    "def merge(a, b):\n    out = []\n    i = j = 0\n    while i < len(a) and j < len(b):\n"
    "        if a[i] <= b[j]:\n            out.append(a[i]); i += 1\n        else:\n"
    "            out.append(b[j]); j += 1\n    return out + a[i:] + b[j:]\n\n"
    "The two indices walk the lists once, so the cost is linear. Ties keep the order of the first list, "
    "which makes the merge stable.\n"
)
WRONG = (" then", " if", "(", " x", " of", " the", ")", ".", " was", "_")
PRICE = ((1, 0.0121), (2, 0.0126), (4, 0.0130), (8, 0.0138), (16, 0.0155), (32, 0.0190), (64, 0.0262))
DRAFT_PRICE = ((1, 0.00015), (64, 0.0004))
READY = Ready(
    model="sample 12M", dtype="float32", device="cpu", parameters=12_000_000, vocab_size=8192, context_limit=1024,
    chat_template=True, draft_model="sample 2M", draft_parameters=2_000_000, seconds=0.4, backend="lean", threads=2,
    price=PRICE, draft_price=DRAFT_PRICE,
)

RETRIEVING = replace(READY, datastores=(
    DatastoreInfo("sample", sparse=True, dense=True, default=True),
    DatastoreInfo("python-stdlib", sparse=True, built=False),
))
RETRIEVERS = ("rest", "dresd")
COSINES = (0.74, 0.91, 0.962, 0.981, 0.986, 0.992, 0.978, 0.995, 0.989, 0.997, 0.984, 0.88)
MLP_COSINES = (0.62, 0.83, 0.91, 0.94, 0.93, 0.95, 0.92, 0.96, 0.955, 0.97, 0.95, 0.81)


def entries() -> list[CatalogEntry]:
    """Datastores as they may lie about: sound, damaged, of another tokenizer, unfinished."""
    made, mark = "2026-01-02T03:04:05+00:00", ModelIdentity("sample 12M", "f" * 64, 256)
    files = (File("tokens.bin", 4_000_000, "0" * 64),)
    sample = Manifest("sample", "both", "a" * 64, 8192, 750, 58_249, made, files, 57_749,
                      {"sources": {"kind": "model-answers", "digest": "0" * 64, "prompts": 750}}, mark)
    other = Manifest("other-tokens", "sparse", "b" * 64, 50_257, 3, 1_000_000, made, files)
    return [
        CatalogEntry("broken", Path("broken"), False, None, "datastore broken: tokens.bin is damaged",
                     hint="remove it and build it again"),
        CatalogEntry("half", Path("half"), False, None, "its build is not finished", unfinished=True),
        CatalogEntry("other-tokens", Path("other-tokens"), False, other),
        CatalogEntry("sample", Path("sample"), True, sample),
    ]


def pieces(text: str) -> list[str]:
    """Text cut the way a tokenizer would: words with their leading space, line breaks, runs of blanks."""
    return re.findall(r"\n| +(?=\s)| ?\w+| ?[^\w\s]|\s", text)


def script(request: Request, text: str = ANSWER, seed: int = 1) -> list[Event]:
    """A whole run that writes ``text``."""
    begun = max(0, len(request.continued) - 1)
    words, dice = pieces(text)[begun:][: request.max_new_tokens], random.Random(seed + begun)
    prompt = " ".join(content for _, content in request.conversation)
    count = len(pieces(prompt)) + begun
    started = Started(
        engine=request.engine or "draft", options=dict(request.options), law=request.law,
        **{name: getattr(request, name) for name in SAMPLING_FIELDS}, seed=request.seed,
        max_new_tokens=request.max_new_tokens, model=READY.model, dtype=READY.dtype, device=READY.device,
        prompt=tuple(range(count)), conversation=request.conversation, draft_model=READY.draft_model, continued=begun,
        lossless=find(request.engine or "draft").lossless_under(LAWS[request.law]),
        price=PRICE, draft_price=DRAFT_PRICE,
        datastores=(request.datastores or ("sample",)) if request.engine in RETRIEVERS else (),
    )
    reused = count - len(pieces(request.conversation[-1][1])) if len(request.conversation) > 1 else 0
    out: list[Event] = [
        started, Prefilled(count, reused, 0.031, _emit(words[0], "target", -1, dice), count, layers_of(request, count),
                           reads_of(started.engine)),
    ]
    at, index = 1, 0
    while at < len(words):
        index += 1
        room = request.max_new_tokens
        event = _round(words, at, index, count, started.engine, dice, room)
        event = replace(event, verified=_every_row(event) if request.detail else ())
        event = _of_itself(event) if drafts_itself(started.engine) else event
        out.append(event if started.lossless else replace(event, bias=0.25))
        at += len(event.emitted)
    out.append(Finished("length" if len(words) == request.max_new_tokens else "stop", tuple(range(at)), "".join(words)))
    return out


def reads_of(engine: str) -> HeadReads | None:
    """What the head of an engine reads, if it needs one."""
    made = {EAGLE_HEAD: HeadReads("EAGLE-3 head", (2, 6, 9), 12, False),
            MEDUSA_HEADS: HeadReads("Medusa heads", (), 12, True)}
    spec = known(engine)
    return next((made[need] for need in spec.needs[:1] if need in made), None) if spec is not None else None


def layers_of(request: Request, positions: int) -> Layers | None:
    """What drafts with a part of the target leave out: by ADMG's rules on cosines that are always the same."""
    if not drafts_itself(request.engine):
        return None
    alpha, m, n = (request.options.get(name, value) for name, value in (("alpha", 0.985), ("m", 3), ("n", 2)))
    none = ("",) * len(COSINES)
    return leave_out(Layers(none, none, COSINES, MLP_COSINES, positions), alpha, m, n)


def _of_itself(event: Round) -> Round:
    """The round with the chain alone, drafted by a part of the target: six tenths of a forward a token."""
    draft = event.draft
    kept = [n for n, piece in enumerate(draft.pieces) if not piece.startswith("\u00b6")]
    at = {node: n for n, node in enumerate(kept)} | {-1: -1}
    tokens, pieces, probs = (tuple(c[n] for n in kept) for c in (draft.tokens, draft.pieces, draft.probs))
    draft = Draft(tokens, tuple(range(-1, len(kept) - 1)), pieces, probs, (0,) * len(kept), (Origin("draft"),))
    note = {"draft_forwards": len(kept), "exit_threshold": 0.61, "stopped": "low confidence"}
    emitted = tuple(replace(e, node=at[e.node]) for e in event.emitted)
    return replace(event, draft=draft, path=tuple(at[n] for n in event.path), emitted=emitted, note=note, budget=None,
                   draft_seconds=0.6 * PRICE[0][1] * len(kept), verify_seconds=0.0126 + 0.0002 * len(kept))


def _emit(word: str, kind: str, node: int, dice: random.Random, law: str = "exact") -> Emitted:
    prob = round(dice.choice([0.98, 0.93, 0.82, 0.61, 0.44, 0.21]), 2)
    others = tuple(Choice(900 + n, w, round((1 - prob) / (n + 2), 3)) for n, w in enumerate(dice.sample(WRONG, 3)))
    top = (Choice(hash_id(word), word, prob), *others)
    trials = (Trial(node, prob, 0.7, 0.31, kind == "accepted"),) if law == "rejection" and node >= 0 else ()
    return Emitted(hash_id(word), word, word, kind, node, prob, 1.25, None, top, trials)


def hash_id(word: str) -> int:
    """A token id that is the same in every process."""
    return sum(ord(c) * (i + 3) for i, c in enumerate(word)) % 8000


def _round(words: list[str], at: int, index: int, prompt: int, engine: str, dice: random.Random, room: int) -> Round:
    if engine == "autoregressive":
        emitted, draft, path = (_emit(words[at], "target", -1, dice),), Draft(), ()
    else:
        draft, path, emitted = _speculate(words, at, dice)
    retrieval = None
    if engine in RETRIEVERS and draft.tokens:
        draft, retrieval = _retrieved(draft, words[max(0, at - 3) : at], engine == "dresd")
    return Round(
        index=index, position=prompt + at, draft=draft, path=path, emitted=emitted,
        draft_seconds=0.0009 if draft.tokens else 0.0, verify_seconds=0.0126 + 0.0002 * len(draft.tokens),
        other_seconds=0.0002, cache_length=prompt + at + len(path), retrieval=retrieval,
        note={"draft_forwards": 5, "match": 3} if draft.tokens else {},
        budget=BudgetChoice(len(draft.tokens), 12, 2.4) if draft.tokens else None,
    )


def _every_row(event: Round) -> tuple[Verified, ...]:
    """What the target has at each row: where the walk came by what it wrote, elsewhere something else."""
    here = dict(zip([-1, *event.path], event.emitted))
    return tuple(
        Verified(here[n].top[0] if n in here else Choice(7, " else", 0.5), None, None if n < 0 else 0.25)
        for n in range(-1, len(event.draft.tokens))
    )


def _retrieved(draft: Draft, before: list[str], dense: bool) -> tuple[Draft, Retrieval]:
    """The same draft as out of a datastore, fused with a draft model's: every third node comes from both."""
    places = (("merge.py", 12), ("heapq.py", 341), ("sorting/a long way down/merge_sort.py", 7))
    passages = tuple(
        Passage("sample", name, line, "".join(before), "".join(draft.pieces[n:]), w)
        for n, ((name, line), w) in enumerate(zip(places, (41.0, 12.0, 3.0)))
    )
    match = None if dense else len(before)
    origins = (*(Origin("retrieval", 40 + n, p.document, match, p.datastore, p.line, n)
                 for n, p in enumerate(passages)), Origin("draft"))
    nodes = range(len(draft.tokens))
    draft = replace(draft, origin=tuple(n % 3 for n in nodes), origins=origins,
                    also=tuple(3 if n % 3 == 0 else -1 for n in nodes))
    scores = (0.93, 0.91, 0.84) if dense else ()
    pruned = ((" otherwise", 9), (" if", 3))
    return draft, Retrieval(0.00004, match, 56, 50, scores, passages, pruned, sum(a >= 0 for a in draft.also))


def _speculate(words: list[str], at: int, dice: random.Random):
    depth = min(5, len(words) - at)
    good = min(dice.choice([0, 1, 2, 3, 5, 5]), depth)
    tokens, parents, labels, probs, origin = [], [], [], [], []

    def add(word: str, parent: int, prob: float, who: int) -> int:
        tokens.append(hash_id(word)), parents.append(parent), labels.append(word)
        probs.append(round(prob, 2)), origin.append(who)
        return len(tokens) - 1

    path, node = [], -1
    for d in range(depth):
        fits = d < good
        word = words[at + d] if fits else dice.choice(WRONG)
        parent, node = node, add(word, node, 0.95 - 0.1 * d, d % 2)
        if fits:
            path.append(node)
        if d in (0, 2):
            add("\u00b6" + dice.choice(WRONG), parent, 0.2, 0)
    emitted = [_emit(words[at + d], "accepted", n, dice) for d, n in enumerate(path)]
    if at + good < len(words):
        emitted.append(_emit(words[at + good], "bonus" if good == depth else "corrected", -1, dice))
    origins = (Origin("draft"), Origin("prompt", place=12, match=3))
    draft = Draft(tuple(tokens), tuple(parents), tuple(labels), tuple(probs), tuple(origin), origins)
    return draft, tuple(path), tuple(emitted)


def finding(answer: Answer, verdict: str, at: int | None = None, gap: float = 0.0) -> Audited:
    """An audit that found this."""
    drawn, gaps = verdict == "consistent", [0.0] * len(answer.tokens)
    choices = [Choice(token, "x", 0.5) for token in answer.tokens]
    if at is not None:
        gaps[at], choices[at] = gap, Choice(4, " rather", 0.62)
    return Audited(
        verdict, at, None if at is None else gap, 0.0031, 0.0015, len(gaps), int(verdict == "tie"), int(at is not None),
        tuple(choices), tuple(gaps), (None if drawn else 1.5,) * len(gaps), 0.2, draws=drawn,
    )


class FakeClient:
    """An ``EngineClient`` under the test's control: ``feed(n)`` lets that many events of the run through."""

    def __init__(self, text: str = ANSWER, *, ready: Ready | Failed = READY, auto: bool = True) -> None:
        self.text, self.ready, self.auto = text, ready, auto
        self.requests: list[Request] = []
        self.loaded: list[LoadRequest] = []
        self.audits: list[Answer] = []
        self.told: list[DatastoreCommand] = []  # commands about datastores
        self.finds: tuple = ("identical",)  # what an audit finds, and where
        self.loads = self.restarts = self.cancels = 0
        self.closed = False
        self._alive = True
        self._job = 0
        self._out: deque[tuple[int, Event]] = deque()
        self.pending: deque[Event] = deque()

    # the protocol
    pid = None

    def submit(self, command: Command) -> int:
        self._job += 1
        match command:
            case Load(request):
                self.loads += 1
                self.loaded.append(request)
                if self.auto:
                    self.say(Loading("reading the model", 0.5), self.ready)
            case Run(request):
                self.requests.append(request)
                self.pending = deque(script(request, self.text))
            case Audit(answer):
                self.audits.append(answer)
                self.pending = deque([Auditing(0.25), Auditing(0.75), finding(answer, *self.finds)])
            case _:
                if isinstance(command, DatastoreCommand):
                    self.told.append(command)
        return self._job

    def cancel(self, job: int, at_once: bool = False) -> None:
        self.cancels += 1
        if self.pending and isinstance(self.pending[-1], Audited):
            self.pending.clear()
            self.say(Failed("the audit was stopped", "", "cancelled"))
        if self.pending:
            done = self.pending[-1]
            left = sum(len(e.emitted) for e in self.pending if isinstance(e, Round))
            self.pending.clear()
            self.say(Finished("cancelled", done.tokens[: len(done.tokens) - left], ""))

    def events(self) -> list[tuple[int, Event]]:
        out = list(self._out)
        self._out.clear()
        return out

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def capabilities(self) -> Capabilities:
        return self.ready.capabilities if isinstance(self.ready, Ready) else Capabilities()

    def restart(self) -> None:
        self.restarts += 1
        self._alive = True

    def close(self) -> None:
        self.closed = True

    # the test's side
    def say(self, *events: Event) -> None:
        """Deliver these as they are, as the last job's."""
        self._out += [(self._job, event) for event in events]

    def feed(self, count: int | None = None) -> None:
        """Let the next events of the run through; all of them if no number is given."""
        for _ in range(len(self.pending) if count is None else min(count, len(self.pending))):
            self.say(self.pending.popleft())

    def die(self) -> None:
        """As after a kill."""
        self._alive = False
        self.pending.clear()
        self._out.append((ENGINE, NOT_RUNNING))


def drawn_rows(screen: Screen) -> list[str]:
    """What a screen shows, row by row, without colours."""
    return ["".join(segment.text for segment in strip) for strip in screen._compositor.render_strips()]
