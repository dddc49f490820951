"""Train a draft model for a target that was trained elsewhere: make the target's answers, distil, write a GGUF.

Each stage goes on from what it left: answers are kept in shards, training in checkpoints. Both belong outside the
repository. The stage ship puts the GGUF into a folder with its card: what it guesses of answers it was not trained on.
"""

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import transformers
from training import answers, corpus, draft_card, evaluate, foreign

from engines.datastores.storage.datastore import Documents, Store
from engines.hub.known_models import KNOWN
from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("answers", "train", "export")
CHAIN = 4  # tokens of a draft that the card counts rounds with
KINDS = {  # of prompts, by the first of these that is found in one
    "code": r"\b(python|function|code|class|program|regular expression|sql|html|json|bash|script)\b",
    "stories and poems": r"\b(story|poem|lullaby|haiku|tale|rhyme|song|fable)\b",
    "editing": r"\n",
    "lists": r"^(list|suggest|name|give)\b",
    "writing": r"^(write|describe|compose|imagine|tell)\b",
    "questions": "",
}
STOPPED = 3  # exit status when a stage was stopped and can be resumed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("stage", choices=(*STAGES, "all", "ship"), help="one stage; all but ship, in this order")
    p.add_argument("--target", default="smollm2", help="the target, as --model takes it (default smollm2)")
    p.add_argument("--data", type=Path, help="folder of *.jsonl.gz rows whose first questions are asked")
    p.add_argument("--answered", type=Path, help="*.jsonl.gz of the target's answers: read first")
    p.add_argument("--work", type=Path, required=True, help="folder for answers, checkpoints and results")
    p.add_argument("--answers", type=int, default=12_000, help="questions to answer (default 12000)")
    p.add_argument("--rows", type=int, default=64, help="answers made at a time (default 64)")
    p.add_argument("--longest", type=int, default=220, help="tokens of an answer (default 220)")
    p.add_argument("--longest-prompt", type=int, default=160, help="tokens of a prompt (default 160)")
    p.add_argument("--minutes", type=float, default=180.0, help="of training (default 180)")
    p.add_argument("--steps", type=int, help="steps of each part of the training, instead of minutes")
    p.add_argument("--hidden", type=int, default=192)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--mlp", type=int, default=512)
    p.add_argument("--batch-tokens", type=int, default=4096, help="tokens in a step (default 4096)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                   help="of the target as it answers (default float32; bfloat16 is faster on CPUs that compute in it)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--resume", action="store_true", help="go on from the checkpoints in --work")
    p.add_argument("--stop-after", type=int, help="stop and save after this many steps of a part of the training")
    p.add_argument("--out", type=Path, help="export: the GGUF to write (default: in --work); ship: the folder "
                   "(default sample_models/TARGET-draft)")
    p.add_argument("--held-out", type=Path, help="ship: datastore of the target's greedy answers to prompts that were "
                   "not asked here (default sample_datastores/TARGET)")
    return p


def make_answers(arguments: argparse.Namespace) -> bool:
    """Ask the target; False where it was stopped."""
    if not (arguments.data and arguments.data.is_dir()):
        parser().error("answers needs the folder of training rows: --data DIR")
    source = locate(arguments.target)
    model = read_model(source, getattr(torch, arguments.dtype), torch.device("cpu"))
    generator = answers.Generator(
        model, load_tokenizer(source), arguments.rows, arguments.longest, arguments.longest_prompt, arguments.seed
    )
    if arguments.answered and not answers.read_answered(arguments.answered, generator, arguments.work / "answers"):
        return False
    asked = answers.questions(arguments.data, arguments.seed)[: arguments.answers]
    return answers.answer_all(asked, generator, arguments.work / "answers")


def train(arguments: argparse.Namespace) -> bool:
    """Distil; False where it was stopped."""
    target = read_model(locate(arguments.target), torch.float32, torch.device("cpu"))
    size = foreign.Size(arguments.hidden, arguments.layers, arguments.mlp)
    names = ("minutes", "steps", "batch_tokens", "seed", "resume", "stop_after")
    options = foreign.Options(**{name: getattr(arguments, name) for name in names})
    return foreign.distil(target, arguments.work / "answers", arguments.work, size, options)


def export(arguments: argparse.Namespace) -> bool:
    """Write the trained model as a GGUF with the target's tokenizer."""
    source = locate(arguments.target)
    if source.gguf is None:
        parser().error("export takes the tokenizer from the target's GGUF: give one as --target")
    out = arguments.out or arguments.work / "draft-Q8_0.gguf"
    foreign.write_gguf(arguments.work / "draft", source.gguf, f"draft model for {arguments.target}", out)
    print(f"{out}: {out.stat().st_size:,} bytes", file=sys.stderr)
    return True


def held_out(store: Path, tokenizer, asked: set[str]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Prompt, its tokens and those of its answer, of every prompt that was not asked."""
    documents, tokens = Documents(Store(store)), Store(store).array("tokens")
    for number in range(len(documents)):
        begin, end = documents.bounds(number)
        prompt = documents.place(begin).source
        if corpus.plain(prompt) not in asked:
            messages = [{"role": "user", "content": prompt}]
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            yield prompt, ids, tokens[begin:end].tolist()


def agreement(draft, prompts: Iterator[tuple[str, list[int], list[int]]]) -> dict[str, dict[str, int]]:
    """By kind of prompt, and of all: answers, their tokens, those that the draft guesses, rounds of chains."""
    found = {kind: Counter() for kind in (*KINDS, "all")}
    for number, (prompt, asked, answer) in enumerate(prompts):
        right = evaluate.guessed(draft, asked, answer)
        of_answer = {"answers": 1, "tokens": len(right), "same": sum(right), "rounds": evaluate.rounds(right, CHAIN)}
        kind = next(kind for kind, words in KINDS.items() if re.search(words, prompt, re.IGNORECASE))
        for counts in (found[kind], found["all"]):
            counts.update(of_answer)
        if number % 50 == 49:
            guessed = found["all"]["same"] / found["all"]["tokens"]
            print(f"ship: {number + 1} answers read, {guessed:.1%}", file=sys.stderr)
    return {kind: dict(counts) for kind, counts in found.items() if counts}


def ship(arguments: argparse.Namespace) -> bool:
    """Write the GGUF, what it guesses and its card."""
    name = Path(arguments.target).stem
    folder = arguments.out or ROOT / "sample_models" / f"{name}-draft"
    folder.mkdir(parents=True, exist_ok=True)
    arguments.out = file = folder / f"{folder.name}-Q8_0.gguf"
    export(arguments)
    source, training = locate(str(file)), trained(arguments.work)
    store = arguments.held_out or ROOT / "sample_datastores" / name
    draft = read_model(source, torch.float32, torch.device("cpu")).eval()
    found = agreement(draft, held_out(store, load_tokenizer(source), training.pop("prompts")))
    config = draft.config
    model = {
        "file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "megabytes": file.stat().st_size / 1e6, "parameters": draft.num_parameters(),
        "layers": config.num_hidden_layers, "hidden": config.hidden_size, "mlp": config.intermediate_size,
        "vocabulary": config.vocab_size, "context": config.max_position_embeddings,
        "licence": source.gguf.metadata["general.license"],
    }  # fmt: skip
    measured = {
        "target": name, "origin": KNOWN[name].origin if name in KNOWN else name, "model": model, "training": training,
        "chain": CHAIN, "agreement": found, "left_out": Store(store).manifest.documents - found["all"]["answers"],
    }
    (folder / "measured.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(draft_card.render(measured), encoding="utf-8")
    return True


def trained(work: Path) -> dict:
    """What a draft model was trained on and how long, with the prompts that were asked."""
    lines = [line for shard in sorted((work / "answers").glob("[0-9]*.jsonl"))
             for line in shard.read_text(encoding="utf-8").splitlines()]  # fmt: skip
    rows, tokens = [json.loads(line) for line in lines], 0
    for shard in (work / "answers").glob("[0-9]*.npz"):
        with np.load(shard, allow_pickle=False) as arrays:
            tokens += int(arrays["lengths"][:, 1].sum())
    return json.loads((work / "draft.json").read_text(encoding="utf-8")) | {
        "sources": Counter(row["source"] for row in rows), "tokens": tokens,
        "prompts": {corpus.plain(row["prompt"]) for row in rows},
    }


def main() -> int:
    """Run the stages asked for."""
    arguments = parser().parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    arguments.work.mkdir(parents=True, exist_ok=True)
    stages = {"answers": make_answers, "train": train, "export": export, "ship": ship}
    for stage in STAGES if arguments.stage == "all" else (arguments.stage,):
        if not stages[stage](arguments):
            return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
