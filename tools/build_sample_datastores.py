"""Builds the datastores that ship: of the sample model's own answers, and of smollm2's.

    python tools/build_sample_datastores.py [NAME]... [--work DIR] [--also FILE]... [--threads N]

The answers are greedy, so the same weights give the same store: those that are in the datastore of the model's name
already are read there, not made again. First the tool says how far the prompts are from those that demonstrate or
measure (--also: JSON lines of a benchmark that lies elsewhere); a prompt that is too near ends it. An interrupted build
is taken up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import chat_prompts  # noqa: E402
import sample_prompts  # noqa: E402

from engines.datastores.building.corpus import Document  # noqa: E402
from engines.datastores.building.model_answers import ModelAnswers, read_prompts  # noqa: E402
from engines.datastores.storage.datastore import Documents, Store  # noqa: E402
from engines.reproduce.questions import STORE_PROMPTS  # noqa: E402

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.runtime import Runtime


@dataclass(frozen=True)
class Shipped:
    """A datastore that ships.

    Attributes:
        model: whose answers it holds.
        prompts: what is asked.
        max_new_tokens: of each answer.
        kind: "sparse", "dense" or "both".
        shared_words: a prompt that shares so many consecutive words with one that demonstrates or measures is too near.
    """

    name: str
    model: str
    prompts: Callable[[], list[str]]
    max_new_tokens: int
    kind: str
    shared_words: int

    def overlap(self, others: dict[str, str]) -> list[tuple[str, str]]:
        """Pairs of a prompt of this datastore and one of ``others`` that is too near."""
        return sample_prompts.overlap(self.prompts(), others, self.shared_words)


def smollm2_prompts() -> list[str]:
    """The prompts of engines/reproduce/store_prompts.txt."""
    return read_prompts(STORE_PROMPTS)


def every_smollm2_prompt() -> list[str]:
    """Those, and the templates of tools/chat_prompts.py."""
    return list(dict.fromkeys([*smollm2_prompts(), *chat_prompts.prompts()]))


STORES = {
    store.name: store
    for store in (
        # The sample model's longer answers repeat themselves.
        Shipped("sample", "sample", lambda: sample_prompts.prompts(), 192, kind="both",
                shared_words=sample_prompts.SHARED_WORDS),
        Shipped("smollm2", "smollm2", every_smollm2_prompt, 200, kind="sparse", shared_words=chat_prompts.SHARED_WORDS),
        # Every third: with all of them (62 MB) drafts are no longer on the showcase, with every sixth shorter.
        Shipped("smollm2-dense", "smollm2", lambda: every_smollm2_prompt()[1::3], 200, kind="dense",
                shared_words=chat_prompts.SHARED_WORDS),
    )
}


class KeptAnswers(ModelAnswers):
    """The model's answers; those that a datastore of the same model's answers holds already are read there."""

    def __init__(self, folder: Path, runtime: Runtime, prompts: list[str], spec: BuildSpec) -> None:
        super().__init__(runtime, prompts, spec)
        self._kept: dict[str, list[int]] = {}
        if folder.is_dir():
            store = Store(folder)
            documents, tokens = Documents(store), store.array("tokens")
            ours = self.identity | {name: None for name in ("prompts", "digest")}
            if store.manifest.parameters["sources"] | {name: None for name in ("prompts", "digest")} == ours:
                for begin, end in map(documents.bounds, range(len(documents))):
                    self._kept[documents.place(begin).source] = tokens[begin:end].tolist()

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``."""
        for i in range(resume or 0, self.total):
            kept = self._kept.get(self._prompts[i])
            yield (Document(self._prompts[i], tokens=kept), i + 1) if kept else next(super().documents(i))


def too_near(store: Shipped, also: list[Path]) -> int:
    """Print the overlap with prompts that demonstrate or measure. Returns how many prompts have one."""
    measured = sample_prompts.measured(*also)
    found = store.overlap(measured)
    print(f"{store.name}: {len(store.prompts())} prompts; {len(measured)} prompts demonstrate or measure; {len(found)} "
          f"pairs share {store.shared_words} consecutive words, or all of a shorter one")  # fmt: skip
    for mine, theirs in found:
        print(f"  {mine!r} and {theirs!r} ({measured[theirs]})")
    return len(found)


def build(store: Shipped, runtime: Runtime, work: Path) -> Path:
    """Build in the folder ``work``, then put the result in its place. Returns that."""
    from engines.datastores.building.build_spec import ANSWERS, BuildSpec
    from engines.datastores.building.build_spec import build as build_datastore
    from engines.datastores.storage import catalog
    from spec_tui.cli.status_line import StageProgress

    os.environ["SPEC_TUI_DATA_DIR"] = str(work)
    catalog.sample_datastores = lambda: None  # the one that is there must not be in the way of the new one
    target = ROOT / "sample_datastores" / store.name
    spec = BuildSpec(store.name, (ANSWERS,), store.kind, max_new_tokens=store.max_new_tokens)
    corpus = KeptAnswers(target.with_name(store.model), runtime, store.prompts(), spec)
    with StageProgress() as progress:
        built = build_datastore(spec, corpus, runtime.tokenizer, runtime, progress.show, replace=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(built.folder, target)
    facts = built.manifest
    print(f"{facts.documents} answers, {facts.tokens:,} tokens, {facts.keys:,} keys, {facts.size / 1e6:.1f} MB")
    return target


def main() -> int:
    from platformdirs import user_cache_path

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = user_cache_path("spec-tui", appauthor=False) / "sample_datastores"
    parser.add_argument("names", nargs="*", choices=STORES, metavar="NAME", help="default: all")
    parser.add_argument("--work", type=Path, default=work, help=f"where it is built (default {work})")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--threads", type=int, help="default: what a short measurement finds best")
    arguments = parser.parse_args()
    stores = [STORES[name] for name in arguments.names or STORES]
    if any([too_near(store, arguments.also) for store in stores]):
        return 1
    from engines import load

    # Before the build moves the folder of the user's data.
    runtimes = [(store, load(store.model, threads=arguments.threads)) for store in stores]
    for store, runtime in runtimes:
        build(store, runtime, arguments.work)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
