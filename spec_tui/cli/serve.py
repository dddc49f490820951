"""``spec-tui serve``: the application in a browser, a session for each visitor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from engines.errors import UsageProblem
from engines.report.wording import counted
from spec_tui.cli.application import check_engine
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import (
    EngineSettings,
    Lecture,
    ModelOrServerOptions,
    Only,
    Presenter,
    Theme,
    engine_settings,
)

if TYPE_CHECKING:
    from spec_tui.serve.gate import Gate
    from spec_tui.serve.session_policy import SessionPolicy
    from spec_tui.serve.web_server import Limits

LESSONS, RECORDED = "learn", "replay"
_GIB = 1 << 30
_WHAT = f"{LESSONS} [NAME] serves the lessons, {RECORDED} FILE ... a recorded run, or up to six side by side; neither \
needs a model. Without an argument the whole application is served, with a model for each session."
_HOST = "Address to bind to. Any but this machine's own (0.0.0.0: all) adds an access token to the URL."
_URL = "Where others reach the server, for example through a proxy: https://class.example.org. Implies an access token."
_MEMORY = "Memory limit of a session, in GiB; exceeding it ends the session. Weights that sessions share do not count."
_GRACE = "How long a session survives without its browser, in seconds."
_LEAD = f"With {LESSONS}: you lead a class. The second address printed is yours; other browsers follow your \
page, and vote on how many drafted tokens a round accepts (V)."
_OF_LESSONS = Only(lambda given: (given["what"] or ("",))[0] == LESSONS, f"serve {LESSONS}")
_LECTURE = 45  # minutes of the path of a class without a lesson of its own
_OF_CHAT = Only(lambda given: not given["what"], "sessions with a model")


def serve(
    what: Annotated[list[str] | None, Argument(metavar="learn [NAME] | replay FILE", help=_WHAT)] = None,
    host: Annotated[str, Option(metavar="ADDRESS", help=_HOST)] = "127.0.0.1",
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    public_url: Annotated[str | None, Option("--public-url", metavar="URL", help=_URL)] = None,
    sessions: Annotated[int, Option(metavar="N", min=1, max=1000, help="Maximum number of sessions.")] = 8,
    memory: Annotated[float, Option(metavar="GIB", min=0.01, max=1 << 20, help=_MEMORY)] = 4.0,
    grace: Annotated[float, Option(metavar="SECONDS", min=0, max=86400, help=_GRACE)] = 60.0,
    engine: Annotated[str, Option(metavar="ID", help="The engine that sessions begin with."), _OF_CHAT] = "",
    set_: Annotated[EngineSettings, _OF_CHAT] = None,
    path: Annotated[Lecture, _OF_LESSONS] = None,
    lead: Annotated[bool, Option("--lead", help=_LEAD), _OF_LESSONS] = False,
    theme: Theme = None,
    presenter: Presenter = False,
    *,
    models: ModelOrServerOptions,
) -> int:
    """Open the application in browsers, with a separate session for each visitor.

    A session can use the models that are served and those that ship, but no file, program or address of this machine;
    its files are removed when it ends. ctrl+c ends all sessions.
    """
    if find_spec("textual_serve") is None:
        raise UsageProblem("serving needs a package that is not installed", "pip install 'spec-tui[serve]'")
    from spec_tui.serve.gate import Gate
    from spec_tui.serve.web_server import Limits

    asked = list(what or [])
    if path is not None and len(asked) > 1:
        raise UsageProblem("a path has its own lessons", "leave out the names, or --path")
    if path is not None or (lead and len(asked) == 1):
        asked.append(f"path-{_LECTURE if path is None else path}")
    policy = _policy(asked, models, engine, engine_settings(set_), theme, presenter)
    gate = Gate.of(host, public_url, lead)
    limits = Limits(sessions=sessions, memory=int(memory * _GIB), grace=grace)
    return _serve(policy, gate, limits, port)


def _policy(
    what: list[str], models: ModelOrServerOptions, engine: str, options: dict[str, str], theme: str | None,
    presenter: bool,
) -> SessionPolicy:
    """What each session shows. Raises SpecError where it cannot: better here than in each session."""
    from spec_tui.serve.session_policy import SessionPolicy, on_this_machine
    from spec_tui.tui.app import check_theme

    check_theme(theme)
    kind, *names = what or [""]
    if kind and models != ModelOrServerOptions():
        raise UsageProblem(f"serve {kind} loads no model", "leave out the options of models")
    if kind == LESSONS:
        from spec_tui.learn.lesson import chosen

        found = (chosen(" ".join(names)).name,) if names else ()
        return SessionPolicy(shows="lessons", names=found, theme=theme, presenter=presenter)
    if kind == RECORDED:
        return SessionPolicy(shows="race" if len(names) > 1 else "replay", names=_recorded(names), theme=theme,
                     presenter=presenter)
    if kind:
        raise UsageProblem(f"there is nothing to serve by the name {kind}",
                           f"spec-tui serve, serve {LESSONS} or serve {RECORDED} FILE")
    check_engine(engine, options)
    return SessionPolicy(shows="chat", load=on_this_machine(models.load), engine=engine, options=options, theme=theme,
                 presenter=presenter)


def _recorded(names: list[str]) -> tuple[str, ...]:
    """The files of recorded runs. Raises UsageProblem where they cannot be shown."""
    from spec_tui.cli.replay import runs_in
    from spec_tui.session.recorded_race import read_recorded
    from spec_tui.session.sample_traces import trace_path

    if not names:
        raise UsageProblem("serve replay needs a recorded run", "spec-tui replay lists those that ship")
    files = [Path(trace_path(name)).resolve() for name in names]
    if len(files) > 1:
        read_recorded([str(file) for file in files])
    else:
        runs_in(files[0], tell=True)
    return tuple(map(str, files))


def _serve(policy: SessionPolicy, gate: Gate, limits: Limits, port: int) -> int:
    import asyncio

    from spec_tui.learn.lesson import chosen
    from spec_tui.serve import confinement
    from spec_tui.serve.web_server import run_server

    def announce(port: int) -> None:
        print(_address(gate, port), flush=True)
        if gate.lead:
            narrate(f"students open the address above; you lead at\n{_address(gate, port, leads=True)}")
        narrate(f"at most {counted(limits.sessions, 'session')}, each of {limits.memory / _GIB:g} GiB; ctrl+c ends all")
        if gate.token:
            narrate("whoever has this address can open a session; what is sent is not encrypted without an https "
                    "proxy in front")
        if not confinement.version():
            narrate("note: this system cannot confine processes (Landlock, Linux 5.13 and newer), so only the program's"
                    " own checks keep sessions from this machine's files")

    pages = len(chosen(policy.names[0]).pages) if gate.lead else 0
    asyncio.run(run_server(policy, gate, limits, port, announce, pages))
    return 0


def _address(gate: Gate, port: int, leads: bool = False) -> str:
    """What to open in a browser; ``leads``: by whoever leads the class."""
    import socket

    name = f"[{gate.host}]" if ":" in gate.host else gate.host
    if gate.host in ("", "0", "0.0.0.0", "::"):  # all addresses of this machine
        name = socket.gethostname()
    url = (gate.public_url or f"http://{name}:{port}").rstrip("/") + "/"
    secrets = {"token": gate.token, "lead": gate.lead * leads}
    given = "&".join(f"{name}={secret}" for name, secret in secrets.items() if secret)
    return url + f"?{given}" * bool(given)
