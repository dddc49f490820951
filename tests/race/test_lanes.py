"""How lanes are written, and in which order they run."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import specs
from engines.errors import UsageProblem
from engines.race.lanes import Lane, Race, make_lane, order, parse_lane, parse_lanes
from engines.report import encoding
from engines.request import Request

HELLO = Request((("user", "hello"),))


def value_of(option):
    if option.choices:
        return st.sampled_from(option.choices)
    if option.type == "bool":
        return st.booleans()
    low, high = option.low if option.low is not None else 0, option.high if option.high is not None else 1000
    return st.integers(int(low), int(high)) if option.type == "int" else st.floats(low, high)


@st.composite
def lanes(draw, stores: bool = True):
    spec = draw(st.sampled_from(specs()))
    known = [option for option in spec.options if option.type != "str" or option.choices]
    chosen = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    names = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), max_size=3, unique=True)
    return Lane(spec.id, {o.name: draw(value_of(o)) for o in chosen}, tuple(draw(names)) if stores else ())


@given(lanes())
def test_a_label_is_what_makes_the_lane(lane):
    assert parse_lane(lane.label) == lane == make_lane(lane.engine, lane.given())


@given(st.lists(lanes(stores=False), min_size=1, max_size=6))
def test_a_list_is_its_lanes(some):
    assert parse_lanes([",".join(lane.label for lane in some)]) == tuple(some)
    race = Race(tuple(some), HELLO, (("a", "b"),), 3, audit=True)
    assert encoding.build(Race, encoding.plain(race)) == race
    assert len(set(race.labels)) == len(some)


@given(st.text(alphabet="autoregsiv pld:=,nodes16\0é"))
def test_whatever_is_typed_is_taken_or_refused_in_words(text):
    try:
        assert all(isinstance(lane, Lane) for lane in parse_lanes([text]))
    except UsageProblem as problem:
        assert problem.message and problem.hint


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "names no engine"),
        ("autoregressive,", "names no engine"),
        ("pld:", "not OPTION=VALUE"),
        ("pld:num_tokens", "not OPTION=VALUE"),
        ("num_tokens=3", "not OPTION=VALUE"),
        ("nobody", "there is no engine"),
        ("pld:speed=3", "has no option 'speed'"),
        ("pld:num_tokens=0", "out of range"),
        ("pld:num_tokens=", "not a whole number"),
        ("pld:num_tokens=3:num_tokens=4", "given twice"),
        ("rest:datastore=", "names no datastore"),
    ],
)
def test_mistakes_are_named(text, words):
    with pytest.raises(UsageProblem, match=words):
        parse_lanes([text])


def test_values_hold_commas_and_colons():
    lane = parse_lane(" rest : c=16 : datastore = notes, a:b ,notes")
    assert lane == Lane("rest", {"c": 16}, ("notes", "a:b"))
    assert lane.of(Request((("user", "x"),), "pld", {"num_tokens": 3}, seed=4, datastores=("z",))) == Request(
        (("user", "x"),), "rest", {"c": 16}, seed=4, datastores=("notes", "a:b"), keeps=False
    )
    assert parse_lane("rest").of(Request((("user", "x"),), datastores=("z",))).datastores == ("z",)
    with pytest.raises(UsageProblem, match="names no datastore"):
        parse_lane("rest:datastore=notes,")


def test_the_same_lane_twice_is_numbered():
    race = Race(parse_lanes(["pld,autoregressive,pld"]), HELLO)
    assert race.labels == ("pld #1", "autoregressive", "pld #2") and race.baseline == 1
    assert Race(parse_lanes(["pld,rest"]), HELLO).baseline == 0


@pytest.mark.parametrize(
    "race",
    [
        Race((), HELLO),
        Race((Lane("pld"),), HELLO, repeats=0),
        Race((Lane("pld"),), HELLO, repeats=1.5),
        Race((Lane("pld"),), HELLO, warm_up=-1),
        Race(Lane("pld"), HELLO),
        Race((Lane("pld", {"num_tokens": 0}),), HELLO),
        Race((Lane("pld"),), Request((("system", "x"),))),
        Race((Lane("pld"),), HELLO, (("fine",), ("fine", " "))),
        Race((Lane("pld"),), HELLO, ((),)),
        Race(("pld", "draft"), HELLO),
        Race((Lane("pld"),), "hello"),
        Race((Lane("pld"),), "hello", (("fine",),)),
        Race((Lane("pld"),), HELLO, ("a prompt", "another")),
    ],
)
def test_what_cannot_run_is_refused(race):
    with pytest.raises(UsageProblem):
        race.check()


@given(st.integers(1, 8), st.integers(0, 1000))
def test_the_order_favours_no_lane(lanes, seed):
    turns = [order(lanes, turn, seed) for turn in range(2 * lanes)]
    assert all(sorted(turn) == list(range(lanes)) for turn in turns)
    for there, back in zip(turns[::2], turns[1::2]):  # against a machine that drifts: the same mean place in two turns
        assert [there.index(lane) + back.index(lane) for lane in range(lanes)] == [lanes - 1] * lanes
    for place in range(lanes):  # against a place that is better: each lane is as often there
        assert sorted(turn[place] for turn in turns) == sorted([*range(lanes)] * 2)


def test_the_seed_shuffles():
    orders = {tuple(order(4, 0, random.Random(i).getrandbits(40))) for i in range(40)}
    assert len(orders) > 5 and order(4, 3, 9) == order(4, 3, 9)


def test_an_engines_own_option_may_be_called_model():
    lane = parse_lane("server:url=http://127.0.0.1:8080:model=one of several")
    assert lane.options["model"] == "one of several" and lane.draft_model == "" and parse_lane(lane.label) == lane
