"""The stages after `prepare`: the target's base training, its last stage, and the draft's distillation."""

import functools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from . import loop
from .streams import Mixer
from .sublayers import SublayerGates, drop_probabilities, random_gates

TRAINED = ("target", "finish", "draft")  # the stages that train a model

# Shares of the sequences in a batch, by source.
BASE_MIX = {
    "chat": 0.22, "chat_own": 0.14, "chat_synth_qa": 0.18, "chat_synth_code": 0.17,
    "chat_synth_stories": 0.05, "code": 0.10, "docs": 0.04, "stories": 0.07, "stories_synth": 0.03,
}  # fmt: skip
LAST_MIX = {
    "chat_own": 0.42, "chat_synth_qa": 0.13, "chat_synth_code": 0.13, "chat": 0.14,
    "chat_synth_stories": 0.03, "code": 0.06, "docs": 0.03, "stories": 0.06,
}  # fmt: skip
DRAFT_MIX = {
    "chat_own": 0.25, "chat_synth_qa": 0.15, "chat_synth_code": 0.15, "chat": 0.20,
    "chat_synth_stories": 0.05, "code": 0.10, "docs": 0.03, "stories": 0.05, "stories_synth": 0.02,
}  # fmt: skip

# Hidden size, layers, attention heads, MLP size.
SIZES = {"target": (256, 12, 4, 688), "draft": (128, 3, 2, 352)}
TINY_SIZES = {"target": (32, 3, 2, 48), "draft": (16, 1, 2, 24)}
MAX_ATTENTION_DROP = 0.2
MAX_MLP_DROP = 0.1


@dataclass
class Options:
    """What the stages share; `minutes` and `steps` are per stage name."""

    work: Path
    minutes: dict[str, float]
    steps: int | None = None
    context: int = 1024
    vocabulary: int = 8192
    batch_tokens: int = 8192
    seed: int = 0
    device: str = "cpu"
    compile: bool = False
    resume: bool = False
    tiny: bool = False
    stop_after: int | None = None


def new_model(kind: str, options: Options, init: Path | None) -> LlamaForCausalLM:
    """A fresh model of a kind ("target", "draft"), or one continued from a folder, in float32."""
    if init:
        model = LlamaForCausalLM.from_pretrained(init, dtype=torch.float32)
        model.config.max_position_embeddings = options.context
        return model
    torch.manual_seed(options.seed)
    hidden, layers, heads, mlp = (TINY_SIZES if options.tiny else SIZES)[kind]
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=mlp,
        max_position_embeddings=options.context,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=5,
        pad_token_id=1,
    )
    return LlamaForCausalLM(config)


