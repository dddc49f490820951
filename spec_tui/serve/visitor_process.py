"""The process of one session: ``python -m spec_tui.serve.visitor_process OFFER CONFINEMENT``, both as JSON. It is
confined before anything else is imported that could be told what to open."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import msgspec

from engines.report.encoding import decode
from spec_tui.serve.confinement import confine
from spec_tui.serve.session_policy import FOLDERS, Confinement, SessionPolicy

_LARGEST_FILE = 1 << 30  # bytes


def main() -> None:
    """Show what is offered. Does not return."""
    policy, limits = decode(SessionPolicy, sys.argv[1].encode()), msgspec.json.decode(sys.argv[2], type=Confinement)
    _limit()
    confine(limits.read, limits.listed, limits.write, limits.port)
    code = 1
    try:
        code = show(policy)
    except Exception:
        traceback.print_exc()  # into the server's log
    finally:
        home = Path(os.environ["HOME"])
        if home.parent.name.startswith(FOLDERS):  # the server does it too, unless it was killed
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):  # the others' folders may be there
                home.parent.rmdir()
        os._exit(code)


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))


def show(policy: SessionPolicy) -> int:
    """Run the application; its exit code."""
    from spec_tui.tui import app, recorded

    if policy.shows == "chat":
        from engines.request import Request

        asked = Request((), engine=policy.engine, options=policy.options) if policy.engine else None
        return app.run_app(policy.load, theme=policy.theme, initial_request_options=asked, presenter=policy.presenter)
    looks = {"theme": policy.theme, "presenter": policy.presenter}
    if policy.role:
        from spec_tui.serve.browser_driver import BrowserDriver

        shown = recorded.class_room(_progress(policy.names), policy.role == "teacher", BrowserDriver.tell, **looks)
    elif policy.shows == "lessons":
        shown = recorded.lessons(_progress(policy.names), **looks)
    elif policy.shows == "race":
        from spec_tui.session.recorded_race import read_recorded

        shown = recorded.race(read_recorded(policy.names), **looks)
    else:
        from engines.wire import read_trace
        from spec_tui.session.replay_client import ReplayClient

        path = Path(policy.names[0])
        shown = recorded.replay(ReplayClient(read_trace(path), 1.0, title=path.stem), **looks)
    shown.run()
    return shown.return_code or 0


def _progress(names: tuple[str, ...]):
    from spec_tui.learn.lesson import chosen
    from spec_tui.learn.lesson_progress import LessonProgress

    return LessonProgress.of(chosen(names[0])) if names else None


if __name__ == "__main__":
    main()
