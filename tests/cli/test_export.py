"""``spec-tui export``: recorded runs as documents that hold what was written, and nothing that it could do."""

from __future__ import annotations

import errno
import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyte
import pytest

from engines.report.events import Finished, Prefilled, Round, Started
from engines.report.run_state import RunState, fold_all
from engines.wire import read_trace
from spec_tui.cli.export import FORMATS
from spec_tui.export.cast import cast
from spec_tui.export.markdown import markdown
from spec_tui.export.page import page
from spec_tui.present.narration import narration
from spec_tui.present.styles import DARK_TOKENS, LIGHT_TOKENS
from spec_tui.session.sample_traces import names, trace_path

EVIL = '</span><script>alert(1)</script>"\' onmouseover=x & | `` ```` \x1b[31m\x9b2J\u202e <img src=http://x>\n# head'


def run_of(name: str) -> RunState:
    return fold_all(read_trace(trace_path(name)).events)


def hostile() -> RunState:
    """A shipped run in which everything that others wrote is hostile."""
    events = []
    for event in read_trace(trace_path("rest")).events:
        if isinstance(event, Started):
            event = replace(event, engine=EVIL, model=EVIL, conversation=((EVIL, EVIL), ("user", EVIL)),
                            warnings=(EVIL,), options={EVIL: EVIL}, versions={EVIL: EVIL}, machine={EVIL: EVIL},
                            datastores=(EVIL,))
        elif isinstance(event, Prefilled):
            event = replace(event, first=bad(event.first))
        elif isinstance(event, Round):
            pieces = (EVIL,) * len(event.draft.pieces)
            origins = tuple(replace(o, document=EVIL, datastore=EVIL) for o in event.draft.origins)
            draft = replace(event.draft, pieces=pieces, origins=origins)
            event = replace(event, draft=draft, note={EVIL: EVIL}, emitted=tuple(map(bad, event.emitted)))
        elif isinstance(event, Finished):
            event = replace(event, text=EVIL)
        events.append(event)
    return fold_all(events)


def bad(token):
    return replace(token, text=EVIL, piece=EVIL, top=tuple(replace(choice, piece=EVIL) for choice in token.top))


