"""A class: the teacher's page in every session, votes, and nothing else from a student."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from engines.core.tree import depths
from spec_tui.learn.class_room import ClassRoom
from spec_tui.learn.lesson import chosen
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.serve.browser_driver import BrowserDriver
from spec_tui.serve.gate import Gate
from spec_tui.serve.session_policy import SessionPolicy
from spec_tui.tui.recorded import class_room
from spec_tui.tui.screens.led_lesson import ClassNews, ClassScreen, ClassText
from spec_tui.tui.widgets.step_panels import PhaseBar, Timeline
from tests.tui.test_hostile import screen_text


def packet(**said) -> bytes:
    return json.dumps(said).encode()


def voting(most: int = 4) -> ClassRoom:
    room = ClassRoom(6)
    assert room.heard("teacher", True, packet(type="page", at=2, stage="vote", most=most))
    return room


@pytest.mark.parametrize("said", [-1, 5, 1.0, True, "1", None, [1], 10**400])
def test_a_vote_is_a_whole_number_in_range(said):
    room = voting()
    assert not room.heard("s", False, packet(type="vote", said=said)) and not room.votes


@pytest.mark.parametrize("data", [
    packet(type="page", at=0, stage="page", most=0), packet(type="open_url", url="x"), b"[" * 100_000, b"\xff", b"3",
    b'{"type":"vote","said":1,"more":"' + b"x" * 600 + b'"}'])
def test_nothing_else_counts_from_a_student(data):
    room = voting()
    assert not room.heard("s", False, data) and (room.at, room.stage, room.votes) == (2, "vote", {})


def test_votes_are_counted_once_each_and_end_with_the_page():
    room = voting()
    for who, said in (("a", 1), ("b", 4), ("a", 3)):
        assert room.heard(who, False, packet(type="vote", said=said))
    assert room.news(2)["counts"] == [0, 0, 0, 1, 1]
    assert room.heard("t", True, packet(type="page", at=2, stage="shown", most=0))
    assert room.news(2)["counts"] == [0, 0, 0, 1, 1], "they stay beside the round that is shown"
    assert not room.heard("a", False, packet(type="vote", said=0)), "it is too late"
    room.left("b")
    assert room.news(1)["counts"] == [0, 0, 0, 1, 0]
    assert room.heard("t", True, packet(type="page", at=3, stage="page", most=0)) and not room.votes
    for at, stage, most in ((6, "page", 0), (-1, "page", 0), (0, "other", 0), (0, "vote", 10), (True, "page", 0)):
        assert not room.heard("t", True, packet(type="page", at=at, stage=stage, most=most))


class Together:
    """Sessions of one class in this process; the room stands between them as the server does."""

    def __init__(self, lesson: str, students: int) -> None:
        taken = [LessonProgress.of(chosen(lesson)) for _ in range(1 + students)]
        self.room = ClassRoom(taken[0].length)
        self.apps = [class_room(one, n == 0, lambda said, n=n: self.heard(n, said)) for n, one in enumerate(taken)]

    def heard(self, who: int, said) -> None:
        if self.room.heard(who, who == 0, json.dumps(said).encode()):
            news = json.loads(json.dumps(self.room.news(len(self.apps) - 1)))
            for app in self.apps:
                for screen in app.screen_stack if app.is_running else ():
                    screen.post_message(ClassNews(news))

    async def settled(self, pilots) -> None:
        for _ in range(3):
            for pilot in pilots:
                await pilot.pause()


def text(app) -> str:
    return "\n".join(app.screen.query_one(ClassText).text_rows())


async def test_of_a_tree_as_many_can_be_accepted_as_its_longest_path_has():
    together = Together("trees", 1)
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        await pilots[0].press("V")
        await together.settled(pilots)
        student = together.apps[1]
        assert "4 on its longest path" in text(student) and "4+" not in text(student)
        await pilots[1].press("5")
        await together.settled(pilots)
        assert "drafted 10" in screen_text(student) and "At most 4 tokens: press 0 to 4" in screen_text(student)
        assert not together.room.votes
        await pilots[1].press("3")
        await together.settled(pilots)
        assert "At most 4 tokens" not in screen_text(student) and "changes your vote" in text(student)
        await pilots[1].press("T")
        await together.settled(pilots)
        assert "voted" not in text(student) and "T goes back to the text" in screen_text(student)
        await pilots[1].press("T")
        await pilots[0].press("V")
        await pilots[1].press("right", "F")
        await asyncio.sleep(0.1)
        await together.settled(pilots)
        assert "You said 3" in text(student), "reading elsewhere forgets no vote"


@pytest.mark.parametrize("who, has, lacks", [(0, "Let the class vote", "Back to the page that"),
                                             (1, "Back to the page that", "Let the class vote")])
async def test_help_names_what_this_session_can_do(who, has, lacks):
    together = Together("trees", 1)
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        await pilots[who].press("f1")
        await together.settled(pilots)
        said = str(together.apps[who].screen.query_one("#text").content)
        assert has in said and lacks not in said


async def test_there_is_nothing_to_vote_on_where_a_page_asks():
    together = Together("trees", 0)
    async with together.apps[0].run_test(size=(100, 30)) as pilot:
        await together.settled([pilot])
        screen = together.apps[0].screen
        while not screen.progress.view().options:
            await pilot.press("right")
        await pilot.press("V")
        assert screen.stage == "page" and "this page asks a question" in screen_text(together.apps[0])
        assert "Vote" not in {key.description for key in screen.query("FooterKey")}


async def test_students_follow_vote_and_see_the_round():
    together = Together("draft", 2)
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        teacher, ann, ben = together.apps
        assert all(isinstance(app.screen, ClassScreen) for app in together.apps)
        assert ann.screen.check_action("vote", ()) is False and teacher.screen.check_action("vote", ())
        await pilots[0].press("right", "right")
        await together.settled(pilots)
        assert [app.screen.progress.at for app in together.apps] == [2, 2, 2] and "What agrees stays" in text(ann)
        await pilots[0].press("V")
        assert "its result already" in screen_text(teacher) and together.room.stage == "page"
        await pilots[0].press("left")
        await pilots[2].press("left")
        await together.settled(pilots)
        await pilots[2].press("left")
        await together.settled(pilots)
        assert ben.screen.progress.at == 0 and ann.screen.progress.at == 1, "reading elsewhere moves nobody else"
        assert all(app.screen.player.hides for app in together.apps), "nobody sees the result before the vote"
        await pilots[0].press("V")
        await together.settled(pilots)
        most = max(depths(ann.screen.drafted.draft.parents))
        assert ben.screen.progress.at == 1 and f"Press 0 to {most}" in text(ann) and "Press 0" not in text(teacher)
        accepted = len(ann.screen.drafted.path)
        assert all(app.screen.player.place.phase == "tree" and app.screen.player.hides for app in together.apps)
        await pilots[1].press("full_stop", "right", "left", "full_stop")
        await together.settled(pilots)
        place = ann.screen.player.place
        for widget, x in ((Timeline, 1), (Timeline, 20), (PhaseBar, 50)):
            await pilots[1].click(widget, offset=(x, 0))
        assert ann.screen.player.place == place and place.phase == "tree" and ann.screen.progress.at == 1, (
            "nobody looks behind the vote")
        await pilots[1].press("9", str(accepted))
        await together.settled(pilots)
        assert "1 of 2 voted" in text(teacher) and "1 of 2 voted" in text(ben) and "█" not in text(ben)
        await pilots[2].press("0")
        await together.settled(pilots)
        assert "2 of 2 voted" in text(teacher) and text(ann).count("█") and text(ben).count("█")
        await pilots[0].press("V")
        await asyncio.sleep(0.1)
        await together.settled(pilots)
        assert all(f"✓ {accepted}" in text(app) and app.screen.player.place.phase == "accept"
                   for app in together.apps)
        assert f"You said {accepted}" in text(ann) and "You said 0" in text(ben)
        round_ = ann.screen.player.place.round
        while ann.screen.player.place.round == round_:
            await pilots[1].press("full_stop")
        assert "voted" not in text(ann), "the result is that of another round"
        await pilots[0].press("right")
        await together.settled(pilots)
        assert all(app.screen.progress.at == 2 and "voted" not in text(app) for app in together.apps)


async def test_a_student_who_reads_elsewhere_during_a_vote_sees_its_round():
    together = Together("lookup", 1)
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        teacher, student = together.apps
        for keys in (["right"], ["V"]):
            await pilots[0].press(*keys)
            await together.settled(pilots)
        await pilots[1].press("right")  # a page on another round
        await together.settled(pilots)
        assert student.screen.progress.at == 2
        await pilots[0].press("V")
        await asyncio.sleep(0.1)
        await together.settled(pilots)
        assert student.screen.progress.at == 1
        assert student.screen.player.place.round == teacher.screen.player.place.round
        assert "accept" in screen_text(student) and "✓" in text(student)


async def test_a_page_whose_height_cannot_be_told_ends_no_session(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    together = Together("draft", 1)
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        student = together.apps[1]
        monkeypatch.setattr(student, "contains", True)
        student.screen.query_one(ClassText).needed = student.screen.query_one(ClassText).draw = lambda *given: 1 / 0
        await pilots[0].press("right")
        await together.settled(pilots)
        assert student.is_running and "cannot be drawn: ZeroDivisionError" in " ".join(text(student).split())


async def test_a_teacher_who_comes_back_finds_the_class_where_it_is():
    together = Together("draft", 1)
    together.room.heard(0, True, packet(type="page", at=1, stage="vote", most=3))
    async with AsyncExitStack() as stack:
        pilots = [await stack.enter_async_context(app.run_test(size=(100, 30))) for app in together.apps]
        await together.settled(pilots)
        assert [app.screen.progress.at for app in together.apps] == [1, 1]
        assert "V shows the round" in text(together.apps[0]) and together.room.stage == "vote"
        await pilots[0].press("right")
        await together.settled(pilots)
        assert [app.screen.progress.at for app in together.apps] == [2, 2]


def test_the_driver_passes_news_to_the_screens_and_what_a_session_says_to_the_server(monkeypatch):
    posted, said = [], []
    driver = object.__new__(BrowserDriver)
    driver._app = SimpleNamespace(screen_stack=[SimpleNamespace(post_message=posted.append)])
    driver.on_meta("class", {"type": "class", "at": 1})
    assert isinstance(posted[0], ClassNews) and posted[0].told["at"] == 1
    BrowserDriver.tell({"type": "hello"})  # before there is a driver: nothing
    monkeypatch.setattr(BrowserDriver, "_here", SimpleNamespace(write_meta=said.append))
    BrowserDriver.tell({"type": "vote", "said": 2})
    assert said == [{"type": "vote", "said": 2}]


aiohttp = pytest.importorskip("aiohttp", reason="of the extra serve, which is not installed")

from aiohttp.test_utils import TestClient, TestServer  # noqa: E402

from spec_tui.serve.web_server import Limits, SessionServer  # noqa: E402

PROCESS = r"""
import os, sys
def put(kind, data):
    os.write(1, kind + len(data).to_bytes(4, "big") + data)
