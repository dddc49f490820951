"""A target's own answers to first questions, with its distribution at every answered position, in resumable shards:
made here, or read again where they were written elsewhere.

The rows of a batch are answers at different positions: one that has ended gives its row to the next
question, so that no row waits for the longest answer.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache

from . import corpus
from .loop import Interrupt

TOP = 32  # tokens kept of the target's distribution at each position
SHARD = 128  # answers in a file
SAMPLED = {"temperature": 0.8, "top_p": 0.95}  # every other question is sampled so, the rest is greedy


@dataclass
class Question:
    """A first question of the training rows."""

    source: str
    prompt: str
    sampled: bool


@dataclass
class Answer:
    """An answer as it grows: the prompt's tokens, its own, and the target's distribution at each of its tokens."""

    question: Question
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    top_tokens: list[np.ndarray] = field(default_factory=list)  # [TOP] int32 each
    top_logprobs: list[np.ndarray] = field(default_factory=list)  # [TOP] float16 each


def questions(data: Path, seed: int) -> list[Question]:
    """The first user message of every chat row, each once, sources in turn, every second one sampled."""
    by_source: dict[str, list[str]] = {}
    for name, path in corpus.row_files(data, "train").items():
        prompts = (r["messages"][0]["content"].strip() for r in corpus.rows(path) if "messages" in r)
        prompts = list(dict.fromkeys(prompts))
        if prompts:
            np.random.default_rng((seed, len(by_source))).shuffle(prompts)
            by_source[name] = prompts
    longest = max(map(len, by_source.values()))
    in_turn = [(s, p[i]) for i in range(longest) for s, p in by_source.items() if i < len(p)]
    return [Question(source, prompt, i % 2 == 1) for i, (source, prompt) in enumerate(in_turn)]


class SlotCache(DynamicCache):
    """Keys and values of `rows` answers at different positions; one token a row is added by each forward pass."""

    def __init__(self, config, rows: int, length: int, dtype: torch.dtype):
        super().__init__()
        heads, size = config.num_key_value_heads, config.head_dim
        shape = (config.num_hidden_layers, rows, heads, length, size)
        self.keys_of, self.values_of = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self.positions = torch.zeros(rows, dtype=torch.long)  # where each row's next token goes
        self._rows = torch.arange(rows)

    @property
    def used(self) -> int:
        """Columns that hold anything, for the longest row, with the token about to be written."""
        return int(self.positions.max()) + 1

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_args, **_kwargs):
        """Write `keys`, `values` [rows, heads, 1, size] at each row's position; return all used columns."""
        self.keys_of[layer, self._rows, :, self.positions] = keys[:, :, 0]
        self.values_of[layer, self._rows, :, self.positions] = values[:, :, 0]
        return self.keys_of[layer, :, :, : self.used], self.values_of[layer, :, :, : self.used]

    def fill(self, row: int, prefilled: DynamicCache) -> None:
        """Put a prompt's keys and values in a row."""
        for layer, kept in enumerate(prefilled.layers):
            n = kept.keys.shape[2]
            self.keys_of[layer, row, :, :n] = kept.keys[0]
            self.values_of[layer, row, :, :n] = kept.values[0]
        self.positions[row] = n

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """[rows, 1, 1, used]: 0 where a row may look, the lowest number elsewhere."""
        hidden = torch.arange(self.used) > self.positions[:, None]
        return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)[:, None, None]


