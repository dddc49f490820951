"""Files of prompts as users have them: plain lines, lines of JSON, a chat log in OpenAI's format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.bench.suite import Suite, by_name, case_of, messages, parse, said, shipped
from engines.errors import UsageProblem
from engines.folders import read_input

_LARGEST = 8 << 20  # bytes


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What a file asks.

    Attributes:
        suite: its prompts; of a conversation the user's turns, which are asked anew one after another.
        system: the system prompt that all of its conversations share; "" without one.
        notes: what of the file is not asked, a sentence each.
    """

    suite: Suite
    system: str = ""
    notes: tuple[str, ...] = ()


def open_prompts(path: Path | None) -> PromptFile:
    """The prompts of a file that somebody named, or of a suite that ships by its name (``suite.BY_NAME``), or without
    one those of our own suite. Raises UsageProblem."""
    found = shipped() if path is None else by_name(path)
    if found is not None:
        return PromptFile(found)
    _, text = read_input(path, _LARGEST, "a file of prompts")
    return read(text, str(path), path.name)


def read(text: str, where: str, name: str = "") -> PromptFile:
    """The prompts of a file's text; ``where`` names it in messages.

    A file that begins with a bracket or a brace is JSON: a document (a list of conversations or prompts, or one
    conversation), or a record a line. In any other each line that is not blank is a prompt. Raises UsageProblem: which
    says the line or the number of the record."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    body = text.strip()
    if body[:1] not in ("{", "["):
        lines = "\n".join(json.dumps({"prompt": line}) if line.strip() else "" for line in text.split("\n"))
        return PromptFile(parse(lines, where, name))
    document = _document(body)
    if document is None:
        suite = parse(text, where, name)
        found = [json.loads(line) for line in body.split("\n") if line.strip()]
    else:
        if not document:
            raise UsageProblem(f"there is no prompt in {where}", "a list of conversations or prompts")
        cases = (case_of(record, n, f"record {n} of {where}") for n, record in enumerate(document, 1))
        suite, found = Suite(name or where, tuple(cases)), document
    return _with_system(suite, found)


def _document(body: str) -> list[Any] | None:
    """The records of a text that is one JSON document; None for lines of JSON."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        return None if "\n" not in body else [found]
    if any(isinstance(item, str) for item in found):
        return [{"prompt": item} for item in found]
    alone = found and all(isinstance(item, dict) and "role" in item for item in found)
    return [{"messages": found}] if alone else found


def _with_system(suite: Suite, records: list[Any]) -> PromptFile:
    """The suite with the system prompt of its conversations, where they all have the same one."""
    logs = [messages(record) for record in records]
    systems = ["\n\n".join(said(log, "system") + said(log, "developer")) if log else "" for log in logs]
    notes = []
    if any(log and said(log, "tool") for log in logs):
        notes.append("results of tools in the chat log are left out")
    if len(set(systems)) > 1:
        notes.append("the conversations of the chat log have different system prompts, which are left out; --system "
                     "sets one")
        return PromptFile(suite, "", tuple(notes))
    return PromptFile(suite, systems[0], tuple(notes))
