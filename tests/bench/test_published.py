"""The published figures: what the file says is whole, of engines and options that there are, and said once."""

from __future__ import annotations

import json

import pytest

from engines.bench import published
from engines.bench.published import figures


def test_each_is_said_once_and_says_where_it_is_from():
    assert all(f.model and f.data and f.source and f.value > 0 for f in figures())
    told = [(f, tuple(sorted(f.options.items()))) for f in figures()]
    assert len(set(told)) == len(told) > 500


@pytest.mark.parametrize("source, engine, count", [
    ("ADMG (Metel et al. 2024), Table 3", "admg", 8), ("ADMG (Metel et al. 2024), Table 4", "draft-verify", 2),
    ("REST (He et al. 2024), Table 1", "rest", 16), ("REST (He et al. 2024), Table 3", "rest", 8),
    ("DReSD (Gritta et al. 2025), Table 5", "dresd", 8), ("DReSD (Gritta et al. 2025), Table 6", "dresd", 24),
    ("DReSD (Gritta et al. 2025), Table 8", "dresd", 4), ("RASD, Table 1", "rasd", 40), ("RASD, Table 2", "rest", 24),
])  # fmt: skip
def test_tables_are_whole(source, engine, count):
    """As many numbers as the paper's table has in the rows of the method, at every temperature."""
    assert len([f for f in figures() if f.source == source and f.engine == engine]) == count


def test_speed_ups_are_the_ratios_of_the_times_beside_them():
    """The sources check themselves: REST gives both, and DReSD's tokens/s are rounded."""
    checked = 0
    for f in figures():
        if f.measure == "ms/token" and f.engine != "autoregressive":
            same = [g for g in figures() if (g.source, g.model, g.temperature) == (f.source, f.model, f.temperature)]
            base = [g.value for g in same if g.engine == "autoregressive" and g.measure == f.measure]
            ups = [g.value for g in same if (g.engine, g.variant, g.measure) == (f.engine, f.variant, "speed-up")]
            if base and ups:
                checked += 1
                assert base[0] / f.value == pytest.approx(ups[0], abs=0.011)
    assert checked > 20


def test_a_lane_is_as_published_with_the_papers_options_only():
    shaped = next(f for f in figures() if f.options == {"drafts": 3, "length": 20})
    assert shaped.is_of("dresd", {"budget": "paper", "drafts": 3, "length": 20}) and not shaped.is_of("rest", {})
    assert not shaped.is_of("dresd", {"budget": "paper"}) and not shaped.is_of("dresd", {"drafts": 3, "length": 20})
    rules = next(f for f in figures() if f.engine == "admg" and f.measure == "speed-up")
    assert rules.is_of("admg", {}, "some/model") and not rules.is_of("admg", {}, "smollm2")  # which has a preset


def test_chosen_by_engine_in_the_order_of_the_engines():
    wanted = published.of(["rest", "pld", "rest"])
    assert [f.engine for f in wanted] == sorted((f.engine for f in wanted), reverse=True)
    assert published.of(["hybrid"]) == [] and len(published.sources(wanted)) > 2


@pytest.mark.parametrize("row, said", [
    ({"values": {"MAR": 33.4}}, "MAR of 33.4"), ({"values": {"speed": 2}}, "Invalid enum value"),
    ({"values": {"tau": 1}, "colour": "red"}, "unknown fields: colour"), ({"values": {"tau": "1"}}, "Expected `float`"),
    ({"values": {"tau": 1}, "options": {"colour": 1}}, "no option 'colour'"), ({"values": {"tau": 0}}, "can't be"),
])  # fmt: skip
def test_what_is_wrong_in_the_file_is_refused(row, said, tmp_path, monkeypatch):
    table = {"engine": "rest", "model": "m", "data": "d", "hardware": "h", "source": "s", "rows": [row]}
    monkeypatch.setattr(published, "FILE", tmp_path / "published.toml")
    published.FILE.write_text(f"table = [{in_toml(table)}]")
    with pytest.raises(Exception, match=said):
        figures.__wrapped__()  # the file that ships is read once


def in_toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {in_toml(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(in_toml, value))}]" if isinstance(value, list) else json.dumps(value)