class Generator:
    """Answers questions with `rows` at a time."""

    def __init__(self, model, tokenizer, rows: int, longest: int, longest_prompt: int, seed: int):
        self.tokenizer, self.model = tokenizer, model.eval()
        self.cache = SlotCache(self.model.config, rows, longest_prompt + longest + 1, model.dtype)
        self.longest, self.longest_prompt = longest, longest_prompt
        self.random = torch.Generator().manual_seed(seed)
        self.rows: list[Answer | None] = [None] * rows
        self.next = torch.zeros(rows, 1, dtype=torch.long)
        self.tokens_made = 0

    def encode(self, prompt: str) -> list[int]:
        """A question in the chat template."""
        messages = [{"role": "user", "content": prompt}]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def begin(self, row: int, question: Question) -> bool:
        """Start a question in a row, by its prompt's forward pass; False if the prompt is too long."""
        prompt = self.encode(question.prompt)
        if len(prompt) > self.longest_prompt:
            return False
        kept = DynamicCache()
        logits = self.model(torch.tensor([prompt]), past_key_values=kept, logits_to_keep=1).logits[:, -1]
        self.cache.fill(row, kept)
        self.rows[row] = Answer(question, prompt)
        self._choose(torch.tensor([row]), logits)
        return True

    def step(self) -> list[Answer]:
        """One token for every row; the answers that ended, whose rows are free again."""
        inputs = {"position_ids": self.cache.positions[:, None], "attention_mask": self.cache.mask(self.model.dtype)}
        logits = self.model(self.next, past_key_values=self.cache, **inputs).logits[:, -1]
        self.cache.positions += 1
        ended = self._free_ended()
        self._choose(torch.tensor([r for r, a in enumerate(self.rows) if a]), logits, all_rows=True)
        self.cache.positions[[r for r, a in enumerate(self.rows) if a is None]] = 0
        return ended

    def _free_ended(self) -> list[Answer]:
        ended = []
        for row, answer in enumerate(self.rows):
            if answer and (answer.tokens[-1] == self.tokenizer.eos_token_id or len(answer.tokens) == self.longest):
                ended.append(answer)
                self.rows[row] = None
        return ended

    def _choose(self, rows: torch.Tensor, logits: torch.Tensor, all_rows: bool = False) -> None:
        """Choose each row's next token from `logits` [rows, vocabulary] and note the target's distribution."""
        if not len(rows):
            return
        logprobs = (logits[rows] if all_rows else logits).float().log_softmax(-1)
        top = logprobs.topk(TOP)
        warm = (top.values / SAMPLED["temperature"]).softmax(-1)  # beyond 32 tokens there is next to nothing
        nucleus = warm.masked_fill(warm.cumsum(-1) - warm >= SAMPLED["top_p"], 0.0)
        drawn = top.indices.gather(1, torch.multinomial(nucleus, 1, generator=self.random))[:, 0]
        self.tokens_made += len(rows)
        for i, row in enumerate(rows.tolist()):
            answer = self.rows[row]
            token = int(drawn[i] if answer.question.sampled else top.indices[i, 0])
            answer.tokens.append(token)
            answer.top_tokens.append(top.indices[i].numpy().astype(np.int32))
            answer.top_logprobs.append(top.values[i].numpy().astype(np.float16))
            self.next[row, 0] = token


def save(answers: list[Answer], tokenizer, path: Path) -> None:
    """Write a shard: arrays for training beside the texts, all or nothing."""
    lengths = np.array([(len(a.prompt), len(a.tokens)) for a in answers], dtype=np.int32)
    temporary = path.with_name(f".{path.name}")  # which no pattern of shards matches
    np.savez(
        temporary,
        lengths=lengths,
        tokens=np.concatenate([np.array(a.prompt + a.tokens, dtype=np.int32) for a in answers]),
        top_tokens=np.concatenate([np.stack(a.top_tokens) for a in answers]),
        top_logprobs=np.concatenate([np.stack(a.top_logprobs) for a in answers]),
    )
    rows = [
        {
            "source": a.question.source,
            "prompt": a.question.prompt,
            "temperature": SAMPLED["temperature"] if a.question.sampled else 0.0,
            "answer": tokenizer.decode(a.tokens, skip_special_tokens=True),
            "ended": a.tokens[-1] == tokenizer.eos_token_id,
        }
        for a in answers
    ]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    temporary.replace(path)


def finished_prompts(out: Path) -> set[str]:
    """The questions of the shards that are whole."""
    done = set()
    for shard in out.glob("[0-9]*.npz"):
        lines = shard.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
        done.update(json.loads(line)["prompt"] for line in lines)
    return done