os.write(1, b"__GANGLION__\n")
inp = sys.stdin.buffer
while head := inp.read(5):
    data = inp.read(int.from_bytes(head[1:], "big"))
    if head[:1] == b"D":
        put(b"M", data)  # what is typed is said to the server
    elif b'"quit"' in data:
        break
    else:
        put(b"D", data)  # what the server tells is drawn
"""


async def test_the_teachers_address_leads_and_only_that():
    gate = Gate.of("127.0.0.1", None, lead=True)
    sessions = SessionServer(SessionPolicy(shows="lessons", names=("draft",)), gate, Limits(),
                             [sys.executable, "-S", "-c", PROCESS], pages=6)
    client = TestClient(TestServer(sessions.application()))
    await client.start_server()
    try:
        assert (await client.get("/", params={"lead": "wrong"})).status == 403
        origin = str(client.make_url("/")).rstrip("/")

        async def joined(name: str):
            return await client.ws_connect(f"/session/{name * 32}", headers={"Origin": origin})

        async def told(socket, wanted: dict) -> None:
            while True:
                message = await socket.receive(20)
                assert message.type is aiohttp.WSMsgType.BINARY
                found = json.loads(message.data)
                if found.get("type") == "class" and found | wanted == found:
                    return

        ann, ben = await joined("a"), await joined("b")
        await client.get("/", params={"lead": gate.lead})  # from here on this browser has the cookie
        sessions.limits = Limits(sessions=2)
        teacher = await joined("c")  # students take no teacher's place

        async def says(socket, **said) -> None:
            await socket.send_str(json.dumps(["stdin", json.dumps(said)]))

        await says(ann, type="hello")
        await told(ann, {"at": 0, "stage": "page", "here": 2})
        await says(ann, type="page", at=5, stage="page", most=0)
        await says(teacher, type="page", at=3, stage="vote", most=2)
        for socket in (ann, ben, teacher):
            await told(socket, {"at": 3, "stage": "vote", "counts": [0, 0, 0]})
        await says(ben, type="vote", said=3)
        await says(ben, type="vote", said=2)
        await told(ann, {"counts": [0, 0, 1]})
        await ben.close()
        elsewhere = await joined("d")
        await says(elsewhere, type="page", at=4, stage="page", most=0)
        await told(ann, {"at": 4})
        assert [session.role for session in sessions.sessions.values()].count("teacher") == 1
    finally:
        await sessions.close()
        await client.close()
