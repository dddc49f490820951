"""The model card as markdown, from the measured numbers and the training stages' reports."""

import unicodedata

STAGE_NAMES = {"target": "target, base", "finish": "target, last stage", "draft": "draft, distilled"}


def render(measured: dict, training: dict, texts: dict) -> str:
    """The whole card."""
    parts = (
        _head(measured["models"]),
        _recipe(training, texts),
        _held_out(measured),
        _dropping(measured),
        _draft(measured),
        _answers(measured),
        _functions(measured),
        _limits(measured["models"]["target"]["sha256"], texts),
        _sources(measured["sources"]),
    )
    return "\n\n".join(parts) + "\n"


def table(head: list[str], lines: list[list[str]]) -> str:
    """A markdown table."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def fenced(text: str) -> str:
    """A block that shows a text as it is: a fence longer than any inside, control characters named."""
    shown = "".join(c if c == "\n" or not _control(c) else f"\\u{ord(c):04x}" for c in text)
    longest = max((len(run) for run in _backtick_runs(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def _control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def _backtick_runs(text: str) -> list[str]:
    return "".join(c if c == "`" else " " for c in text).split()


def _head(models: dict) -> str:
    rows = [
        [
            kind,
            f"{m['parameters'] / 1e6:.2f} M",
            str(m["layers"]),
            str(m["hidden"]),
            str(m["heads"]),
            str(m["mlp"]),
            f"{m['vocabulary']:,}",
            f"{m['context']:,}",
            f"{m['megabytes']:.1f} MB",
        ]
        for kind, m in models.items()
    ]
    head = ["", "parameters", "layers", "hidden", "heads", "MLP", "vocabulary", "context", "weights"]
    return f"""# The sample models

A small pair that ships with spec-tui so that every method can be watched at work without a download: a
target, and a draft distilled from it. Both are Llama models in bfloat16 that plain `transformers` loads; they
share one byte-level BPE tokenizer (every digit is a token) and one chat template: `<|role|>`, a line break,
the text, `<|end|>`. They are small enough for two CPU cores, and know accordingly little.

{table(head, rows)}

Written by `tools/make_model_card.py`: every number below was measured by it, or is the report of the run of
`tools/train_sample_models.py` that made these weights."""


def _recipe(training: dict, texts: dict) -> str:
    rows = [
        [
            STAGE_NAMES[stage],
            f"{r['minutes']:.0f} min",
            f"{r['steps']:,}",
            f"{r['tokens'] / 1e6:.1f} M",
            f"{r['sequences']} x {r['context']}",
            f"{r['muon_rate']:g} / {r['adam_rate']:g}",
            f"{r['attention_drop']:g} / {r['mlp_drop']:g}",
        ]
        for stage, r in training.items()
    ]
    head = [
        "stage",
        "time",
        "steps",
        "tokens seen",
        "sequences a step",
        "rates Muon / AdamW",
        "dropped att. / MLP",
    ]
    mixes = [
        [STAGE_NAMES[stage], ", ".join(f"{name} {share:.0%}" for name, share in r["mix"].items())]
        for stage, r in training.items()
    ]
    device = next(iter(training.values()))["device"]
    start = texts["start"] if training["target"]["continued"] else "Trained from random weights."
    return f"""## Recipe

{start}

{table(head, rows)}

Sequences are packed and start at the beginning of a document where they can. Muon trains the matrices inside
the layers, AdamW the rest; after a short warm-up the rates stay in the target's base stage and fall linearly
to zero in its last stage, and in the draft's after {training["draft"]["flat"]:.0%} of it. In both stages of
the target, attention and MLP sublayers are dropped at random, per sequence and step; the probability rises
linearly with depth from 0 to the number in the last column, and what is kept is scaled up accordingly. The
draft learns the target's distribution over the next token (KL divergence). The device was "{device}", in
bfloat16 autocast.

{table(["stage", "share of the sequences by source"], mixes)}"""


def _mean(by_source: dict, pick=lambda value: value) -> float:
    return sum(pick(value) for value in by_source.values()) / len(by_source)


def _held_out(measured: dict) -> str:
    ours, rows = measured["held_out"], []
    for name, value in ours["target"].items():
        long, draft = ours["target_full_context"][name], ours["draft"][name]
        row = [name, f"{value['tokens']:,}", f"{value['loss']:.3f}", f"{value['bits_per_byte']:.3f}"]
        row += [f"{long['loss']:.3f}", f"{draft['loss']:.3f}"]
        if "baseline" in measured:
            other = measured["baseline"]["held_out"]
            row += [f"{other['target'][name]['loss']:.3f}", f"{other['draft'][name]['loss']:.3f}"]
        rows.append(row)
    head = ["source", "tokens", "target", "target, bits per byte", "target, full context", "draft"]
    head += ["first pair: target", "first pair: draft"] if "baseline" in measured else []
    return f"""## Loss on held-out real text

