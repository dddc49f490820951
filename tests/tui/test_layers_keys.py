"""The layers panel from the outside: keys in, the next request's options out; it comes and goes with the engine."""

from __future__ import annotations

from engines.methods import find
from engines.report.events import Failed, Layers, Prefilled
from engines.request import Request
from spec_tui.tui.layers_view import removed
from tests.tui.fakes import COSINES

ADMG = Request((), "admg")


def panel(s) -> str:
    return "\n".join(s.chat.query_one("#layers").text_rows())


def shown(s) -> set[str]:
    return {name for name in ("tree", "layers", "speed") if s.chat.query_one(f"#{name}").is_on_screen_tree}


async def press(s, *keys: str) -> None:
    await s.pilot.press(*keys)
    await s.settle()


async def test_it_comes_and_goes_with_the_engine(session):
    async with session() as s:
        assert shown(s) == {"tree", "speed"}
        await s.ask("/engine admg", feed=0)
        assert shown(s) == {"tree", "layers", "speed"} and "nothing is measured yet" in panel(s)
        await s.ask("Merge two lists.")
        assert "skipped" in panel(s) and "draft pass" not in panel(s)  # the first look
        await press(s, "escape", "x")
        sizes = {name: s.chat.query_one(f"#{name}").size.height for name in ("tree", "layers", "speed")}
        assert sizes["tree"] >= 6 and sizes["layers"] >= 13 and sizes["speed"] >= 12
        assert "skipped" in panel(s) and "draft pass" in panel(s)
        await s.ask("/engine pld", feed=0)
        assert shown(s) == {"tree", "speed"}


async def test_l_goes_there_and_from_there_hides_it(session):
    async with session(request=ADMG) as s:
        await s.ask("Merge two lists.")
        await press(s, "escape", "l")
        assert s.chat.focused.id == "layers"
        await press(s, "l")
        assert shown(s) == {"tree", "speed"} and s.chat.focused is s.chat.transcript
        await press(s, "l")
        assert "layers" in shown(s) and s.chat.focused.id == "layers"
        await press(s, "t", "s")
        assert shown(s) == {"layers"}
        await press(s, "l")
        assert shown(s) == set() and not s.chat.query_one("#stack").display
        await press(s, "t", "s")
        assert shown(s) == {"tree", "speed"}
        await s.ask("/layers", feed=0)
        await press(s, "m")
        assert shown(s) == {"layers"} and all(f"{c:.3f}"[1:] in panel(s) for c in COSINES)
        await press(s, "escape")
        assert shown(s) == {"tree", "layers", "speed"}


async def test_alpha_m_and_n_move_by_key_and_take_effect_on_the_next_answer(session):
    async with session(request=ADMG) as s:
        await s.ask("Merge two lists.")
        used = s.chat.shown_run()[0].prefilled.layers
        await press(s, "escape", "l", "right", "right", "up", "plus", "plus", "minus")
        assert s.client.requests == [s.chat.session.last.request]  # nothing was generated
        options = s.chat.session.settings.options("admg")
        assert (options["alpha"], options["m"], options["n"]) == (0.991, 4, 3)
        assert "next: α 0.991  m 4  n 3" in panel(s) and "skipped next" in panel(s)
        preview = find("admg").layer_rules(used, options)
        assert removed(preview) != removed(used)
        await s.ask("Again.")
        asked = s.client.requests[-1].options
        assert (asked["alpha"], asked["m"], asked["n"]) == (0.991, 4, 3)
        assert s.chat.shown_run()[0].prefilled.layers.attention == preview.attention
        assert "next" not in panel(s)


async def test_a_key_of_a_rule_that_is_off_says_so(session):
    async with session(request=ADMG) as s:
        await s.ask("/set cosine=false", feed=0)
        await s.ask("Merge two lists.")
        await press(s, "escape", "l", "left")
        assert "alpha belongs to a rule that is off: /set cosine=true" in s.status
        await press(s, "up")
        assert "is off" not in s.status


async def test_keys_move_rules_while_an_answer_streams(session):
    async with session(request=ADMG) as s:
        await s.ask("Merge two lists.", feed=9)
        s.chat.query_one("#layers").focus()
        await press(s, "left")
        assert "next: α 0.98 " in panel(s) and "answering" in s.status
        await press(s, *["minus"] * 3)
        assert "0..1000" in s.status and s.chat.session.settings.options("admg")["n"] == 0
        s.client.feed()
        await s.settle()
        assert s.client.requests[0].options["alpha"] == 0.985 and "next: α 0.98 " in panel(s)


