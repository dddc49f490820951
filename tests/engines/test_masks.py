"""What each row sees, against a count by hand, and which kinds of layers a configuration has."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.model.masks import additive, spans


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000), length=st.integers(0, 9), fed=st.integers(0, 5), rows=st.integers(1, 9),
    window=st.integers(1, 12), chunk=st.integers(1, 12),
)
def test_masks_say_what_each_row_sees(seed, length, fed, rows, window, chunk):
    rng = random.Random(seed)
    parents = [rng.randrange(-1, row) for row in range(fed + rows)]
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    positions = np.array([length + len(path) - 1 for path in paths])
    seen = np.array([[j in path for j in range(fed + rows)] for path in paths])
    sizes = {"full_attention": None, "sliding_attention": window, "chunked_attention": chunk}
    built = additive(seen[fed:], positions, length, sizes, torch.float32)
    for kind, mask in built.items():
        assert mask.shape == (1, 1, rows, length + fed + rows)
        for row in range(fed, fed + rows):
            own = positions[row]
            visible = {column for column in range(length)} | {length + j for j in paths[row]}
            at = {column: column if column < length else positions[column - length] for column in visible}
            if kind == "sliding_attention":
                visible = {column for column in visible if own - at[column] < window}
            if kind == "chunked_attention":
                visible = {column for column in visible if at[column] // chunk == own // chunk}
            assert {c for c in range(mask.shape[-1]) if mask[0, 0, row - fed, c] == 0} == visible
    alone = additive(seen[fed:], positions, length, {"sliding_attention": window}, torch.float32)
    assert torch.equal(alone, built["sliding_attention"]), "layers of one kind get one mask"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"full_attention": None}),
        ({"sliding_window": 8}, {"sliding_attention": 8}),
        ({"sliding_window": None, "attention_chunk_size": 8}, {"chunked_attention": 8}),
        ({"layer_types": ["full_attention"] * 2, "sliding_window": 8}, {"full_attention": None}),
        (
            {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
            {"full_attention": None, "sliding_attention": 8},
        ),
        ({"layer_types": ["sliding_attention"], "sliding_window": None}, None),
        ({"layer_types": ["full_attention", "of its own"]}, None),
        ({"window_size": 8}, None),
        ({"max_window_layers": 28, "sliding_window": None}, {"full_attention": None}),
    ],
)
def test_the_kinds_of_layers_are_read_from_the_configuration(config, expected):
    assert spans(SimpleNamespace(**config)) == expected
