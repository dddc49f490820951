"""From hidden states to keys: against numpy's and torch's own statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engines.datastores.search.reduction import Recipe, Reduction, blocks, fit, moments, to_half
from engines.errors import DatastoreProblem, RunFailed, UsageProblem


def states(rows=3000, width=24, seed=0):
    """Correlated, on different scales, one dimension far from zero, as hidden states of language models are."""
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(rows, 6)) @ random.normal(size=(6, width)) + 0.3 * random.normal(size=(rows, width))
    mixed *= np.exp(random.normal(size=width))
    mixed[:, 3] += 400
    return mixed.astype(np.float32)


def test_moments_are_those_of_numpy():
    sample = states()
    mean, covariance = moments(blocks(sample))
    wide = sample.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-10)
    np.testing.assert_allclose(covariance, np.cov(wide.T, bias=True), rtol=1e-9, atol=1e-12)


@settings(max_examples=30)
@given(npst.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 5)),
                   elements=st.floats(-1e4, 1e4, width=32)), st.integers(1, 40))  # fmt: skip
def test_moments_don_t_depend_on_the_blocks(sample, size):
    whole, parts = moments([sample]), moments(sample[i : i + size] for i in range(0, len(sample), size))
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-2)


def test_keys_are_the_z_norm_then_numpy_s_singular_vectors():
    sample = states()
    keys = fit([sample], Recipe(5, unit_norm=False))(sample)
    wide = sample.astype(np.float64)
    z = (wide - wide.mean(0)) / wide.std(0)
    _, values, vectors = np.linalg.svd(z, full_matrices=False)
    expected = z @ vectors[:5].T
    expected *= np.sign((expected * keys).sum(0))
    np.testing.assert_allclose(keys, expected, atol=2e-3)
    explained = fit([sample], Recipe(5)).arrays()["explained"]
    np.testing.assert_allclose(explained, (values**2 / (values**2).sum())[:5], rtol=1e-4)


def test_components_are_torch_s_up_to_sign():
    torch = pytest.importorskip("torch")
    sample = states()
    mine = fit([sample], Recipe(4, z_norm=False)).arrays()["components"]
    _, _, theirs = torch.pca_lowrank(torch.from_numpy(sample).double(), q=8, niter=8)
    np.testing.assert_allclose(np.abs((mine * theirs[:, :4].numpy()).sum(0)), 1, atol=1e-4)


def test_each_step_is_an_option():
    sample = states()
    plain = fit([sample], Recipe(0, z_norm=False, unit_norm=False))(sample)
    np.testing.assert_array_equal(plain, sample)
    z = fit([sample], Recipe(0, unit_norm=False))(sample)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(0), 1, atol=1e-3)
    centred = fit([sample], Recipe(24, z_norm=False, unit_norm=False))(sample)  # a rotation about the mean
    np.testing.assert_allclose(
        np.linalg.norm(centred, axis=1), np.linalg.norm(sample - sample.mean(0), axis=1), rtol=1e-3
    )
    unit = fit([sample], Recipe(8))(sample)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)
    assert fit([sample], Recipe(500)).width == 24 == Recipe(500).width(24) == Recipe(0).width(24)


def test_the_same_sample_gives_the_same_components_whatever_their_sign():
    sample = states()
    one, other = fit([sample], Recipe(6)), fit([-sample], Recipe(6))
    components = one.arrays()["components"]
    np.testing.assert_allclose(components, other.arrays()["components"], atol=1e-4)
    assert (components[np.abs(components).argmax(0), range(6)] > 0).all()


@pytest.mark.parametrize("recipe", [Recipe(8), Recipe(8, z_norm=False), Recipe(0), Recipe(8, unit_norm=False)])
def test_one_query_is_mapped_as_a_batch_is_and_arrays_bring_the_map_back(recipe):
    sample = states()
    reduction = fit([sample], recipe)
    again = Reduction.of(recipe, reduction.arrays())
    batch = reduction(sample[:50])
    np.testing.assert_array_equal(again(sample[:50]), batch)
    np.testing.assert_allclose([again.one(row) for row in sample[:50]], batch, rtol=1e-4, atol=1e-4)


def test_dimensions_that_never_change_say_nothing():
    sample = states()
    sample[:, 2] = 7
    reduction = fit([sample], Recipe(8))
    moved = sample[:20].copy()
    moved[:, 2] += 1e-4
    assert np.isfinite(reduction(moved)).all()
    np.testing.assert_allclose(reduction.one(sample[0]), reduction(sample[:1])[0], atol=1e-5)
    assert np.isfinite(fit([np.ones((5, 3), np.float32)], Recipe(2))(np.ones((2, 3), np.float32))).all()


def test_what_can_t_be_a_key_is_refused():
    sample = states()
    reduction = fit([sample], Recipe(8))
    for bad in (np.nan, np.inf):
        broken = sample[:3].copy()
        broken[1, 1] = bad
        for attempt in (lambda b=broken: reduction(b), lambda b=broken: reduction.one(b[1]),
                        lambda b=broken: fit([b], Recipe(2))):  # fmt: skip
            with pytest.raises(RunFailed, match="not finite"), np.errstate(all="ignore"):
                attempt()
    damaged = Reduction.of(reduction.recipe, reduction.arrays() | {"mean": np.full(sample.shape[1], np.inf)})
    for attempt in (lambda: damaged(sample[:3]), lambda: damaged.one(sample[0])):
        with pytest.raises(DatastoreProblem, match="damaged"), np.errstate(all="ignore"):
            attempt()
    with pytest.raises(RunFailed, match="7 dimensions"):
        reduction.one(np.zeros(7, np.float32))
    with pytest.raises(RunFailed, match="no hidden states"):
        fit([], Recipe())
    with pytest.raises(UsageProblem):
        Recipe(-1)
    assert to_half(np.array([1e9, -1e9], np.float32)).tolist() == [65504, -65504]