def export(model: LlamaForCausalLM, tokenizer: Path, out: Path) -> None:
    """Write a bfloat16 copy with tokenizer, chat template and a plain generation config, all or nothing."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    temporary = out.with_name(out.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    copy.to(torch.bfloat16).save_pretrained(temporary)
    settings = {"do_sample": False, "eos_token_id": 5, "pad_token_id": 1}
    (temporary / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / name, temporary / name)
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)


def _mixer(mix: dict[str, float], options: Options, seed: int) -> Mixer:
    rows = max(1, options.batch_tokens // options.context)
    return Mixer(options.work / "streams" / "train", mix, options.context + 1, rows, options.seed + seed)


@dataclass
class Recipe:
    """What one stage trains, on what, how fast it learns, and whether it started from given weights."""

    stage: str
    mix: dict[str, float]
    muon_rate: float
    adam_rate: float
    flat: float
    seed: int
    continued: bool
    dropping: bool

    def run(self, model: LlamaForCausalLM, loss_of, out: Path, options: Options) -> bool:
        """Train, write the model to `out` and a report beside the checkpoint; False if stopped early."""
        minutes, warmup = options.minutes[self.stage], 10 if self.continued else 30
        warmup = 2 if options.tiny else warmup
        schedule = loop.Schedule(minutes, options.steps, self.muon_rate, self.adam_rate, warmup, self.flat)
        mixer = _mixer(self.mix, options, self.seed)
        checkpoint = options.work / f"{self.stage}.checkpoint.pt"
        at = loop.train(
            self.stage,
            model,
            loss_of,
            mixer,
            schedule,
            checkpoint,
            options.resume,
            stop_after=options.stop_after,
        )
        if at is None:
            return False
        self.report(at, mixer, options)
        export(model, options.work / "tokenizer", out)
        return True

    def report(self, at: loop.Position, mixer: Mixer, options: Options) -> None:
        """Write what this stage did, for the model card."""
        facts = {
            "steps": at.step,
            "minutes": round(at.seconds / 60, 1),
            "tokens": at.step * mixer.rows * options.context,
            "context": options.context,
            "sequences": mixer.rows,
            "mix": mixer.shares,
            "muon_rate": self.muon_rate,
            "adam_rate": self.adam_rate,
            "flat": self.flat,
            "continued": self.continued,
            "attention_drop": MAX_ATTENTION_DROP if self.dropping else 0.0,
            "mlp_drop": MAX_MLP_DROP if self.dropping else 0.0,
            "device": options.device,
        }
        (options.work / f"{self.stage}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def install(work: Path, out: Path) -> None:
    """Copy the finished pair and the reports of its stages to `out`."""
    for kind in ("target", "draft"):
        shutil.copytree(work / kind, out / kind, dirs_exist_ok=True)
    reports = {s: json.loads((work / f"{s}.json").read_text(encoding="utf-8")) for s in TRAINED}
    (out / "training.json").write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def _target_loss(model: LlamaForCausalLM, options: Options):
    """Next-token loss with sublayers dropped at random, a new draw for every step and sequence."""
    gates = SublayerGates(model)
    chances = drop_probabilities(model.config.num_hidden_layers, MAX_ATTENTION_DROP, MAX_MLP_DROP)

    def gated_loss(tokens, values):
        gates.values = values
        with torch.autocast(options.device, dtype=torch.bfloat16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    compiled = torch.compile(gated_loss) if options.compile else gated_loss

    def loss_of(tokens, step):
        values = random_gates(chances, len(tokens), options.seed * 1_000_003 + step)
        return compiled(tokens.to(options.device), values.to(options.device))

    return loss_of


def train_target(options: Options, init: Path | None = None) -> bool:
    """Base training of the target on the whole mix, at rates that stay."""
    model = new_model("target", options, init).to(options.device)
    muon_rate, adam_rate = (0.014, 2e-3) if init else (0.02, 3e-3)
    recipe = Recipe("target", BASE_MIX, muon_rate, adam_rate, 1.0, 1, continued=bool(init), dropping=True)
    return recipe.run(model, _target_loss(model, options), options.work / "target-base", options)


def finish_target(options: Options) -> bool:
    """The target's last stage: the rates fall to zero on a mix that is mostly our own texts."""
    model = new_model("target", options, options.work / "target-base").to(options.device)
    recipe = Recipe("finish", LAST_MIX, 0.011, 1.6e-3, 0.0, 2, continued=True, dropping=True)
    return recipe.run(model, _target_loss(model, options), options.work / "target", options)


def distil_draft(options: Options, init: Path | None = None) -> bool:
    """Train the draft on the finished target's distribution over next tokens."""
    teacher = new_model("target", options, options.work / "target").to(options.device).eval()
    teacher.to(torch.bfloat16).requires_grad_(False)
    model = new_model("draft", options, init).to(options.device)

    @torch.no_grad()
    def teach(tokens):
        return teacher(input_ids=tokens, use_cache=False).logits

    def divergence(tokens, wanted):
        with torch.autocast(options.device, dtype=torch.bfloat16):
            logits = model(input_ids=tokens, use_cache=False).logits
        ours, theirs = F.log_softmax(logits.float(), -1), F.log_softmax(wanted.float(), -1)
        return F.kl_div(ours.flatten(0, 1), theirs.flatten(0, 1), log_target=True, reduction="batchmean")

    wrap = torch.compile if options.compile else functools.partial
    teach, divergence = wrap(teach), wrap(divergence)

    def loss_of(tokens, _step):
        tokens = tokens[:, :-1].to(options.device)
        return divergence(tokens, teach(tokens))

    muon_rate = 0.014 if init else 0.02
    recipe = Recipe("draft", DRAFT_MIX, muon_rate, 3e-3, 0.3, 3, continued=bool(init), dropping=False)
    return recipe.run(model, loss_of, options.work / "draft", options)
