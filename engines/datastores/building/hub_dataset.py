"""A dataset of the hub as a corpus: each row is a document, streamed through the optional library ``datasets``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import Any

from engines.datastores.building.corpus import Document
from engines.errors import DatastoreProblem, ModelUnavailable, SpecError, UsageProblem, first_line

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_COLUMNS = ("text", "content", "messages", "conversations")  # tried in this order
_TURN_KEYS = ("content", "value")  # of the text of a conversation's turn
_EXTRA = "pip install 'spec-tui[datasets]'"


class HubDataset:
    """Rows of a dataset as a ``corpus.Corpus``. See ``hub_dataset``.

    Args:
        rows: a streamed dataset, with a method ``skip``.
        column: to read.
        identity: see ``Corpus``.
    """

    unit, total = "rows", None

    def __init__(self, name: str, rows: Any, column: str, identity: dict[str, Any]) -> None:
        self._name, self._rows, self._column, self.identity = name, rows, column, identity

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``. Raises DatastoreProblem if the hub stops giving rows."""
        for name, row, number in self.rows(resume):
            yield Document(name, text=as_text(row.get(self._column))), number

    def rows(self, resume: int | None = None) -> Iterator[tuple[str, Mapping[str, Any], int]]:
        """See ``chats.Rows``. Raises as ``documents``."""
        rows, number = iter(self._rows.skip(resume) if resume else self._rows), resume or 0
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # the library and the network may raise anything
                raise DatastoreProblem(
                    f"the rows of {self._name} after {number:,} cannot be read ({first_line(error)})",
                    "the same command goes on from there",
                ) from None
            if row is None:
                return
            number += 1
            yield f"{self._name} row {number}", row, number


def hub_dataset(source: str) -> HubDataset:
    """Open DATASET[:SPLIT][:COLUMN]; the default split is train, the default column the first that holds text.

    Raises:
        UsageProblem: ``datasets`` is not installed; the source is malformed; there is no such column.
        ModelUnavailable: the hub has no such dataset or split, or cannot be reached.
    """
    name, split, column = _parsed(source)
    if find_spec("datasets") is None:
        raise UsageProblem("datasets of the hub need the library datasets, which is not installed", _EXTRA)
    from datasets import load_dataset

    revision = _revision(name)
    try:
        rows = load_dataset(name, split=split, streaming=True, revision=revision)
        first = next(iter(rows), None)
    except Exception as error:
        raise ModelUnavailable(
            f"the dataset {name} cannot be read: {first_line(error)}",
            "check its name and split (hf:OWNER/NAME:SPLIT); one that needs a script can't be used",
        ) from None
    if first is None:
        raise UsageProblem(f"the split {split} of {name} has no rows", "name another split: hf:OWNER/NAME:SPLIT")
    column = _column(name, first, column)
    identity = {"kind": "hub", "dataset": name, "split": split, "column": column, "revision": revision}
    return HubDataset(name, rows, column, identity)


def as_text(value: Any) -> str:
    """The text of a cell: a string, or the turns of a conversation, one after another; "" for anything else."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half a character can't be encoded
    if isinstance(value, Mapping):
        return next((as_text(value[key]) for key in _TURN_KEYS if key in value), "")
    if isinstance(value, Iterable):
        return "\n".join(filter(None, map(as_text, value)))
    return ""


def _parsed(source: str) -> tuple[str, str, str]:
    name, *more = source.split(":")
    if not _NAME.fullmatch(name) or len(more) > 2:
        raise UsageProblem(f"hf:{source[:60]} names no dataset", "like this: hf:OWNER/NAME or hf:OWNER/NAME:train:text")
    split, column = [*more, "", ""][:2]
    return name, split or "train", column


def _column(name: str, row: Mapping[str, Any], column: str) -> str:
    """The column to read. Raises UsageProblem."""
    if column:
        if column in row:
            return column
        raise UsageProblem(f"{name} has no column {column!r}", f"its columns are {', '.join(map(str, row))}"[:300])
    texts = [key for key in chain(_COLUMNS, row) if isinstance(key, str) and key in row and as_text(row[key])]
    if not texts:
        raise UsageProblem(f"{name} has no column of text", f"its columns are {', '.join(map(str, row))}"[:300])
    return texts[0]


def _revision(name: str) -> str:
    """The dataset's current commit: an interrupted build continues with the same rows, or, where there is a newer
    commit, is refused as one of other sources."""
    from engines.hub.hub_api import commit_of_dataset

    try:
        return commit_of_dataset(name)
    except SpecError as error:
        raise ModelUnavailable(f"the dataset {name}: {error.message}", "check its name and the network") from None