Nats per token on text that no stage has seen and no grammar has made, in windows of 512 tokens (one column:
of the full context), weights in bfloat16. The four sources are the real ones; the texts written or generated
for this project repeat their templates, so their loss would look better than it is.

{table(head, rows)}"""


def _dropping(measured: dict) -> str:
    pairs = {"this target": measured}
    if "baseline" in measured:
        pairs["the first pair's target"] = measured["baseline"]
    rows = []
    for variant in ("nothing", *measured["held_out"]["dropped"]):
        row = [variant]
        for numbers in pairs.values():
            held_out = numbers["held_out"]
            whole = _mean(held_out["target"], lambda value: value["loss"])
            loss = whole if variant == "nothing" else _mean(held_out["dropped"][variant])
            row.append(f"{loss:.3f}" if variant == "nothing" else f"{loss:.3f} ({loss - whole:+.3f})")
        rows.append(row)
    return f"""## Loss with and without dropped sublayers

Mean over the four sources above, nothing retrained. Self-speculation drafts with such a model, and verifies
with the whole one.

{table(["dropped", *pairs], rows)}

Counted from 1, "every 3rd layer" is layers 2, 5, 8, 11 and "every 4th" is 3, 7, 11."""


def _draft(measured: dict) -> str:
    agreement, rows = measured["held_out"]["agreement"], []
    for name, value in agreement.items():
        row = [name, f"{value['same']:.1%}", f"{value['kl']:.3f}"]
        if "baseline" in measured:
            other = measured["baseline"]["held_out"]["agreement"][name]
            row += [f"{other['same']:.1%}", f"{other['kl']:.3f}"]
        rows.append(row)
    head = ["source", "same greedy token", "KL"]
    head += ["first pair: same", "first pair: KL"] if "baseline" in measured else []
    spoken = measured["prompts"]
    share = spoken["draft_agrees"] / spoken["tokens"]
    return f"""## How well the draft guesses

At every position of the held-out text: whether the draft's likeliest token is the target's, and the
divergence of the draft's distribution from the target's in nats.

{table(head, rows)}

In the target's own greedy answers to the 20 prompts below, the draft's likeliest token is the next token at
{share:.1%} of {spoken["tokens"]:,} places."""


def _answers(measured: dict) -> str:
    spoken, found = measured["prompts"], measured["prompts_in_training"]
    seen = "none of them" if not found else f"{len(found)} of them (" + "; ".join(found) + ")"
    blocks = []
    for i, given in enumerate(spoken["answers"], 1):
        cut = f"\n\n(cut after {spoken['limit']} tokens)" if given["cut"] else ""
        blocks.append(f"### {i}\n\n{fenced(given['prompt'])}\n\n{fenced(given['answer'])}{cut}")
    return f"""## Twenty prompts, greedy answers, unedited

The prompts were written before the answers were seen. A search of the training rows, punctuation and case
aside, finds {seen} there, nor, unless it is named here, a prompt of the ten functions. Weights in float32.

""" + "\n\n".join(blocks)


def _functions(measured: dict) -> str:
    given = measured["functions"]["answers"]
    passed = sum(task["passed"] for task in given)
    text = f"""## Ten small functions

Greedy answers, the first code block of each run against two or three assertions: **{passed} of
{len(given)} pass**"""
    if "baseline" in measured:
        before = sum(task["passed"] for task in measured["baseline"]["functions"]["answers"])
        text += f" (the first pair: {before})"
    rows = [[task["prompt"], "passes" if task["passed"] else "fails"] for task in given]
    return text + ".\n\n" + table(["task", "result"], rows)


def _limits(checksum: str, texts: dict) -> str:
    lines = (
        texts["limits"] if checksum.startswith(texts["limits_of"]) else ["Not yet written for these weights."]
    )
    return "## What it can't do\n\n" + "\n".join(f"- {line}" for line in lines)


def _sources(sources: list[dict]) -> str:
    rows = [
        [
            row["source"].replace("|", "\\|"),
            row["license"],
            f"{row['rows']:,}",
            f"{row['bytes'] / 1e6:.2f} MB",
        ]
        for row in sources
    ]
    return f"""## Sources and licences of the data

Texts of these sources were used for training; none of them is in this repository. "own" was written, or
generated by grammars, for this project. Rows that share 13 words in a row with an evaluation prompt of
Spec-Bench had been removed.

{table(["source", "licence", "rows", "size"], rows)}"""
