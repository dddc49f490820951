"""The target's own answers, which a head is trained on: made here and kept in a file, or read from one."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engines.errors import UsageProblem
from engines.folders import json_lines, open_input, read_file
from engines.heads.hidden_state_cache import Text
from engines.request import Request
from engines.tokenization import encode

_LARGEST = 512 << 20  # bytes of a file of answers
_SHORTEST = 8  # tokens of an answer that is trained on


class _KeptAnswer(msgspec.Struct):
    """A line of the file of answers."""

    prompt: str
    tokens: list[int]
    target: str
    max_new_tokens: int


def generate_answers(
    model: Any, prompts: Sequence[str], file: Path, engine: str, max_new_tokens: int,
    progress: Callable[[int, int], None],
) -> list[Text]:
    """Greedy answers of an engine of ``model``, a ``Runtime``, to prompts. Those that the file holds are not made
    again; each is added to it when it is there. Raises UsageProblem: a prompt that cannot be asked, a file that cannot
    be written."""
    texts, made_with = [], {"target": model.target.fingerprint, "max_new_tokens": max_new_tokens}
    try:
        kept = kept_answers(model, file, max_new_tokens)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            for number, prompt in enumerate(prompts):
                request = Request((("user", prompt),), engine, max_new_tokens=max_new_tokens)
                if prompt not in kept:
                    *_, finished = model.run(request)
                    kept[prompt] = list(finished.tokens)
                    out.write(json.dumps({"prompt": prompt, "tokens": kept[prompt], **made_with}) + "\n")
                    out.flush()
                asked = encode(model.tokenizer, request, model.target.vocab_size)[0]
                texts.append(Text((*asked, *kept[prompt]), len(asked), True))
                progress(number + 1, len(prompts))
    except OSError as error:
        raise UsageProblem(f"{file} cannot be written ({error.strerror})", "choose another --work folder") from None
    return [text for text in texts if len(text.tokens) - text.start >= _SHORTEST]


def kept_answers(model: Any, file: Path, max_new_tokens: int) -> dict[str, list[int]]:
    """The tokens of the answers that a file holds of this target at this length, by their prompts. Raises OSError;
    UsageProblem: the file is damaged."""
    if not os.path.exists(file):
        return {}
    _drop_unfinished_line(file)
    try:
        rows = [msgspec.convert(row, _KeptAnswer) for row in _rows(file)]
    except ValueError:
        raise UsageProblem(f"{file} is damaged: a line is not an answer to a prompt",
                           "remove it: its answers are made again") from None
    made_with = model.target.fingerprint, max_new_tokens
    return {row.prompt: row.tokens for row in rows if (row.target, row.max_new_tokens) == made_with}


def _drop_unfinished_line(file: Path) -> None:
    """Cut off what a killed process left of a line."""
    content = read_file(file)
    if (end := content.rfind(b"\n") + 1) < len(content):
        os.truncate(file, end)


def read_answers(model: Any, file: Path) -> list[Text]:
    """Answers that the target wrote elsewhere: lines of JSON, zipped or not, with "prompt", "answer" and, where they
    are known, "temperature" and whether it "ended" by itself. Raises UsageProblem."""
    end = model.tokenizer.eos_token_id
    texts = []
    for row in _rows(file):
        prompt, answer = row.get("prompt"), row.get("answer")
        if not isinstance(prompt, str) or not isinstance(answer, str) or not prompt.strip():
            raise UsageProblem(f"a line of {file} has no prompt or no answer",
                               'such a line is like {"prompt": "Hello", "answer": "Hi!"}')
        request = Request((("user", prompt),))
        asked = encode(model.tokenizer, request, model.target.vocab_size)[0]
        tokens = model.tokenizer.encode(answer, add_special_tokens=False)
        tokens += [end] if row.get("ended") is True and end is not None else []
        if _SHORTEST <= len(tokens) <= model.target.context_limit - len(asked):
            texts.append(Text((*asked, *tokens), len(asked), not row.get("temperature")))
    texts.sort(key=lambda text: not text.greedy)  # where time ends early, those that greedy decoding will meet are read
    return texts


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        with open_input(file) as stream:
            content = stream.read(_LARGEST + 1)
        if content[:2] == b"\x1f\x8b":
            with gzip.open(file) as stream:
                content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise UsageProblem(f"{file} is larger than {_LARGEST >> 20} MB", "split it, and train on less")
        text = content.decode("utf-8-sig")
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is damaged, or another file"
        raise UsageProblem(f"{file} cannot be read as lines of JSON: {reason}", "check the file") from None
    return [row for _, row in json_lines(text, file, "is not a JSON object", "check the file", dict)]
