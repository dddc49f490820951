"""The glossary: one key from everywhere; every mark has one meaning."""

from __future__ import annotations

from pathlib import Path

from textual.screen import Screen

from engines.methods import specs
from spec_tui.learn.glossary_entries import entries, markdown, meaning, parts
from spec_tui.present import token_styles
from spec_tui.present.token_styles import GLYPHS
from spec_tui.session.settings import SAMPLING
from spec_tui.tui.actions import HasActions
from spec_tui.tui.screens.glossary import GlossaryScreen, search
from spec_tui.tui.screens.models import TITLES
from tests.tui.test_keys import everyone


def shown(screen: GlossaryScreen) -> str:
    return str(screen.query_one("#text").content)


async def test_one_key_opens_it_on_every_screen_and_typing_searches(session):
    async with session() as s:
        await s.ask("one")
        for opened in ((), ("f1",), ("escape", "full_stop"), ("escape", "r"), ("escape", "p")):
            await s.pilot.press(*opened)
            await s.pilot.pause()
            below = s.app.screen
            await s.pilot.press("f12")
            await s.pilot.pause()
            assert isinstance(s.app.screen, GlossaryScreen)
            await s.pilot.press(*"kv c")
            await s.pilot.pause()
            assert "KV cache" in shown(s.app.screen) and "sublayer" not in shown(s.app.screen)
            await s.pilot.press("f12", "escape")
            assert s.app.screen is below


async def test_a_question_mark_opens_the_entry_of_what_the_cursor_is_on(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "right")
        kind = s.chat.session.turns[0].run.tokens[s.chat.transcript.cursor[1]].kind
        for opened in (None, "enter", "h", "ctrl+o", "o", "ctrl+e", "d", "p", "w", "e", "full_stop"):
            if opened:
                await s.pilot.press(opened)
                await s.pilot.pause()
            word = s.app.screen.word_here if opened else kind
            await s.pilot.press("question_mark")
            await s.pilot.pause()
            assert isinstance(s.app.screen, GlossaryScreen), opened
            assert word and word in shown(s.app.screen).splitlines()[0], opened
            await s.pilot.press("escape", *["escape"] * (opened is not None))


def test_every_screen_has_a_word_for_what_the_cursor_is_on():
    """Help and glossary are what the key leads to; a form is edited on the screen of a base class."""
    screens = {host for host in everyone() if issubclass(host, Screen)}
    without = {screen.__name__ for screen in screens if screen.word_here is HasActions.word_here}
    assert without == {"SpecModal", "DescribedModal", "ListScreen", "PagedModal", "TextModal", "HelpScreen",
                       "GlossaryScreen"}


def test_engines_and_their_options_are_found_too():
    assert all(next(iter(search(spec.id))).lower().startswith(spec.id) for spec in specs())
    assert {f"{option.name} of {spec.id}" for spec in specs() for option in spec.options} <= set(search(""))


def test_every_word_that_a_place_names_is_an_entry():
    from spec_tui.tui.screens import step

    named = {host.word_here for host in everyone() if isinstance(getattr(host, "word_here", None), str)}
    assert {"t(n)", "lane", "sublayer", "draft tree"} <= named
    named |= {*step._WORDS.values(), *TITLES.values(), "race", "conversation"}
    assert named | {"accepted", "corrected", "bonus", "target token"} <= set(entries())


async def test_the_command_opens_it_and_what_is_not_there_is_said(session):
    async with session(size=(80, 24)) as s:
        await s.ask("/glossary", feed=0)
        await s.pilot.press(*"xyzzy")
        await s.pilot.pause()
        assert "Nothing here is called ‹xyzzy›" in shown(s.app.screen)


def test_the_options_of_sampling_are_there():
    assert {"min_p", "repetition_penalty", "no_repeat_ngram_size", "--strict"} <= set(entries())
    assert {option.name for option in SAMPLING} <= set(entries())


def test_what_heads_a_column_or_a_figure_is_there():
    from spec_tui.present import race_text
    from spec_tui.tui.screens import step

    heads = {value.title for name in vars(race_text) for value in _columns(getattr(race_text, name))}
    assert {"of path", "tokens/step"} <= heads and heads <= set(entries())
    assert set(step._FIGURES) <= set(entries())


def test_what_models_datastores_and_forecasts_are_described_with_is_there():
    models = {
        "parameters", "architecture", "stored as", "fits", "vocabulary", "GGUF", "weights as stored", "taps", "head",
    }
    datastores = {"sparse", "dense", "keys", "MRR", "recall", "document"}
    forecasts = {"break-even tokens", "break-even acceptance", "forecast tokens", "forecast speed-up", "ms per round",
                 "time per round", "accepted of judged", "draft pass", "agreement"}
    assert models | datastores | forecasts <= set(entries())


def _columns(value) -> list:
    return [one for one in value if type(one).__name__ == "Column"] if isinstance(value, list | tuple) else []


def test_words_symbols_and_marks_are_found_by_name_first():
    assert next(iter(search("m"))) == "tokens per verify step, M"
    known = {name for names in search("") for name in names.split(", ")}
    assert known >= set(GLYPHS) | set(entries())
    assert "t(n)" in next(iter(search(" T(N) "))) and "path acceptance" in next(iter(search("of path")))


def test_the_document_is_made_from_the_same_source():
    assert (Path(__file__).parents[2] / "docs" / "glossary.md").read_text() == markdown(), "make docs writes it"
    names = [name for part in parts() for entry in part.entries for name in entry.names]
    assert len(names) == len(set(names)), "a word has one entry"
    assert not any("(below)" in meaning(entry) or "](" in meaning(entry) for entry in entries().values())


def test_no_mark_means_two_things():
    named = [value for name, value in vars(token_styles).items() if name.isupper() and isinstance(value, str)]
    signs = [value for value in named if len(value) == 1]
    assert len(signs) == len(set(signs)) > 9 and set(signs) <= set(GLYPHS)
    assert len(set(GLYPHS.values())) == len(GLYPHS)
