"""The heads that ship: they fit their targets, are taken by themselves, and draft what is accepted now and then."""

from __future__ import annotations

import pytest

from engines import Request, measure
from engines.folders import sample_heads
from engines.heads.find_heads import at_hand

_LARGEST = 12_000_000  # bytes


def test_each_is_small_and_named_in_the_readme():
    ships = [head for head in at_hand() if head.ships]
    readme = (sample_heads() / "README.md").read_text("utf-8")
    assert ships
    for head in ships:
        assert sum(file.stat().st_size for file in head.folder.iterdir()) <= _LARGEST
        assert f"`{head.name}`" in readme and head.target_fingerprint


@pytest.mark.parametrize("options", [{"budget": "paper"}, {"budget": "paper", "shape": "tree"}])
def test_the_sample_targets_head_is_taken_and_accepted(sample, options):
    assert sample.ready.head == "sample" and sample.ready.head_price
    request = Request((("user", "What is a tree?"),), "eagle", options, max_new_tokens=60)
    metrics = measure(list(sample.run(request)))
    assert metrics.accepted > 0
    assert measure(list(sample.run(request))).accepted == metrics.accepted
