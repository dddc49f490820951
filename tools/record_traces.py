"""Records sample_traces: real runs of the sample models, of smollm2 and of qwen-coder, for lectures and lessons.

    python tools/record_traces.py [NAME]...

Those that begin with the name of a known model need that here (``spec-tui model get NAME``), and qwen-coder-rest the
datastore of ``spec-tui datastore build python-stdlib --from python-stdlib --model qwen-coder --limit 2000000``. Without
names, those of models that are not here are left as they are. Each is run once to warm up, then recorded from empty
caches, with what the target has at every row (``Request.detail``). The same weights write the same texts; the times are
this machine's: record where nothing else runs, and those that a lesson compares in one go.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engines.bench.suite import by_name  # noqa: E402
from engines.hub.known_models import KNOWN, SAMPLE  # noqa: E402
from engines.report.answer import Answer  # noqa: E402
from engines.report.traces import TraceWriter  # noqa: E402
from engines.request import Request  # noqa: E402
from engines.wire import read_trace  # noqa: E402
from spec_tui.learn.showcase_prompts import SHOWCASES  # noqa: E402

if TYPE_CHECKING:
    from engines.runtime import Runtime

FOLDER = ROOT / "sample_traces"
LARGEST = 150_000  # bytes of a trace


def ask(showcase: str, engine: str, most: int = 64, temperature: float = 0.0, law: str = "exact", **options) -> Request:
    """A run on the prompt of a showcase."""
    prompt = next(item.prompt for item in SHOWCASES if item.name == showcase)
    return Request((("user", prompt),), engine, options, law=law, temperature=temperature, seed=7,
                   max_new_tokens=most, detail=True)


def edit(engine: str, most: int, **options) -> Request:
    """A run on a coding task whose answer repeats most of its prompt, and changes something early."""
    case = [case for case in by_name(Path("coding")).cases if case.task == "edit"][1]
    return Request((("user", case.turns[0]),), engine, options, max_new_tokens=most, detail=True)


TRACES = {
    "autoregressive": ask("Repeat a sentence", "autoregressive"),
    "pld": ask("Repeat a sentence", "pld"),
    "pld-in-vain": ask("The fox", "pld"),
    "draft": ask("Count the vowels", "draft"),
    "draft-drawn": ask("The mouse and the cat", "draft", 48, 0.8, "rejection"),
    "draft-sampled": ask("The mouse and the cat", "draft", 48, 0.8, "rejection", shape="tree"),
    "tree": ask("Count the words", "draft", shape="tree"),
    "rest": ask("Count the words", "rest"),
    "dresd": ask("Count the words", "dresd"),
    "rasd": ask("Another ending", "rasd"),
    "hybrid": ask("Sum of a list", "hybrid"),
    "admg": ask("Count the vowels", "admg", 48),
    "suffix": ask("Copy a notice", "suffix"),
    "sampled-plain": ask("The mouse and the cat", "autoregressive", 40, 0.8),
    "sampled-exact": ask("The mouse and the cat", "draft", 40, 0.8),
    "smollm2-plain": ask("Sum of a list", "autoregressive", 48),
    "smollm2-pld": ask("Copy a notice", "pld", 40),
    "smollm2-rest": ask("Sum of a list", "rest", 48),
    "smollm2-dresd": ask("Sum of a list", "dresd", 48),
    "smollm2-admg": ask("Sum of a list", "admg", 48),
    "smollm2-eagle": ask("Sum of a list", "eagle", 48),
    "smollm2-recycling": ask("Copy a notice", "recycling", 40),
    "smollm2-draft": ask("Sum of a list", "draft", 48),
    "smollm2-tree": ask("Sum of a list", "draft", 48, shape="tree", budget="paper", depth=4, top_k=3, total_nodes=10),
    "smollm2-drawn": ask("The mouse and the cat", "draft", 40, 0.8, "rejection", budget="paper"),
    "smollm2-drawn-tree": ask("The mouse and the cat", "draft", 32, 0.8, "rejection", shape="tree", budget="paper",
                              top_k=3, depth=3, total_nodes=8),
    "smollm2-drawn-siblings": ask("The mouse and the cat", "draft", 32, 0.8, "rejection", shape="tree",
                                  draw="independent", budget="paper", top_k=4, depth=2, total_nodes=12),
    "smollm2-sampled-plain": ask("The mouse and the cat", "autoregressive", 40, 0.8),
    "smollm2-sampled-exact": ask("The mouse and the cat", "draft", 40, 0.8),
    "smollm2-pld-in-vain": ask("The fox", "pld", 48),
    "smollm2-suffix": ask("Copy a notice", "suffix", 40),
    "smollm2-rasd": ask("Sum of a list", "rasd", 48, budget="paper", nodes=12, depth=4, top_k=3,
                        total_nodes=10),
    "smollm2-medusa": ask("Sum of a list", "medusa", 32, budget="paper", nodes=24),
    "qwen-coder-plain": ask("Sum of a list", "autoregressive", 48),
    "qwen-coder-draft": ask("Sum of a list", "draft", 48),
    "qwen-coder-tree": ask("Sum of a list", "draft", 48, shape="tree", budget="paper", depth=4, top_k=3,
                           total_nodes=12),
    "qwen-coder-rest": ask("Sum of a list", "rest", 48, budget="paper", c=8),
    "qwen-coder-admg": ask("Sum of a list", "admg", 48, interval=False),
    "qwen-coder-pld": edit("pld", 96),
    "qwen-coder-suffix": edit("suffix", 96),
}


def model_of(trace: str) -> str:
    """The model that a trace is of, by its name."""
    return next((name for name in KNOWN if trace.startswith(f"{name}-")), SAMPLE)


def record(runtime: Runtime, name: str, request: Request) -> None:
    """Write one trace, audited. It drafts from no past answer, as that of the warm-up is the same. Raises SystemExit
    where it came out too large or not as the target would write it."""
    request = replace(request, keeps=False)
    list(runtime.run(request))
    runtime.forget()
    runtime.forget_acceptance()
    path = FOLDER / f"{name}.jsonl"
    with TraceWriter(path) as writer:
        events = list(runtime.run(request))
        for event in (*events, runtime.audit(Answer.from_events(events))):
            writer.write(event)
    size, found = path.stat().st_size, read_trace(path).events[-1]
    print(f"{name}: {len(events) - 3} rounds, {size / 1000:.0f} kB, {found.words}")
    if size > LARGEST or found.verdict == "BUG":
        raise SystemExit(f"{name} is larger than {LARGEST} bytes, or wrong")


def main(names: list[str]) -> int:
    if unknown := set(names) - set(TRACES):
        raise SystemExit(f"there is no trace {unknown.pop()}; there are {', '.join(TRACES)}")
    from engines import load

    FOLDER.mkdir(exist_ok=True)
    for model, wanted in groupby(names or TRACES, model_of):
        if not names and model in KNOWN and not KNOWN[model].present:
            print(f"{model} is not here: its traces stay as they are")
            continue
        runtime = load(model)
        for name in wanted:
            record(runtime, name, TRACES[name])
    return disagreeing()


def disagreeing() -> int:
    """How many lessons race runs that contradict each other: those have to be recorded anew, on a quiet machine."""
    from quiet_recordings import doubts

    from spec_tui.learn.lesson import find
    from spec_tui.learn.lesson import names as lessons
    from spec_tui.learn.lesson_progress import LessonProgress

    found = {name: doubts(LessonProgress.of(find(name))) for name in lessons()}
    for name, words in found.items():
        print(*(f"lesson {name}: {one}" for one in words), sep="\n", end="\n" * bool(words))
    return sum(map(bool, found.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
