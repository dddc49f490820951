"""Is every engine lossless over a long time? Random questions, engines, options, laws and samplings, compared with what
the target writes alone, token by token.

    python tools/soak.py [--model MODEL] [--draft-model MODEL] [--head HEAD] [--tokens 1000000] [--threads 1]
        [--seed 0]

Prints the tokens compared by engine, and for each difference and each failure the request that repeats it; exit code 1
where there is one. Ctrl+c ends it early, with what it has.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engines import Request, RunFailed, UsageProblem, find, load, specs  # noqa: E402
from engines.laws import LAWS  # noqa: E402
from engines.methods.options import Option  # noqa: E402
from engines.reproduce.questions import known  # noqa: E402

_ENGINES_A_TEXT = 4
_OPEN_END = 12  # drawn at most where an option's range has no end
_EVERY = 60  # seconds between two lines of progress


def drawn(option: Option, dice: random.Random) -> object:
    """A value in the option's range; often the default."""
    if dice.random() < 0.4 or (isinstance(option.default, str) and not option.choices):
        return option.default
    if option.choices:
        return dice.choice([word for word in option.choices if word not in option.lossy])
    if isinstance(option.default, bool):
        return dice.random() < 0.5
    low = option.low if option.low is not None else 0
    high = min(option.high if option.high is not None else _OPEN_END, max(_OPEN_END, option.default))
    if isinstance(option.default, int):
        return dice.randint(int(low), max(int(low), int(high)))
    return dice.uniform(low, high)


def layers(count: int, dice: random.Random) -> str:
    """Some sublayers for ``draft-verify`` to leave out."""
    return ",".join(f"{dice.choice('am')}{dice.randint(1, count)}" for _ in range(dice.randint(1, count)))


def asked(dice: random.Random) -> Request:
    """What is to be written, without an engine. At temperature 0 every lossless law writes the target's text; above,
    the law that shares its noise does."""
    turns = dice.choice(known().cases).turns[: dice.choice((1, 1, 2))]
    said = [pair for turn in turns for pair in (("user", turn), ("assistant", "I see. Please go on."))][:-1]
    sampled = {} if dice.random() < 0.5 else {
        "temperature": dice.uniform(0.2, 1.5), "top_p": dice.choice((1.0, 0.95, 0.7)), "top_k": dice.choice((0, 0, 40)),
        "min_p": dice.choice((0.0, 0.0, 0.05)),
    }
    if dice.random() < 0.2:
        sampled |= {"repetition_penalty": 1.2, "no_repeat_ngram_size": dice.choice((0, 4))}
    law = "exact" if "temperature" in sampled else dice.choice([law for law in LAWS if LAWS[law].lossless])
    return Request(tuple(said), law=law, seed=dice.randrange(10_000), max_new_tokens=dice.randint(1, 200), keeps=False,
                   **sampled)


class Soak:
    """Runs and counts. ``compared``: tokens by engine; ``refused``: requests by engine that it did not take;
    ``different``: texts that differ or failed."""

    def __init__(self, runtime, seed: int) -> None:
        self.runtime, self.dice = runtime, random.Random(seed)
        self.compared, self.refused, self.different = Counter(), Counter(), 0
        self.count = runtime.target.model.config.num_hidden_layers

    def text(self) -> None:
        """One text, by the target alone and by some engines."""
        request = asked(self.dice)
        alone = self._tokens(replace(request, engine="autoregressive"))
        if alone is None:
            return
        others = [spec.id for spec in specs() if not spec.baseline]
        for engine in self.dice.sample(others, min(len(others), _ENGINES_A_TEXT)):
            options = {option.name: drawn(option, self.dice) for option in find(engine).options}
            if "layers" in options:
                options["layers"] = layers(self.count, self.dice)
            if self.dice.random() < 0.3:
                self.runtime.forget()
            found = self._tokens(mine := replace(request, engine=engine, options=options))
            if found is None:
                continue
            self.compared[engine] += len(found)
            if found != alone:
                self.different += 1
                print(f"DIFFERENT: {mine!r}\n  alone {alone}\n  drafts {found}", flush=True)

    def _tokens(self, request: Request) -> tuple[int, ...] | None:
        try:
            *_, finished = self.runtime.run(request)
        except UsageProblem as problem:
            self.refused[f"{request.engine}: {problem.message}"] += 1
            return None
        except RunFailed as failure:
            self.different += 1
            print(f"FAILED: {request!r}\n  {failure.message}", flush=True)
            return None
        return finished.tokens

    def __str__(self) -> str:
        by_engine = ", ".join(f"{engine} {count:,}" for engine, count in sorted(self.compared.items()))
        return f"{self.compared.total():,} tokens compared, {self.different} texts differ or failed: {by_engine}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="the sample pair's target where it is not given")
    parser.add_argument("--draft-model")
    parser.add_argument("--head")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    soak = Soak(load(args.model or "sample", args.draft_model, threads=args.threads, head=args.head), args.seed)
    said = time.monotonic()
    try:
        while soak.compared.total() < args.tokens:
            soak.text()
            if time.monotonic() - said > _EVERY:
                said = time.monotonic()
                print(soak, flush=True)
    except KeyboardInterrupt:
        print("stopped")
    print(soak)
    for why, times in soak.refused.most_common():
        print(f"  refused {times} times: {why}")
    return int(soak.different > 0)


if __name__ == "__main__":
    raise SystemExit(main())
