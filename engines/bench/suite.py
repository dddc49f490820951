"""What a benchmark asks: prompts by task, as lines of JSON, Spec-Bench's question file among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines.errors import UsageProblem
from engines.folders import json_lines

SHAPE = 'a line is {"prompt": "..."}, {"turns": ["...", ...]} or {"messages": [...]} as OpenAI has them'
_SUITE_SHAPE = SHAPE + ', with a "category" where there are several tasks'
SHIPPED = Path(__file__).with_name("suite.jsonl")
BY_NAME = {"coding": Path(__file__).with_name("coding.jsonl")}
"""Other suites that ship: coding tasks of three kinds, for a model that writes code."""
MULTI_TURN, PLAIN = "multi-turn", "prompts"
"""The cases of several turns, whatever their category, where tasks are chosen; those without a category."""
_NAMES = {"summarization": "summary", "mt_bench": MULTI_TURN}


@dataclass(frozen=True, slots=True)
class Case:
    """One question: its turns, the task it belongs to, and its id (the file's, else the number of its line)."""

    task: str
    turns: tuple[str, ...]
    id: str

    @property
    def names(self) -> tuple[str, ...]:
        """By which it can be asked for: its task, and that it has several turns."""
        return (self.task, MULTI_TURN) if len(self.turns) > 1 else (self.task,)


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of a benchmark, under a name."""

    name: str
    cases: tuple[Case, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order in which they first come."""
        return tuple(dict.fromkeys(case.task for case in self.cases))

    @property
    def prompts(self) -> tuple[tuple[str, ...], ...]:
        """The turns of each case, as a race takes them."""
        return tuple(case.turns for case in self.cases)

    @property
    def places(self) -> tuple[tuple[Case, int], ...]:
        """The case and the turn (from 0) of each prompt as a race numbers them: every turn is one."""
        return tuple((case, turn) for case in self.cases for turn in range(len(case.turns)))

    def numbers(self, task: str) -> tuple[int, ...]:
        """The numbers of a task's prompts in a race."""
        return tuple(number for number, (case, _) in enumerate(self.places) if case.task == task)

    def limited(self, most: int) -> Suite:
        """At most so many cases of each task, evenly spread over those that it has."""
        places = [[n for n, case in enumerate(self.cases) if case.task == task] for task in self.tasks]
        kept = sorted(n for of_task in places for n in _spread(of_task, most))
        return replace(self, cases=tuple(self.cases[n] for n in kept))

    def of_tasks(self, tasks: Iterable[str]) -> Suite:
        """The cases of these tasks, of all where none is named; "multi-turn" names all of several turns, too. Raises
        UsageProblem: it has no such task."""
        wanted = frozenset(tasks)
        if missing := wanted.difference(*(case.names for case in self.cases)):
            raise UsageProblem(f"there is no question of the task {min(missing)!r} in {self.name}",
                               f"its tasks are {', '.join(self.tasks)}")
        return self.where(lambda case: not wanted or not wanted.isdisjoint(case.names))

    def where(self, wanted: Callable[[Case], bool]) -> Suite:
        """The cases that are wanted."""
        return replace(self, cases=tuple(filter(wanted, self.cases)))


def shipped() -> Suite:
    """The suite that ships, in our own words."""
    return parse(SHIPPED.read_text("utf-8"), SHIPPED.name, "spec-tui's own")


def by_name(path: Path) -> Suite | None:
    """The other suite that ships under that name; None where there is none, or a file of that name."""
    place = None if os.path.exists(path) else BY_NAME.get(str(path))
    return parse(place.read_text("utf-8"), place.name, f"spec-tui's {path}") if place is not None else None


def parse(text: str, where: str, name: str = "") -> Suite:
    """The suite of a file's text, JSON in each line that is not blank; ``where`` names the file in messages. Raises
    UsageProblem, with the line: not of ``SHAPE``; or without any line."""
    lines = json_lines(text.removeprefix("\ufeff"), where, "is not JSON", SHAPE)  # some editors begin with a mark
    cases = [case_of(record, number, f"line {number} of {where}") for number, record in lines]
    if not cases:
        raise UsageProblem(f"there is no prompt in {where}", SHAPE)
    return Suite(name or where, tuple(cases))


def case_of(record: Any, number: int, where: str) -> Case:
    """The case of a record of a file. Raises UsageProblem: it has no prompt, or a category that is no name."""
    turns: Any = None
    if isinstance(record, dict):
        log = messages(record)
        turns = record["turns"] if "turns" in record else [record.get("prompt")] if log is None else said(log, "user")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise UsageProblem(f"{where} has no prompt", SHAPE)
    category = record.get("category", record.get("task", PLAIN))
    if not isinstance(category, str) or not category.strip():
        raise UsageProblem(f"{where} has a category that is no name", _SUITE_SHAPE)
    known = record.get("question_id", record.get("id"))
    name = category.strip()
    return Case(_NAMES.get(name, name), tuple(turns), str(known) if isinstance(known, int | str) else str(number))


def messages(record: dict[str, Any]) -> list[Any] | None:
    """The messages of a conversation, or of a request in a batch file, as OpenAI writes them; None where there are
    none."""
    holder = record if "messages" in record else record.get("body")
    found = holder.get("messages") if isinstance(holder, dict) else None
    return found if isinstance(found, list) else None


def said(log: list[Any], role: str) -> list[str]:
    """What one role says in these messages, in order; parts that are no text (images) are left out."""
    texts = []
    for message in log:
        if isinstance(message, dict) and message.get("role") == role:
            content = message.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            texts.append("".join(part["text"] for part in parts
                                 if isinstance(part, dict) and isinstance(part.get("text"), str)))
    return [text for text in texts if text.strip()]


def _spread(places: list[int], most: int) -> Iterable[int]:
    step = max(1.0, len(places) / most)
    return [places[int(i * step)] for i in range(min(most, len(places)))]
