"""The model's own answers to prompts as a corpus: the in-distribution datastore of the papers (DReSD's are greedy, or
three nucleus answers to a prompt with T = 0.7 and top-p = 0.95).

Every answer is a document whose source is its prompt. It includes its end token, so that ends can be drafted too. The
prompt is no part of it unless that is asked for; the script of DReSD's authors includes it for REST.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engines.datastores.building.corpus import Document, LoadedModel
from engines.datastores.building.dense_build import room_after
from engines.errors import UsageProblem
from engines.folders import read_input

_LARGEST = 64 << 20  # bytes of a file of prompts


class ModelAnswers:
    """A ``corpus.Corpus`` of answers that the model writes while it is read.

    Args:
        prompts: each one question.
        spec: a ``build_spec.BuildSpec``: how many answers to each prompt, and how they are sampled.

    Attributes:
        prompt_tokens: tokens of prompts in all documents together.

    Raises:
        UsageProblem: the model cannot be asked one of the prompts, or too little of the context is left for the hidden
            states of its answer; the message says which.
    """

    unit = "answers"

    def __init__(self, model: LoadedModel, prompts: Sequence[str], spec: Any) -> None:
        self._model, self._prompts, self._spec = model, list(prompts), spec
        self.total = len(prompts) * spec.answers
        digest = hashlib.sha256(json.dumps(self._prompts).encode()).hexdigest()
        self.identity: dict[str, Any] = {
            "kind": "model-answers", "prompts": len(prompts), "digest": digest, "model": model.identity.fingerprint,
            "answers": spec.answers, "temperature": spec.temperature, "system": spec.system,
            "max_new_tokens": spec.max_new_tokens, **({"top_p": spec.top_p} if spec.top_p < 1 else {}),
            **({"with_prompts": True} if spec.with_prompts else {}),
        }
        sizes = [self._checked(number) for number in range(len(prompts))]
        self.prompt_tokens = spec.answers * sum(sizes) if spec.with_prompts else 0

    def context(self, document: int) -> list[int]:
        """Token ids that the model reads before a document: the prompt that it answers; none where the document begins
        with it."""
        return [] if self._spec.with_prompts else self._asked(document)

    def _asked(self, document: int) -> list[int]:
        """Token ids of the prompt that a document answers, as the model reads them."""
        from engines.tokenization import encode

        request = self._spec.request(self._prompts[document // self._spec.answers])
        return encode(self._model.tokenizer, request, self._model.target.vocab_size)[0]

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``. Raises RunFailed if the model breaks."""
        for i in range(resume or 0, self.total):
            prompt, number = divmod(i, self._spec.answers)
            text = self._prompts[prompt]
            *_, finished = self._model.run(self._spec.request(text, number))
            asked = self._asked(i) if self._spec.with_prompts else ()
            yield Document(text, tokens=(*asked, *finished.tokens)), i + 1

    def _checked(self, number: int) -> int:
        """The tokens of a prompt. Raises UsageProblem for one that the model cannot be asked, or that leaves too little
        of what it reads together for the hidden states of an answer."""
        which = f"prompt {number + 1} of {len(self._prompts)}"
        try:
            self._spec.request(self._prompts[number]).check()
            size = len(self._asked(number * self._spec.answers))
        except UsageProblem as error:
            raise UsageProblem(f"{which}: {error.message}", error.hint) from None
        limit = self._model.target.context_limit
        if size >= limit:
            raise UsageProblem(f"{which} has {size:,} tokens, the model's context holds {limit:,}",
                               "shorten it, or leave it out")
        if self._spec.kind != "sparse" and not self._spec.with_prompts:
            room_after(size, min(self._spec.window or limit, limit), f"the answer to {which}")
        return size


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file, without repetitions: one a line, or lines of JSON with "prompt". Raises UsageProblem: the
    file is unreadable, not UTF-8, or has no prompts; a line of JSON has no prompt (the message names the line)."""
    _, text = read_input(path, _LARGEST, "a file of prompts, one a line")
    prompts = [_prompt(path, number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not prompts:
        raise UsageProblem(f"there are no prompts in {path}", "write one a line, or lines of JSON with a \"prompt\"")
    return list(dict.fromkeys(prompts))


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
    raise UsageProblem(f"line {number} of {path} is not a JSON object with a prompt",
                       'such a line is like {"prompt": "What is a tree?"}')
