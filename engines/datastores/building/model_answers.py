"""The model's own answers to prompts as a corpus: the papers' in-distribution datastore.

Every answer is a document whose source is its prompt. Its end token belongs to it, so that ends can be drafted too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.datastores.building.corpus import Document
from engines.errors import UsageProblem
from engines.report.events import Finished
from engines.request import Request

if TYPE_CHECKING:
    from engines.runtime import Runtime

_LARGEST = 64 << 20  # bytes of a file of prompts


@dataclass(frozen=True, slots=True)
class Sampled:
    """How answers are made.

    Attributes:
        answers: to each prompt; more than one need a temperature.
        temperature: 0 is greedy; else answer i has the seed i.
        max_new_tokens: of each.
        engine: that decodes, "" for the usual one; the text does not depend on it.
        system: a system prompt, "" for none.

    Raises:
        UsageProblem: several answers that would all be the same, or none.
    """

    answers: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 256
    engine: str = ""
    system: str = ""

    def __post_init__(self) -> None:
        if self.answers < 1:
            raise UsageProblem(f"{self.answers} answers to a prompt cannot be made", "--answers is at least 1")
        if self.answers > 1 and self.temperature == 0:
            raise UsageProblem("greedy answers to a prompt are all the same", "give --temperature with --answers")

    def request(self, prompt: str, number: int = 0) -> Request:
        """What is asked for answer ``number`` to a prompt."""
        turns = ((("system", self.system),) if self.system else ()) + (("user", prompt),)
        return Request(
            turns, self.engine, temperature=self.temperature, seed=number, max_new_tokens=self.max_new_tokens
        )


class Answers:
    """A ``corpus.Corpus`` of answers that are written while it is read.

    Args:
        runtime: with the model that answers.
        prompts: each one question.
        model: fingerprint of the model's weights.

    Raises:
        UsageProblem: a prompt that the model cannot be asked; the message names its number.
    """

    unit = "answers"

    def __init__(self, runtime: Runtime, prompts: Sequence[str], sampled: Sampled, model: str) -> None:
        self._runtime, self._prompts, self.sampled = runtime, list(prompts), sampled
        self.total = len(prompts) * sampled.answers
        digest = hashlib.sha256(json.dumps(self._prompts).encode()).hexdigest()
        self.identity: dict[str, Any] = {
            "kind": "model-answers", "prompts": len(prompts), "digest": digest, "model": model,
            "answers": sampled.answers, "temperature": sampled.temperature, "system": sampled.system,
            "max_new_tokens": sampled.max_new_tokens,
        }
        for number in range(len(prompts)):
            self._check(number)

    def context(self, document: int) -> list[int]:
        """Token ids of the prompt that a document is the answer to, as the model reads them."""
        from engines.prompt import encode

        request = self.sampled.request(self._prompts[document // self.sampled.answers])
        return encode(self._runtime.tokenizer, request, self._runtime.target.vocab_size)[0]

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``. Raises RunFailed where the model breaks."""
        for i in range(resume or 0, self.total):
            prompt, number = divmod(i, self.sampled.answers)
            text = self._prompts[prompt]
            *_, end = self._runtime.run(self.sampled.request(text, number))
            assert isinstance(end, Finished)
            yield Document(text, tokens=end.tokens), i + 1

    def _check(self, number: int) -> None:
        try:
            self.sampled.request(self._prompts[number]).check()
            size = len(self.context(number * self.sampled.answers))
        except UsageProblem as error:
            raise UsageProblem(f"prompt {number + 1} of {len(self._prompts)}: {error.message}", error.hint) from None
        limit = self._runtime.target.context_limit
        if size >= limit:
            raise UsageProblem(
                f"prompt {number + 1} of {len(self._prompts)} has {size:,} tokens, the model's context holds {limit:,}",
                "shorten it, or leave it out",
            )


def read_prompts(path: Path) -> list[str]:
    """Prompts of a file, each once: a line each, or lines of JSON with "prompt".

    Raises:
        UsageProblem: unreadable, not UTF-8, a line of JSON without a prompt (it is named), no prompts.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read(_LARGEST + 1)
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read ({error.strerror})", "name a file of prompts, one a line") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{path} is not UTF-8 text", "name a file of prompts, one a line") from None
    if len(content) > _LARGEST:
        raise UsageProblem(f"{path} is larger than {_LARGEST >> 20} MB", "split it, and build from less")
    found = [_prompt(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise UsageProblem(f"there are no prompts in {path}", "write one a line, or lines of JSON with a \"prompt\"")
    return list(dict.fromkeys(found))


def _prompt(path: Path, number: int, line: str) -> str:
    if not line.lstrip().startswith("{"):
        return line.strip()
    try:
        prompt = json.loads(line)["prompt"]
        if isinstance(prompt, str) and prompt.strip():
            prompt.encode()  # JSON can hold half a character
            return prompt
    except (ValueError, KeyError, RecursionError):
        pass
    raise UsageProblem(
        f"line {number} of {path} is no JSON object with a prompt", 'such a line is like {"prompt": "What is a tree?"}'
    )
