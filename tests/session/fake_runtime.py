"""A decoder without a model. The words of the prompt and the name of the model say how it behaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from tempfile import TemporaryDirectory

from engines.datastores.datastore_events import Built, DatastoreList
from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.laws import LAWS
from engines.methods import find
from engines.model.load_options import LoadOptions
from engines.progress import BuildProgress
from engines.report.events import (
    Audited,
    Choice,
    DatastoreInfo,
    Draft,
    Emitted,
    Finished,
    Loading,
    Origin,
    Prefilled,
    Prefilling,
    Ready,
    Round,
    Started,
)

HOSTILE = "a\x1b]0;owned\x07b\x1b[31mc\x9b2Jd\u202ee\r"


class FakeWorkshop:
    """Builds until it is stopped; the name of the datastore says otherwise."""

    def list_datastores(self, removed=""):
        return DatastoreList((DatastoreInfo("a", sparse=True),), removed)

    def build(self, order, progress, fresh=False):
        if order.name == "bug":
            raise KeyError("surprise")
        for done in range(3 if order.name == "short" else 10**9):
            time.sleep(0.001)
            progress(BuildProgress("tokens", done, None, "bytes"))
        return Built(order.name, order.kind, 3, 1, 0, 30, 0.1)

    def remove(self, name):
        raise UsageProblem(f"there is no datastore {name}", "choose another")


class FakeRuntime:
    default_engine = "pld"

    def __init__(self, ready: Ready, progress=print) -> None:
        self.ready, self.datastore_service, self.progress = ready, FakeWorkshop(), progress

    def run(self, request, cancelled=lambda: False, progress=lambda event: None):
        prompt = request.conversation[-1][1]
        if "refuse" in prompt:
            raise UsageProblem("the prompt is too long", "shorten it")
        yield self._started(request)
        for done in range(0, 3000 if "long" in prompt else 0, 1000):
            progress(Prefilling(done, 3000, 1.0 if done else None))
        yield Prefilled(3, 0, 0.01, Emitted(7, "first", "first", "target"), 3)
        if "suicide" in prompt:
            os.kill(os.getpid(), signal.SIGKILL)
        if "breakdown" in prompt:
            raise RunFailed("the run broke", "try another")
        if "bug" in prompt:
            raise KeyError("surprise")
        tokens, texts, reason = [7], ["first"], "length"
        for index in range(1, 10**9 if "endless" in prompt else request.max_new_tokens):
            if cancelled():
                reason = "cancelled"
                break
            if "slow" in prompt or "endless" in prompt:
                time.sleep(0.005)
            made = _round(index, HOSTILE if "hostile" in prompt else f" t{index}", request.law)
            tokens += [e.token for e in made.emitted]
            texts += [e.text for e in made.emitted]
            yield made
        yield Finished(reason, tuple(tokens), "".join(texts))

    def prompt_length(self, request):
        return 3 + len(request.conversation[-1][1].split())

    def forget(self):
        pass

    def forget_acceptance(self):
        pass

    def with_draft_model(self, name, progress=print):
        progress(Loading("reading the draft model"))
        return FakeRuntime(replace(self.ready, draft_model=name))

    def memory(self, engine, options, rows, draft_model=""):
        return 1000 + rows

    def audit(self, answer, cancelled=lambda: False, progress=lambda done: None):
        """A look that takes its time; the name of the model says what it finds, at its last token."""
        if "broken" in answer.model:
            raise RunFailed("the audit broke", "try another")
        while answer.model == "unloaded":
            time.sleep(0.001)
            self.progress(Loading("reading the fake"))
        steps = 10**9 if "endless" in answer.model else 3
        for step in range(steps):
            if cancelled():
                return None
            progress(min(1.0, step / 3))
            time.sleep(0.001)
        gap, last = {"bug": 2.5, "tie": 0.001}.get(answer.model, 0.0), len(answer.tokens) - 1
        verdict = {"bug": "BUG", "tie": "tie"}.get(answer.model, "identical") if answer.lossless else "lossy"
        choices = (*(Choice(token, "x", 0.5) for token in answer.tokens[:-1]), Choice(99, HOSTILE, 0.5))
        return Audited(
            verdict, last if gap else None, gap or None, 0.01, 0.005, last + 1, int(verdict == "tie"), int(gap > 0),
            choices, (0.0,) * last + (gap,), (1.5,) * (last + 1), 0.5,
        )

    def _started(self, request) -> Started:
        return Started(
            engine=request.engine or self.default_engine,
            options=dict(request.options),
            law=request.law,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            seed=request.seed,
            max_new_tokens=request.max_new_tokens,
            model=self.ready.model,
            dtype="float32",
            device="cpu",
            prompt=(1, 2, 3),
            conversation=request.conversation,
            lossless=find(request.engine or self.default_engine).lossless_under(LAWS[request.law]),
        )


def _round(index: int, text: str, law: str) -> Round:
    draft = Draft((9, 4), (-1, 0), ("x", "y"), (None, None), (0, 0), (Origin("prompt"),))
    emitted = (Emitted(9, text, "x", "accepted", 0), Emitted(8, "!", "!", "corrected"))
    bias = None if LAWS[law].lossless else 0.25
    return Round(index, 3 + index, draft, (0,), emitted, 0.001, 0.002, 0.001, 3 + index, bias=bias)


def load(asked: LoadOptions = LoadOptions(), progress=print) -> FakeRuntime:
    model = asked.model
    if model == "missing":
        raise ModelUnavailable("there is no model 'missing'", "check the path")
    if model == "noisy":
        print("noise on stdout", flush=True)
        print("noise on stderr", file=sys.stderr, flush=True)
        os.system("echo noise of a child process")
    progress(Loading("reading the fake", 0.5))
    while model == "compiling":
        with TemporaryDirectory():
            subprocess.run(["sleep", "60"])
    while model == "silent":  # a library at work
        time.sleep(0.01)
    while model == "endless":
        time.sleep(0.01)
        progress(Loading("still reading", None))
    return FakeRuntime(Ready(model or "fake", "float32", "cpu", 10, 100, 512, True, threads=asked.threads,
                             datastores=(DatastoreInfo("a", sparse=True),)), progress)
