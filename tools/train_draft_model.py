"""Train a draft model for a target that was trained elsewhere: make the target's answers, distil, write a GGUF.

Each stage goes on from what it left: answers are kept in shards, training in checkpoints. Both belong outside the
repository.
"""

import argparse
import sys
from pathlib import Path

import torch
import transformers
from training import answers, foreign
from transformers import AutoModelForCausalLM

from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model

STAGES = ("answers", "train", "export")
STOPPED = 3  # exit status when a stage was stopped and can be resumed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("stage", choices=(*STAGES, "all"), help="one stage, or all of them in this order")
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
    p.add_argument("--out", type=Path, help="where to write the GGUF (default: in --work)")
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
    model = AutoModelForCausalLM.from_pretrained(arguments.work / "draft", dtype=torch.float32)
    out = arguments.out or arguments.work / "draft-Q8_0.gguf"
    foreign.write_gguf(model, source.gguf, f"draft model for {arguments.target}", out)
    print(f"{out}: {out.stat().st_size:,} bytes", file=sys.stderr)
    return True


def main() -> int:
    """Run the stages asked for."""
    arguments = parser().parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    arguments.work.mkdir(parents=True, exist_ok=True)
    stages = {"answers": make_answers, "train": train, "export": export}
    for stage in STAGES if arguments.stage == "all" else (arguments.stage,):
        if not stages[stage](arguments):
            return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
