"""Our engines against transformers.generate with the same method: the sample pair, same prompts, tokens, threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping

from benches.rows import Row, shuffled

NEW_TOKENS = 120
Run = Callable[[str], tuple[int, float]]
"""A cold run on a prompt: (tokens after the first delivery, seconds from it to the end)."""


def bench_decode(repeats: int) -> list[Row]:
    """Each engine's tokens a second over those of plain generate; several prompts of each kind."""
    runtime, generator = loaded(draft=False)
    contenders = {"generate": theirs(generator, "autoregressive")}
    for engine, options in (("autoregressive", {}), ("pld", {}), ("draft", {}), ("draft", {"shape": "tree"})):
        contenders[" ".join([engine, *options.values()])] = ours(runtime, engine, options)
    rates = measured(contenders, prompts(), repeats)
    rows = [Row("transformers.generate, greedy", rates["generate"], "tokens/s")]
    for name in list(contenders)[1:]:
        bound = ">= 1.8" if name == "autoregressive" else ""
        rows.append(Row(f"{name} / generate", ratios(rates, name, "generate"), "x", bound))
        if name != "autoregressive":
            rows.append(Row(f"{name} / autoregressive", ratios(rates, name, "autoregressive"), "x"))
    return rows


def bench_peers(repeats: int) -> list[Row]:
    """Prompt lookup on prompts that copy, and drafts of the draft model on all kinds, against the same in generate."""
    runtime, generator = loaded(draft=True)
    rows = []
    for engine, kind, call, bound in (
        ("pld", "copying", "prompt_lookup_num_tokens=10", ">= 1.3"), ("draft", "", "assistant_model", ">= 1.5"),
    ):
        contenders = {"ours": ours(runtime, engine, {}), "theirs": theirs(generator, engine)}
        rates = measured(contenders, prompts(kind), repeats)
        about = f"{kind} prompts" if kind else "all kinds of prompts"
        rows.append(Row(f"{engine} / generate({call}), {about}", ratios(rates, "ours", "theirs"), "x", bound))
        rows.append(Row(f"generate({call}), {about}", rates["theirs"], "tokens/s"))
    return rows


def loaded(draft: bool, model: str = "sample", dtype: str = "auto"):
    """Our runtime, and the same models as transformers loads them."""
    from engines import load
    from engines.bench import generate_runs as generate

    runtime = load(model, dtype=dtype)
    print(f"{runtime.ready.threads} threads, {runtime.ready.backend}", file=sys.stderr, flush=True)
    return runtime, generate.Generator(*generate.load(runtime.ready, runtime.target.dtype, draft), runtime)


def prompts(kind: str = "") -> list[str]:
    """The showcase prompts of a kind, else two of each kind."""
    from spec_tui.learn.showcase_prompts import SHOWCASES

    if kind:
        return [case.prompt for case in SHOWCASES if case.kind == kind]
    kinds = dict.fromkeys(case.kind for case in SHOWCASES)
    return [prompt for kind in kinds for prompt in prompts(kind)[:2]]


def measured(contenders: dict[str, Run], texts: list[str], repeats: int) -> dict[str, list[float]]:
    """Tokens a second of each contender, all prompts together, one figure a repeat; by turns prompt by prompt, so that
    whatever else the machine does meets all of them."""
    for contender in contenders.values():
        contender(texts[0])  # warm-up
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        spent: dict[str, list[tuple[int, float]]] = {name: [] for name in contenders}
        for number, text in enumerate(texts):
            for name in shuffled(contenders, repeat + number):
                spent[name].append(contenders[name](text))
        for name, runs in spent.items():
            rates[name].append(sum(tokens for tokens, _ in runs) / sum(seconds for _, seconds in runs))
    return rates


def ratios(found: Mapping[Hashable, list[float]], name: Hashable, base: Hashable) -> list[float]:
    """Figures over a base's, repeat by repeat."""
    return [a / b for a, b in zip(found[name], found[base])]


def ours(runtime, engine: str, options: dict, tokens: int = NEW_TOKENS) -> Run:
    """An engine of ours. It begins cold, without what it learnt of drafts."""
    from engines.race.lanes import Lane
    from engines.race.peers import Peers

    return timed(Peers(runtime), Lane(engine, options), tokens)


def theirs(generator, engine: str, tokens: int = NEW_TOKENS) -> Run:
    """The same method in generate."""
    from engines.bench.hf_generate import GenerateLane
    from engines.methods import find
    from engines.race.peers import Peers

    lane, contest = GenerateLane(find(engine).generate.name), Peers(generator.runtime)
    contest.loaded[lane.engine] = generator
    return timed(contest, lane, tokens)


def timed(contest, lane, tokens: int) -> Run:
    """Cold runs of a lane, by the clock of spec-tui bench."""
    from engines import Request

    def run(prompt: str) -> tuple[int, float]:
        contest.forget()
        contest.forget_acceptance()
        for _ in contest.run(lane.of(Request((("user", prompt),), max_new_tokens=tokens))):
            pass
        return contest.token_times.later, contest.token_times.later_seconds

    return run