async def test_enter_measures_what_is_typed_beside_the_conversation(session):
    async with session(request=ADMG) as s:
        s.chat.prompt.put("Merge two lists.")
        await press(s, "escape", "l", "enter")
        asked = s.client.requests[-1]
        assert asked.conversation == (("user", "Merge two lists."),) and asked.max_new_tokens == 1
        assert asked.engine == "admg" and "measuring the layers" in s.status
        s.client.feed()
        await s.settle()
        assert not s.chat.session.turns and s.chat.prompt.text == "Merge two lists."
        assert "nothing was added" in s.status and "skipped: 6 attention and 3 MLP of 12" in panel(s)
        await press(s, "right")
        assert "next: α 0.99 " in panel(s)
        await press(s, "enter", "escape")
        assert s.client.cancels == 1 and not s.chat.session.busy and not s.chat.session.turns


async def test_enter_measures_the_last_prompt_where_none_is_typed(session):
    async with session(request=Request((), "pld")) as s:
        await s.ask("One.")
        await s.ask("Two.")
        await s.ask("/engine admg", feed=0)
        s.chat.query_one("#layers").focus()
        await press(s, "enter")
        assert s.client.requests[-1].conversation == s.client.requests[-2].conversation
        s.client.feed()
        await s.settle()
        assert len(s.chat.session.turns) == 2 and not s.chat.session.same_text and "skipped" in panel(s)


async def test_what_cannot_be_measured_is_told(session):
    async with session(request=ADMG) as s:
        s.chat.query_one("#layers").focus()
        await press(s, "enter")
        assert not s.client.requests and "Type a prompt first" in s.status
        s.chat.prompt.put("Hello")
        await press(s, "enter")
        s.client.say(Failed("the model is too small", "take another"))
        await s.settle()
        assert "too small" in s.notice and not s.chat.session.busy and "measured" not in s.status
        s.chat.prompt.focus()
        await s.ask("/engine pld", feed=0)
        await press(s, "escape", "escape", "l", "enter")
        assert "/engine admg" in s.status
        await press(s, "right")
        assert "/engine admg" in s.status and not s.chat.session.settings.given


async def test_in_one_column_l_enlarges_it_and_its_keys_work(session):
    async with session(size=(80, 24), request=ADMG) as s:
        await s.ask("Merge two lists.")
        await press(s, "escape", "l")
        assert shown(s) == {"layers"} and not s.chat.query_one("#left").display
        assert s.chat.query_one("#layers").size.height >= 19 and all(f"{c:.3f}"[1:] in panel(s) for c in COSINES)
        await press(s, "right")
        assert "next: α 0.99 " in panel(s)
        await press(s, "escape")
        assert s.chat.query_one("#left").display


async def test_the_cosines_measured_last_stay_for_previews_when_another_engine_answers(session):
    async with session(request=ADMG) as s:
        await s.ask("One.")
        await s.ask("/engine pld", feed=0)
        await s.ask("Two.")
        await s.ask("/engine admg", feed=0)
        assert "of 12" in panel(s) and "an answer measures whether" in panel(s)  # of this run nothing is known


async def test_cosines_of_one_engine_serve_the_preview_after_another(session):
    """A run whose engine measures none, between."""
    async with session(request=ADMG) as s:
        await s.ask("One.")
        cosines = s.chat.session.layers
        await s.ask("Two.", feed=1)
        event = s.client.pending.popleft()
        fixed = Layers(("search",) * 12, ("",) * 12)
        s.client.say(Prefilled(event.prompt_tokens, 0, 0.1, event.first, 3, fixed))
        s.client.feed()
        await s.settle()
        assert s.chat.session.layers is cosines
        assert "skipped next: 12→6 attention and 0→3 MLP of 12" in panel(s)


async def test_layers_without_cosines_and_odd_ones_are_drawn(session):
    async with session(request=ADMG) as s:
        await s.ask("One.", feed=1)
        event = s.client.pending.popleft()
        bare = Layers(("", "search", ""), ("", "", ""))
        s.client.say(Prefilled(event.prompt_tokens, 0, 0.1, event.first, 3, bare))
        s.client.feed()
        await s.settle()
        assert "of 3" in panel(s)
