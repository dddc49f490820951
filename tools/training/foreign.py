"""A draft model for a target that was trained elsewhere, distilled on the target's own answers (``answers``)."""

import json
from dataclasses import dataclass
from pathlib import Path

import gguf_export
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.hub import gguf_file

from . import loop

MLP_KIND = "Q5_0"  # in Q8_0 the file would be larger than the 14 MB it may have
HALF = torch.cpu._is_avx512_bf16_supported()  # elsewhere bfloat16 takes twice the time of float32
FREQUENT = 12_288  # tokens that the first stage's loss is over: a quarter of the time of the whole vocabulary


@dataclass
class Size:
    """Sizes of a draft model; heads are of 64 numbers."""

    hidden: int = 192
    layers: int = 6
    mlp: int = 512


@dataclass
class Options:
    """How long to train, or how many steps a stage, and on how many tokens a step."""

    minutes: float
    steps: int | None = None
    batch_tokens: int = 4096
    seed: int = 0
    resume: bool = False
    stop_after: int | None = None


@dataclass
class Stage:
    """A part of the training: its share of the time, and until when in it the learning rates stay."""

    name: str
    share: float
    flat: float
    whole_vocabulary: bool


STAGES = (
    Stage("draft-frequent", 0.8, 1.0, whole_vocabulary=False),
    Stage("draft-whole", 0.2, 0.0, whole_vocabulary=True),
)


@dataclass
class Batch:
    """Answers padded to one length.

    Attributes:
        tokens: [rows, length], prompt and answer, zeros after the end.
        answered: [rows, length] bool, the positions whose next token is the answer's.
        top_tokens, top_logprobs: [answered positions, TOP], the target's distribution there.
        columns: the tokens that the loss is over; None for the whole vocabulary.
    """

    tokens: torch.Tensor
    answered: torch.Tensor
    top_tokens: torch.Tensor
    top_logprobs: torch.Tensor
    columns: torch.Tensor | None

    def numel(self) -> int:
        """Answered positions, which progress counts."""
        return len(self.top_tokens)


class AnswerBatches:
    """Batches of answers of like length, in a new order on every pass; the same seed gives the same batches."""

    def __init__(self, shards: Path, batch_tokens: int, vocabulary: int, seed: int):
        self.answers: list[tuple[np.ndarray, int, np.ndarray, np.ndarray]] = []
        mass = np.zeros(vocabulary)
        for shard in sorted(shards.glob("[0-9]*.npz")):
            with np.load(shard, allow_pickle=False) as arrays:
                self._take(arrays)
                np.add.at(mass, arrays["top_tokens"], np.exp(arrays["top_logprobs"].astype(np.float32)))
        if not self.answers:
            raise SystemExit(f"no answers in {shards}: run the stage answers first")
        self.frequent = torch.from_numpy(np.sort(np.argsort(-mass)[:FREQUENT]))
        self.batch_tokens, self.seed, self.at = batch_tokens, seed, (0, 0)
        self.whole_vocabulary = False
        self._pass = -1

    def _take(self, arrays) -> None:
        at = answered = 0
        for prompt, answer in arrays["lengths"]:
            tokens = arrays["tokens"][at : at + prompt + answer]
            top = slice(answered, answered + answer)
            self.answers.append((tokens, int(prompt), arrays["top_tokens"][top], arrays["top_logprobs"][top]))
            at, answered = at + prompt + answer, answered + answer

    def _begin_pass(self, number: int) -> None:
        rng = np.random.default_rng((self.seed, number))
        noise = rng.uniform(0, 24, len(self.answers))  # neighbours in length differ from pass to pass
        order = np.argsort([len(a[0]) + n for a, n in zip(self.answers, noise, strict=True)])
        groups, group, longest = [], [], 0
        for i in order:
            longest = max(longest, len(self.answers[i][0]))
            if group and (len(group) + 1) * longest > self.batch_tokens:
                groups, group, longest = [*groups, group], [], len(self.answers[i][0])
            group.append(i)
        self._groups = [*groups, group]
        rng.shuffle(self._groups)
        self._pass = number

    def batch(self, _step: int) -> Batch:
        """The next batch."""
        number, index = self.at
        if number != self._pass:
            self._begin_pass(number)
        chosen = [self.answers[i] for i in self._groups[index]]
        self.at = (number, index + 1) if index + 1 < len(self._groups) else (number + 1, 0)
        length = max(len(tokens) for tokens, *_ in chosen)
        tokens, answered = np.zeros((len(chosen), length), np.int64), np.zeros((len(chosen), length), bool)
        for row, (ids, prompt, _, _) in enumerate(chosen):
            tokens[row, : len(ids)] = ids
            answered[row, prompt - 1 : len(ids) - 1] = True
        return Batch(
            tokens=torch.from_numpy(tokens),
            answered=torch.from_numpy(answered),
            top_tokens=torch.from_numpy(np.concatenate([top for *_, top, _ in chosen]).astype(np.int64)),
            top_logprobs=torch.from_numpy(np.concatenate([top for *_, top in chosen]).astype(np.float32)),
            columns=None if self.whole_vocabulary else self.frequent,
        )

    def state(self) -> list[int]:
        """Where it stands, for a checkpoint."""
        return list(self.at)

    def restore(self, state: list[int]) -> None:
        """Continue where a checkpoint's ``state`` stood."""
        self.at = (int(state[0]), int(state[1]))