@torch.inference_mode()
def read_answered(file: Path, generator: Generator, out: Path) -> bool:
    """Read the answers of a file as the target does, in shards as `answer_all` writes them; False if a signal stopped
    it. Its rows have "prompt", "answer", "temperature", "source" and "ended"."""
    out.mkdir(parents=True, exist_ok=True)
    done = finished_prompts(out)
    rows = [row for row in corpus.rows(file) if row["prompt"] not in done]
    number = len(list(out.glob("[0-9]*.npz")))
    tokenizer, read = generator.tokenizer, 0
    with Interrupt() as interrupt:
        for shard in (rows[i : i + SHARD] for i in range(0, len(rows), SHARD)):
            answers = [_written(row, generator) for row in shard]
            answers = sorted((a for a in answers if a.tokens), key=lambda a: len(a.prompt) + len(a.tokens))
            for i in range(0, len(answers), 16):  # of like length
                _read(answers[i : i + 16], generator.model)
            save(answers, tokenizer, out / f"{number:04}.npz")
            number, read = number + 1, read + len(answers)
            print(f"answers: {read} of {len(rows)} read", file=sys.stderr)
            if interrupt.requested:
                return False
    return True


def _written(row: dict, generator: Generator) -> Answer:
    question = Question(row["source"], row["prompt"], row["temperature"] > 0)
    tokens = generator.tokenizer.encode(row["answer"], add_special_tokens=False)
    end = [generator.tokenizer.eos_token_id] if row["ended"] else []
    return Answer(question, generator.encode(row["prompt"]), tokens + end)


def _read(answers: list[Answer], model) -> None:
    """Note the target's distribution at every token of some answers."""
    longest = max(len(a.prompt) + len(a.tokens) for a in answers)
    tokens = torch.zeros(len(answers), longest, dtype=torch.long)  # zeros after the end are seen by nobody
    for row, a in enumerate(answers):
        tokens[row, : len(a.prompt) + len(a.tokens)] = torch.tensor(a.prompt + a.tokens)
    states = model.base_model(tokens, use_cache=False).last_hidden_state
    for row, a in enumerate(answers):
        own = states[row, len(a.prompt) - 1 : len(a.prompt) + len(a.tokens) - 1]
        top = model.get_output_embeddings()(own).float().log_softmax(-1).topk(TOP)
        a.top_tokens = list(top.indices.numpy().astype(np.int32))
        a.top_logprobs = list(top.values.numpy().astype(np.float16))


@torch.inference_mode()
def answer_all(asked: list[Question], generator: Generator, out: Path) -> bool:
    """Answer all questions that no shard in `out` answers; False if a signal stopped it."""
    out.mkdir(parents=True, exist_ok=True)
    done = finished_prompts(out)
    waiting = [q for q in asked if q.prompt not in done][::-1]
    number = len(list(out.glob("[0-9]*.npz")))
    finished, saved, too_long, start, last = [], len(done), 0, time.monotonic(), 0.0
    with Interrupt() as interrupt:
        while (waiting or any(generator.rows)) and not interrupt.requested:
            for row, answer in enumerate(generator.rows):
                while answer is None and waiting and not generator.begin(row, waiting.pop()):
                    too_long += 1
            finished += generator.step()
            while len(finished) >= SHARD:
                save(finished[:SHARD], generator.tokenizer, out / f"{number:04}.npz")
                number, saved, finished = number + 1, saved + SHARD, finished[SHARD:]
            if (now := time.monotonic()) - last > 15:
                last, rate = now, generator.tokens_made / (now - start)
                print(f"answers: {saved} saved, {len(waiting)} left, {rate:.0f} tokens/s", file=sys.stderr)
        if finished:
            save(finished, generator.tokenizer, out / f"{number:04}.npz")
    if too_long:
        print(f"answers: {too_long} questions were too long and left out", file=sys.stderr)
    return not interrupt.requested
