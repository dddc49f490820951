"""Measure the sample models and write their card, sample_models/README.md.

Every number of the card comes from sample_models/measured.json, which this script writes, and from
sample_models/training.json, which tools/train_sample_models.py writes. Without the training data only
the answers and the functions are measured anew, and only while the weights are the measured ones.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from training import card, corpus, evaluate, functions
from transformers import AutoModelForCausalLM, AutoTokenizer

TOOLS = Path(__file__).parent
ROOT = TOOLS.parent
DATA = ROOT.parent / "shared/data/train"
WINDOW = 512
ANSWER_TOKENS = 200


def parser() -> argparse.ArgumentParser:
    """The command line; without options it rebuilds the card of the shipped pair."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--models", type=Path, default=ROOT / "sample_models", help="folder of target and draft")
    p.add_argument("--data", type=Path, default=DATA, help="folder of *.jsonl.gz rows")
    p.add_argument("--baseline", type=Path, help="folder of another pair to compare with")
    p.add_argument("--tokens-per-source", type=int, default=12288, help="held-out tokens of a source to use")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--no-measuring", action="store_true", help="write the card again from measured.json")
    return p


def load(folder: Path, dtype: torch.dtype):
    """A model by plain transformers, ready to evaluate."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()


def say(text: str) -> None:
    """A line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def describe(folder: Path) -> dict:
    """Size, context and checksum of one model folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = folder / "model.safetensors"
    return {
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "megabytes": weights.stat().st_size / 1e6,
        "parameters": sum(p.numel() for p in load(folder, torch.bfloat16).parameters()),
        "hidden": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "mlp": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "context": config["max_position_embeddings"],
    }


def held_out_numbers(models: Path, data: Path, tokens_per_source: int) -> dict:
    """What needs the held-out text: losses, losses with dropped sublayers, agreement of the draft."""
    tokenizer = AutoTokenizer.from_pretrained(models / "target", local_files_only=True)
    held_out = evaluate.HeldOut(data, tokenizer, tokens_per_source)
    target, draft = (load(models / kind, torch.bfloat16) for kind in ("target", "draft"))
    say("held-out loss")
    numbers = {"target": evaluate.loss_by_source(target, held_out, WINDOW)}
    numbers["draft"] = evaluate.loss_by_source(draft, held_out, WINDOW)
    context = target.config.max_position_embeddings
    numbers["target_full_context"] = evaluate.loss_by_source(target, held_out, context)
    say("held-out loss with sublayers dropped")
    numbers["dropped"] = evaluate.dropped_losses(target, held_out, WINDOW)
    say("agreement of the draft")
    numbers["agreement"] = evaluate.agreement(target, draft, held_out, WINDOW)
    return numbers


def answers(models: Path, prompts: list[str], limit: int) -> dict:
    """Greedy answers of the target, and on how many of their tokens the draft agrees."""
    tokenizer = AutoTokenizer.from_pretrained(models / "target", local_files_only=True)
    target, draft = (load(models / kind, torch.float32) for kind in ("target", "draft"))
    listed, same, total = [], 0, 0
    for prompt in prompts:
        text, prompt_ids, answer_ids = evaluate.greedy_answer(target, tokenizer, prompt, limit)
        cut = answer_ids[-1] != tokenizer.eos_token_id
        listed.append({"prompt": prompt, "answer": text, "cut": cut})
        same += evaluate.agreement_on_answer(draft, prompt_ids, answer_ids)
        total += len(answer_ids)
    return {"limit": limit, "answers": listed, "draft_agrees": same, "tokens": total}


def measure(models: Path, texts: dict) -> dict:
    """What can be measured without the training data."""
    say(f"answers of {models.name}")
    spoken = answers(models, texts["prompts"], limit=ANSWER_TOKENS)
    tasks = texts["functions"]
    written = answers(models, [task["prompt"] for task in tasks], limit=ANSWER_TOKENS)
    for task, given in zip(tasks, written["answers"], strict=True):
        given["passed"] = functions.passes(given["answer"], task["tests"])
    return {"prompts": spoken, "functions": written}


def scan_training(data: Path, texts: dict) -> dict:
    """One pass over the training rows: our prompts that occur in them, and their sources.

    Prompts are compared with punctuation and case aside. Rows and bytes are summed by source and
    licence, our own sources taken together.
    """
    prompts = [*texts["prompts"], *(task["prompt"] for task in texts["functions"])]
    wanted = {f" {corpus.plain(prompt)} ": prompt for prompt in prompts}
    found, sums = set(), {}
    for path in corpus.row_files(data, "train").values():
        for row in corpus.rows(path):
            document = corpus.document(row)
            text = f" {corpus.plain(document)} "
            found.update(prompt for key, prompt in wanted.items() if key in text)
            entry = sums.setdefault((source_name(row["source"]), row["license"]), [0, 0])
            entry[0] += 1
            entry[1] += len(document.encode())
    sources = [
        {"source": source, "license": licence, "rows": count, "bytes": size}
        for (source, licence), (count, size) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    return {"prompts_in_training": sorted(found), "sources": sources}


def source_name(source: str) -> str:
    """The source as the card names it."""
    own = {"own": "own texts", "synthetic": "own grammars"}
    return own.get(source.split(":")[0], source.removeprefix("functions:"))


def saved_numbers(folder: Path, models: dict) -> dict:
    """What an earlier run measured in a folder, if the weights there are still the same, else nothing."""
    file = folder / "measured.json"
    saved = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    same = saved and all(saved["models"][kind]["sha256"] == models[kind]["sha256"] for kind in models)
    return saved if same else {}


def pair_numbers(folder: Path, texts: dict, data: Path, tokens_per_source: int) -> dict:
    """Everything measured of one pair; held-out numbers are kept from before where there is no data."""
    numbers = {"models": {kind: describe(folder / kind) for kind in ("target", "draft")}}
    numbers |= measure(folder, texts)
    if data.is_dir():
        return numbers | {"held_out": held_out_numbers(folder, data, tokens_per_source)}
    saved = saved_numbers(folder, numbers["models"])
    if not saved:
        raise SystemExit(f"{folder} was not measured on the held-out text yet: give its folder as --data")
    return numbers | {"held_out": saved["held_out"]}


def baseline_numbers(folder: Path, texts: dict, data: Path, tokens_per_source: int) -> dict:
    """The numbers of the pair to compare with, from its measured.json where that fits its weights."""
    models = {kind: describe(folder / kind) for kind in ("target", "draft")}
    return saved_numbers(folder, models) or pair_numbers(folder, texts, data, tokens_per_source)


def all_numbers(arguments: argparse.Namespace, before: dict, texts: dict) -> dict:
    """Measure the pair, and what it is compared with; keep from before what cannot be measured now."""
    out, data, tokens = arguments.models, arguments.data, arguments.tokens_per_source
    measured = pair_numbers(out, texts, data, tokens)
    if data.is_dir():
        say("prompts and sources in the training data")
        measured |= scan_training(data, texts)
    else:
        measured |= {key: before[key] for key in ("prompts_in_training", "sources")}
    if arguments.baseline:
        measured["baseline"] = baseline_numbers(arguments.baseline, texts, data, tokens)
    elif "baseline" in before:
        measured["baseline"] = before["baseline"]
    return measured


def main() -> int:
    """Measure, then write measured.json and README.md."""
    arguments = parser().parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    texts = json.loads((TOOLS / "card_texts.json").read_text(encoding="utf-8"))
    file, training = arguments.models / "measured.json", arguments.models / "training.json"
    measured = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not arguments.no_measuring:
        measured = all_numbers(arguments, measured, texts)
        file.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if not training.exists():
        say(f"no {training}: the numbers are in {file}, no card was written")
        return 1
    stages = json.loads(training.read_text(encoding="utf-8"))
    (arguments.models / "README.md").write_text(card.render(measured, stages, texts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