class Reader(HTMLParser):
    """What a page is made of: its tags balanced, the text of the answer, the facts of its tokens."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.answer, self.tokens, self.inside = "", [], False
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href", "action", "srcset") or k.startswith("on")]
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if given.get("class") == "answer":
            self.inside = True
        if "data-facts" in given:
            self.tokens.append(given)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "div":
            self.inside = False

    def handle_data(self, data):
        if self.inside and self.open[-1] != "del":
            self.answer += data


@pytest.mark.parametrize("name", names())
def test_a_page_holds_the_answer_and_each_tokens_facts(name):
    run = run_of(name)
    found = Reader(page([run]))
    assert found.answer == run.text
    shown = [token for token in run.tokens if token.text]
    assert len(found.tokens) == len(shown)
    for token, span in zip(shown, found.tokens):
        assert span["class"].split()[:2] == ["t", token.kind] and f"by-{token.source}" in span["class"]
        number = run.rounds[token.round].index if token.round >= 0 else None
        assert span["style"] == f"--at:{run.clock[token.round] if number else 0.0:.3f}s"
        told = span["data-facts"]
        assert f"id {token.emitted.token} " in told and (f"round {number} " if number else "prefill") in told
        assert f"target says: {token.prob:.3f}" in told and token.kind in told


@pytest.mark.parametrize("form", ["md", "html", "cast"])
def test_a_document_of_a_damaged_trace_says_so(cli, tmp_path, form):
    lines = trace_path("rasd").read_bytes().splitlines(keepends=True)
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines[:9] + lines[10:]))
    made = cli("export", str(tmp_path / "t.jsonl"), "--to", form, "-o", "-").out
    text = "".join(json.loads(line)[2] for line in made.splitlines()[1:]) if form == "cast" else made
    assert "line 10 is round 9, and what comes between it and round 7 is missing." in text
    assert "[…]" in (Reader(made).answer if form == "html" else text)


def test_of_a_run_without_a_start_no_sampling_is_claimed(cli, tmp_path):
    (tmp_path / "t.jsonl").write_bytes(trace_path("rasd").read_bytes().partition(b"\n")[2])
    text = cli("export", str(tmp_path / "t.jsonl"), "--to", "md", "-o", "-").out
    assert "| engine | unknown; law unknown |" in text and "| maximum new tokens | — |" in text


def test_a_page_needs_nothing_from_outside_and_has_both_themes():
    text = page([run_of("tree")])
    found = Reader(text)
    assert not found.links and not set(found.tags) & {"script", "link", "img", "iframe", "object"}
    assert "default-src 'none'" in text and not re.search(r"url\(|@import|https?://", text)
    style = text.partition("<style>")[2].partition("</style>")[0]
    for name in ("tok-accept", "tok-fixed", "tok-bonus", "tok-ghost", "src-retrieval", "src-prompt"):
        assert f"--{name}:{LIGHT_TOKENS[name]}" in style and f"--{name}:{DARK_TOKENS[name]}" in style
    assert "prefers-color-scheme:dark" in style
    assert "body:has(#play:checked) :is(.t,.ghost){animation:" in style and 'id="play"' in text, "it plays when told"
    used = set(re.findall(r"var\(--([\w-]+)\)", style))
    assert used <= set(re.findall(r"--([\w-]+):", style)), "every colour has a value"


def test_hostile_text_is_text():
    run = hostile()
    text = page([run])
    found = Reader(text)
    assert not found.links and not set(found.tags) & {"script", "img"} and "<script" not in text
    assert found.answer.count("<script>alert(1)</script>") == len([t for t in run.tokens if t.text])
    for made in (text, markdown([run]), "".join(json.loads(line)[2] for line in cast([run]).splitlines()[1:])):
        plain = re.sub(r"\x1b\[[\d;]*m", "", made) if made.count("\x1b[0m") else made
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", plain)
        assert "\x1b[31m" not in made


def test_no_text_leaves_its_fence_or_its_cell():
    lines = markdown([hostile()]).splitlines()
    fence, inside = None, []
    for line in lines:
        if fence is None and (opened := re.match(r"(`{3,})text$", line)):
            fence = opened.group(1)
        elif fence == line:
            fence = None
        elif fence is not None:
            inside.append(line)
        else:
            assert not line.startswith("# head") and "<script" not in line and "<img" not in line
            if line.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", line)) in (3, 7), line
    assert fence is None and any(line == "# head" for line in inside)


def test_markdown_holds_prompt_answer_and_numbers():
    run = run_of("draft-sampled")
    text = markdown([run])
    assert run.text in text and run.started.conversation[-1][1] in text and "{~~" in text
    m = run.metrics
    assert f"| accepted | {m.accepted} of {m.drafted} drafted" in text
    assert "law rejection, temperature 0.8, seed 7" in text
    assert len(re.findall(r"^\| \d+ \| \d+ \| \d+ \|", text, re.MULTILINE)) == len(run.rounds)


@pytest.mark.parametrize("name", ["pld-in-vain", "draft"])
def test_only_columns_of_numbers_stand_to_the_right(name):
    """However short the words of a run are."""
    after = markdown([run_of(name)]).partition("| ms | text |\n")[2]
    assert after.startswith("| --- | ---: | ---: | --- | ---: | --- |\n")


@pytest.mark.parametrize("name, model, head", [
    ("draft", "sample_models/draft", None), ("smollm2-eagle", None, "smollm2"), ("hybrid", None, "sample"),
    ("smollm2-medusa", None, "smollm2-medusa"), ("rest", None, None), ("autoregressive", None, None)])
def test_a_document_names_what_drafted_and_no_other_drafter(name, model, head):
    said = dict(re.findall(r"^\| (draft \w+) \| (.*) \|$", markdown([run_of(name)]), re.MULTILINE))
    assert (said.get("draft model"), said.get("draft head")) == (model, head)


@pytest.mark.parametrize("name", names())
def test_a_recording_shows_the_answer_at_the_engines_pace(name):
    run = run_of(name)
    header, *events = map(json.loads, cast([run], 100, 60).splitlines())
    assert header["version"] == 2 and (header["width"], header["height"]) == (100, 60)
    times = [time for time, _, _ in events]
    assert times == sorted(times) and all(kind == "o" for _, kind, _ in events)
    written = times[1 + len(run.rounds)] - times[1]
    assert written == pytest.approx(run.clock[-1], abs=1e-4)

    screen = pyte.Screen(100, 60)
    stream = pyte.Stream(screen)
    for _, _, text in events:
        stream.feed(text)
    shown = "".join(line.rstrip() for line in screen.display)
    assert "".join(run.text.split()) in "".join(shown.split())
    colours = {cell.fg for line in screen.buffer.values() for cell in line.values() if cell.data.strip()}
    assert len(colours) >= (2 if run.metrics.accepted else 1)


def test_what_came_before_the_question_is_in_every_document():
    run = run_of("pld")
    before = (("system", "be brief"), ("user", "one?"), ("assistant", "1"), ("raw", "two?"))
    run = replace(run, started=replace(run.started, conversation=before))
    told = "\n".join(narration(run.started, run))
    for text in (markdown([run]), page([run]), told):
        assert all(words in text for words in ("be brief", "one?", "two?"))
    assert "without the chat template" in markdown([run])


@pytest.mark.parametrize("number, words", [
    (errno.ENOSPC, "No space left on device\n  make room, or name another file with --output"),
    (errno.EACCES, "Permission denied\n  name another file with --output"),
])  # fmt: skip
def test_a_full_disk_alone_says_to_make_room(cli, tmp_path, monkeypatch, number, words):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("spec_tui.cli.export.write_whole", fail)
    done = cli("export", "pld", "-o", str(tmp_path / "t.md"))
    assert done.code == 1 and words in done.err


def test_a_recording_can_be_slower(tmp_path):
    run = run_of("pld")
    fast, slow = ([json.loads(line)[0] for line in cast([run], speed=s).splitlines()[1:]] for s in (1.0, 0.1))
    assert slow[-2] - slow[1] == pytest.approx(10 * (fast[-2] - fast[1]), rel=1e-3)


def test_a_picture_is_of_the_screen_at_the_end(cli, tmp_path):
    target = tmp_path / "t.svg"
    assert cli("export", "pld", "-o", str(target), "--size", "80x24").code == 0
    text = html.unescape(re.sub(r"<[^>]*>", "", target.read_text())).replace("\xa0", " ")
    assert "replay of pld" in text and "apples and a hat in the morning." in text and "✓ identical" in text
    assert not re.search(r"https?://(?!www\.w3\.org)", target.read_text())


def test_every_word_and_symbol_of_a_picture_stands_in_its_cells(cli, tmp_path):
    """So that it does not matter how wide a font draws the others, nor whether lengths and blanks are respected."""
    target = tmp_path / "t.svg"
    assert cli("export", "tree", "-o", str(target), "--size", "80x24").code == 0
    svg = target.read_text()
    pattern = r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)" [^>]*>([^<]*)</text>'
    grid: dict[str, list[str]] = {}
    for x, y, length, text in re.findall(pattern, svg):
        text = html.unescape(text)
        assert text[0] not in " \xa0" and (text.isascii() or len(text.rstrip("\xa0 ")) == 1 or "\xa0" in text), text
        assert float(length) == pytest.approx(12.2 * len(text), abs=0.1)
        cell = float(x) / 12.2
        assert cell == pytest.approx(round(cell), abs=0.01)
        row = grid.setdefault(y, [" "] * 80)
        row[round(cell) : round(cell) + len(text)] = text.replace("\xa0", " ")
    lines = ["".join(row) for row in grid.values()]
    assert svg.count("<text ") - 1 == len(re.findall(pattern, svg)) and {len(line) for line in lines} == {80}
    assert any("replay of tree" in line for line in lines) and any("│" in line for line in lines)


@pytest.mark.parametrize("form", FORMATS)
def test_written_to_a_file_of_its_name_and_never_over_another(cli, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    done = cli("export", "pld", "--to", form)
    assert (done.code, done.out, done.err) == (0, "", f"wrote pld.{form}\n")
    Path(f"pld.{form}").write_text("mine")
    done = cli("export", "pld", "--to", form)
    assert done.code == 2 and "exists" in done.err and Path(f"pld.{form}").read_text() == "mine"
    assert cli("export", "pld", "--to", form, "--force").code == 0 and Path(f"pld.{form}").read_text() != "mine"


def test_to_stdout_and_from_a_damaged_file(cli, tmp_path):
    assert cli("export", "pld", "--to", "md", "-o", "-").out == markdown([run_of("pld")])
    data = trace_path("pld").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(data[: len(data) // 2])
    for form in FORMATS:
        done = cli("export", str(tmp_path / "cut.jsonl"), "--to", form, "-o", str(tmp_path / f"x.{form}"))
        assert done.code == 0 and "the end of the run is missing" in done.err


@pytest.mark.parametrize("arguments, words", [
    (["pld"], "say which form"), (["pld", "-o", "x.docx"], "say which form"),
    (["nope", "--to", "md"], "no trace 'nope'"),
    (["pld", "--to", "html", "-o", ".", "--force"], ". is a folder, not a file\n  name another file with --output\n"),
    (["pld", "--to", "svg", "--size", "big"], "not COLSxROWS"),
    (["pld", "--to", "svg", "--size", "1x1"], "out of range"),
    (["pld", "--to", "svg", "--size", "10000x40"], "the size 10000x40 is out of range\n  20x5 to 1000x1000"),
    (["pld", "--to", "svg", "--theme", "mud"], "no theme"), (["pld", "--to", "cast", "--speed", "0"], "out of range"),
    (["pld", "--to", "cast", "--speed", "1e-300"], "out of range"),
    (["pld", "--to", "cast", "--speed", "inf"], "out of range"),
])  # fmt: skip
def test_wrong_arguments(cli, arguments, words):
    done = cli("export", *arguments)
    assert done.code == 2 and words in done.err


@pytest.mark.skipif(not shutil.which("chromium"), reason="no browser here")
def test_a_browser_lays_the_page_out(tmp_path):
    run = run_of("tree")
    (tmp_path / "t.html").write_text(page([run]), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--dump-dom", (tmp_path / "t.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert Reader(dom).answer == run.text
