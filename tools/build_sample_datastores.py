"""Builds sample_datastores/sample: a sparse and dense datastore of the sample model's own answers.

    python tools/build_sample_datastores.py [--work DIR] [--also FILE]...

The prompts are those of tools/sample_prompts.py, the answers greedy, so the same weights give the same store. First it
says how far these prompts are from those that demonstrate or measure (--also: JSON lines of a benchmark that lies
elsewhere); a prompt that is too near ends it. An interrupted build is taken up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import sample_prompts  # noqa: E402

if TYPE_CHECKING:
    from engines.runtime import Runtime

NAME = "sample"
MAX_NEW_TOKENS = 192  # the model's longer answers repeat themselves


def too_near(also: list[Path]) -> int:
    """Print the overlap with prompts that demonstrate or measure. Returns how many prompts have one."""
    prompts, measured = sample_prompts.prompts(), sample_prompts.measured(*also)
    found = sample_prompts.overlap(prompts, measured)
    print(f"{len(prompts)} prompts; {len(measured)} prompts demonstrate or measure; {len(found)} pairs share "
          f"{sample_prompts.SHARED_WORDS} consecutive words, or all of a shorter one")  # fmt: skip
    for mine, theirs in found:
        print(f"  {mine!r} and {theirs!r} ({measured[theirs]})")
    return len(found)


def build(runtime: Runtime, work: Path) -> Path:
    """Build in the folder ``work``, then put the result in its place. Returns that."""
    from engines.datastores.building.build_spec import ANSWERS, BuildSpec
    from engines.datastores.building.build_spec import build as build_datastore
    from engines.datastores.building.model_answers import ModelAnswers
    from engines.datastores.storage import catalog
    from spec_tui.cli.stage_progress import StageProgress

    os.environ["SPEC_TUI_DATA_DIR"] = str(work)
    catalog.sample_datastores = lambda: None  # the one that is there must not be in the way of the new one
    spec = BuildSpec(NAME, (ANSWERS,), "both", max_new_tokens=MAX_NEW_TOKENS)
    corpus = ModelAnswers(runtime, sample_prompts.prompts(), spec)
    with StageProgress() as progress:
        store = build_datastore(spec, corpus, runtime.tokenizer, runtime, progress.show, replace=True)
    target = ROOT / "sample_datastores" / NAME
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store.folder, target)
    facts = store.manifest
    print(f"{facts.documents} answers, {facts.tokens:,} tokens, {facts.keys:,} keys, {facts.size / 1e6:.1f} MB")
    return target


def main() -> int:
    from platformdirs import user_cache_path

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = user_cache_path("spec-tui", appauthor=False) / "sample_datastores"
    parser.add_argument("--work", type=Path, default=work, help=f"where it is built (default {work})")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="FILE")
    arguments = parser.parse_args()
    if too_near(arguments.also):
        return 1
    from engines import load

    build(load("sample"), arguments.work)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
