"""Rows of questions and answers as chats: a corpus whose documents are what the model reads and writes in one, so that
the hidden states of a dense datastore are states that the chat really has (DReSD keeps prompts with responses)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engines.datastores.building.corpus import Document
from engines.datastores.building.hub_dataset import as_text
from engines.errors import UsageProblem
from engines.folders import json_lines, read_input

_LARGEST = 256 << 20  # bytes of a file of rows


class Rows(Protocol):
    """Where rows come from; ``identity``, ``total`` and ``unit`` as a ``corpus.Corpus`` has them."""

    identity: dict[str, Any]
    total: int | None
    unit: str

    def rows(self, resume: Any = None) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
        """A name for people, the row, and the JSON value to pass as ``resume`` to continue after it."""


class JsonRows:
    """The lines of a file as ``Rows``, each a JSON object. Raises UsageProblem: the file is unreadable, too large, or a
    line is no JSON object; the message names the line."""

    unit = "rows"

    def __init__(self, path: Path) -> None:
        content, text = read_input(path, _LARGEST, "a file of JSON lines")
        self._name = path.name
        like = 'such a line is like {"prompt": "What is a tree?", "answer": "A plant."}'
        self._rows = [row for _, row in json_lines(text, path, "is not a JSON object", like, dict)]
        self.total = len(self._rows)
        self.identity = {"kind": "rows", "rows": self.total, "digest": hashlib.sha256(content).hexdigest()}

    def rows(self, resume: int | None = None) -> Iterator[tuple[str, Mapping[str, Any], int]]:
        """See ``Rows``."""
        for number in range(resume or 0, self.total):
            yield f"{self._name} row {number + 1}", self._rows[number], number + 1


class Chats:
    """A ``corpus.Corpus`` of chats, a row each: the last column is the answer, what the others hold is the question.

    A row without question or answer is left out. Raises UsageProblem for a column that a row of a file lacks.

    Attributes:
        chats: how many there are; None for a dataset of the hub.
        skipped: how many rows are left out, by reason; of a dataset of the hub, which is a stream, it is not known.
    """

    def __init__(self, rows: Rows, columns: Sequence[str]) -> None:
        self._rows, self._columns = rows, tuple(columns)
        self.total, self.unit = rows.total, rows.unit
        self.identity = {"kind": "chats", "columns": list(columns), "rows": rows.identity}
        in_file = isinstance(rows, JsonRows)
        known = rows.rows() if in_file else ()
        empty = sum(self._chat(name, row) is None for name, row, _ in known)
        self.chats = rows.total - empty if in_file else None
        self.skipped = {"without question or answer": empty} if empty else {}

    def context(self, document: int) -> tuple[int, ...]:
        """What the model reads before a document: nothing, it begins where the chat does."""
        return ()

    def documents(self, resume: Any = None) -> Iterator[tuple[Document, Any]]:
        """See ``Corpus``. Raises UsageProblem for a column that a row lacks."""
        for name, row, after in self._rows.rows(resume):
            if (chat := self._chat(name, row)) is not None:
                yield Document(name, chat=chat), after

    def _chat(self, name: str, row: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
        """The chat of a row; None without question or answer. Raises UsageProblem for a column that it lacks."""
        missing = [column for column in self._columns if column not in row]
        if missing:
            known = ", ".join(map(str, row))[:200]
            raise UsageProblem(f"{name} has no column {missing[0]!r}", f"its columns are {known}")
        *asked, answer = (as_text(row[column]).strip() for column in self._columns)
        question = "\n".join(filter(None, asked))
        return (("user", question), ("assistant", answer)) if question and answer else None
