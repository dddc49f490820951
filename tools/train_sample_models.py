"""Train the sample models: tokenizer, target, its last stage, and the draft distilled from the target."""

import argparse
import sys
from pathlib import Path

import torch
import transformers
from training import corpus, stages

STAGES = ("prepare", "target", "finish", "draft")
STOPPED = 3  # exit status when a stage was stopped and can be resumed
MINUTES = {"target": 200.0, "finish": 100.0, "draft": 45.0}


def positive(text: str) -> int:
    """A whole number above zero, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("stage", choices=(*STAGES, "all"), help="one stage, or all of them in this order")
    p.add_argument("--data", type=Path, help="folder of *.jsonl.gz rows; needed to prepare")
    p.add_argument("--work", type=Path, required=True, help="folder for streams, checkpoints and results")
    p.add_argument("--tokenizer", type=Path, help="reuse this tokenizer instead of training one")
    p.add_argument("--init-target", type=Path, help="continue from this target's weights")
    p.add_argument("--init-draft", type=Path, help="continue from this draft's weights")
    for stage, minutes in MINUTES.items():
        p.add_argument(f"--{stage}-minutes", type=float, default=minutes, help=f"default {minutes:.0f}")
    p.add_argument("--steps", type=positive, help="steps of every stage, instead of minutes")
    p.add_argument("--stop-after", type=positive, help="stop and save after this many steps of a stage")
    p.add_argument("--context", type=positive, default=1024, help="tokens in a sequence (default 1024)")
    p.add_argument("--vocabulary", type=positive, default=8192, help="size of a new tokenizer (default 8192)")
    p.add_argument("--batch-tokens", type=positive, default=8192, help="tokens in a step (default 8192)")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    p.add_argument("--threads", type=positive, default=2, help="CPU threads (default 2)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--compile", action="store_true", help="compile the loss (faster; needs a C++ compiler)")
    p.add_argument("--resume", action="store_true", help="go on from the checkpoints in --work")
    p.add_argument("--install", type=Path, help="at the end, copy the pair and its reports to this folder")
    p.add_argument("--tiny", action="store_true", help="models of a few thousand weights, for tests")
    return p


def checked_arguments() -> argparse.Namespace:
    """The arguments, or an error that says what is missing."""
    p = parser()
    arguments = p.parse_args()
    if arguments.stage in ("prepare", "all") and not (arguments.data and arguments.data.is_dir()):
        p.error(f"{arguments.stage} needs the folder of training rows: --data DIR")
    for name in ("tokenizer", "init_target", "init_draft"):
        folder = getattr(arguments, name)
        if folder and not (folder / "tokenizer_config.json").exists():
            p.error(f"--{name.replace('_', '-')}: {folder} holds no model with a tokenizer")
    if arguments.init_target and not arguments.tokenizer:
        p.error("--init-target needs --tokenizer: the weights only fit their own tokenizer")
    return arguments


def options_from(arguments: argparse.Namespace) -> stages.Options:
    """The stages' options from the command line."""
    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return stages.Options(
        work=arguments.work,
        minutes={stage: getattr(arguments, f"{stage}_minutes") for stage in MINUTES},
        steps=arguments.steps,
        context=arguments.context,
        vocabulary=arguments.vocabulary,
        batch_tokens=arguments.batch_tokens,
        seed=arguments.seed,
        device=device,
        compile=arguments.compile,
        resume=arguments.resume,
        tiny=arguments.tiny,
        stop_after=arguments.stop_after,
    )


def run_stage(stage: str, arguments: argparse.Namespace, options: stages.Options) -> bool:
    """Run one stage; False when it was stopped early."""
    if stage == "prepare":
        corpus.prepare(arguments.data, options.work, options.vocabulary, options.context, arguments.tokenizer)
        return True
    if stage == "target":
        return stages.train_target(options, arguments.init_target)
    if stage == "finish":
        return stages.finish_target(options)
    return stages.distil_draft(options, arguments.init_draft)


def main() -> int:
    """Run the stages asked for."""
    arguments = checked_arguments()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    options = options_from(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    results = {"prepare": "tokenizer", "target": "target-base", "finish": "target", "draft": "draft"}
    for stage in STAGES if arguments.stage == "all" else (arguments.stage,):
        if arguments.resume and (options.work / results[stage]).exists():
            print(f"{stage}: done before", file=sys.stderr)
        elif not run_stage(stage, arguments, options):
            return STOPPED
    if arguments.install:
        stages.install(options.work, arguments.install)
    return 0


if __name__ == "__main__":
    sys.exit(main())