def new_model(target, size: Size, seed: int) -> LlamaForCausalLM:
    """A draft model whose embedding is the best projection of the target's to its own width, scaled as usual."""
    torch.manual_seed(seed)
    theirs = target.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=theirs.vocab_size,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.hidden // 64,
            num_key_value_heads=size.hidden // 64,
            head_dim=64,
            intermediate_size=size.mlp,
            max_position_embeddings=theirs.max_position_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=theirs.bos_token_id,
            eos_token_id=theirs.eos_token_id,
            pad_token_id=theirs.pad_token_id,
        )
    )
    embedding = target.get_input_embeddings().weight.detach().float()
    _, _, directions = torch.pca_lowrank(embedding, q=size.hidden, center=False, niter=4)
    projected = embedding @ directions
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(projected * (0.02 / projected.std()))
    return model


def divergence(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """KL divergence of the model from the target's likeliest tokens and from all others taken together, per token."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HALF):
        states = model.model(input_ids=batch.tokens, use_cache=False).last_hidden_state[batch.answered]
        weight = model.get_input_embeddings().weight
        logits = states @ (weight if batch.columns is None else weight[batch.columns]).T
    wanted, tokens = batch.top_logprobs, batch.top_tokens
    if batch.columns is not None:  # the target's other tokens are left out, and the rest is made to sum to one
        place = torch.searchsorted(batch.columns, tokens).clamp_(max=len(batch.columns) - 1)
        wanted = wanted.masked_fill(batch.columns[place] != tokens, -torch.inf)
        tokens = place
    ours = logits.float().log_softmax(-1).gather(1, tokens)
    likely = wanted.exp()
    inside = torch.where(likely > 0, likely * (wanted - ours), 0.0).sum(-1)
    rest = (1 - likely.sum(-1)).clamp_min(1e-4)
    others = (1 - ours.exp().masked_fill(likely == 0, 0).sum(-1)).clamp_min(1e-4)
    return (inside + rest * (rest / others).log()).mean()


def distil(target, shards: Path, work: Path, size: Size, options: Options) -> bool:
    """Train the draft model on the shards; False where it was stopped and can be resumed."""
    model = new_model(target, size, options.seed)
    steps = minutes = 0.0
    for stage in STAGES:
        batches = AnswerBatches(shards, options.batch_tokens, target.config.vocab_size, options.seed)
        batches.whole_vocabulary = stage.whole_vocabulary
        schedule = loop.Schedule(
            minutes=stage.share * options.minutes,
            steps=options.steps,
            muon_rate=0.02,
            adam_rate=3e-3,
            warmup=50 if stage is STAGES[0] else 1,
            flat=stage.flat,
        )
        at = loop.train(
            stage.name,
            model,
            lambda batch, _step: divergence(model, batch),
            batches,
            schedule,
            work / f"{stage.name}.checkpoint.pt",
            options.resume,
            stop_after=options.stop_after,
        )
        if at is None:
            return False
        steps, minutes = steps + at.step, minutes + at.seconds / 60
    model.to(torch.bfloat16).save_pretrained(work / "draft")
    facts = {"steps": int(steps), "minutes": round(minutes, 1), "answers": len(batches.answers)}
    (work / "draft.json").write_text(json.dumps(facts | vars(size), indent=1) + "\n", encoding="utf-8")
    return True


def write_gguf(draft: Path, tokenizer_of: gguf_file.GgufFile, name: str, out: Path) -> None:
    """Write a folder's model as a GGUF of Q8_0 (its MLPs of `MLP_KIND`) with the tokenizer of the target's file."""
    gguf_export.export(
        draft, out, lambda tensor: MLP_KIND if ".ffn_" in tensor else "Q8_0", name, licence="Apache-2.0",
        tokenizer={key: value for key, value in tokenizer_of.metadata.items() if key.startswith("tokenizer.")},
    )
