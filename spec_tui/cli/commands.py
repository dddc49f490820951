"""The command line put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.completion import completion_init
from typer.core import TyperGroup
from typer.main import get_group

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui import PRIVACY
from spec_tui.cli.application import open_application
from spec_tui.cli.option_groups import (
    Alone,
    DatastoreOptions,
    EngineSettings,
    ModelOrServerOptions,
    Presenter,
    Rejected,
    Theme,
    command,
    engine_settings,
)

_CODES = "Exit codes: 0, 1 {}, 2 usage, 3 model unavailable, 130 interrupted."
_RUN_CODES = _CODES.format("failed run or a BUG found by --audit")
_ADVICE_CODES = _CODES.format("a BUG")
_RACE_CODES = ("Exit codes: 0, 1 a lane failed or a BUG, 2 usage, 3 model unavailable, 5 a lane that was asked for "
               "cannot run, 130 interrupted.")

_COMMANDS: Mapping[str, tuple[str, str | None]] = {  # the short help, and how the help page ends
    "run": ("Decode one prompt, without the application.", _RUN_CODES),
    "replay": ("Play a recorded run; no model is loaded.", None),
    "learn": ("Speculative decoding in short lessons.", None),
    "serve": ("The application in the browser, for a class.", None),
    "export": ("Write a recorded run as Markdown, web page, picture or cast.", None),
    "compare": ("Compare engines: speed, acceptance, same text.", _RACE_CODES),
    "bench": ("Benchmark engines and transformers.generate on tasks.", _RACE_CODES),
    "reproduce": ("Run a table of a paper on your model, next to its numbers.", _RACE_CODES),
    "advise": ("Find the engine and settings for your model and prompts.", _ADVICE_CODES),
    "sweep": ("Vary one option of an engine: speed and acceptance.", None),
    "engines": ("List the engines (decoding methods) and their options.", None),
    "price": ("Measure what verification costs, and when drafts are faster.", None),
    "forget": ("Forget the past answers that drafts are copied from.", None),
    "doctor": ("Check what is installed, what works, what is missing.", None),
    "model": ("List, describe, download, export and remove models.", None),
    "head": ("Train, list and check draft heads, EAGLE's and Medusa's.", None),
    "datastore": ("Build and search datastores, for drafts by retrieval.", None),
}


class _Imported(Mapping[str, Any]):
    """Commands by name. Each is imported when it is asked for: all together take half as long as the first paint."""

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)

    def __getitem__(self, name: str) -> Any:
        help, codes = _COMMANDS[name]
        module, parent = import_module(f"spec_tui.cli.{name}"), typer.Typer(rich_markup_mode=None)
        if (group := getattr(module, "group", None)) is not None:
            parent.add_typer(group, name=name, short_help=help)
        else:
            parent.command(name, short_help=help, epilog=codes)(command(getattr(module, name)))
        return get_group(parent).commands[name]


class _Group(TyperGroup):
    def __init__(self, **said: Any) -> None:
        super().__init__(**said | {"commands": {}})
        self.commands = _Imported()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Typer knows no option whose value may be left out: the shell's name is joined to its option."""
        if args[:1] and args[0] in _COMPLETION:
            named = [arg for arg in args[1:2] if not arg.startswith("-")]
            args = [f"{args[0]}={''.join(named)}", *args[1 + len(named):]]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Watch speculative decoding at work: which tokens were drafted, and which were accepted.\n\n"
    "Without a command, the terminal application opens.",
    epilog=PRIVACY,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,  # Typer's own options take no name of a shell
    rich_markup_mode=None,  # plain help: half the time to the first line, and the same in a pipe
)

completion_init()

_COMPLETION = "--install-completion", "--show-completion"
_INSTALL = "Install completion for a shell: bash, zsh or fish. Default: the one that runs this."
_SHOW = "Print what that installs, to copy or change it."
_ALONE = Alone(frozenset({"context"}))
_ENGINE = "The engine to start with; spec-tui engines lists them."


def tui(
    context: typer.Context,
    models: ModelOrServerOptions,
    datastores: DatastoreOptions,
    theme: Theme = None,
    presenter: Presenter = False,
    rejected: Rejected = False,
    engine: Annotated[str, typer.Option(metavar="ID", help=_ENGINE)] = "",
    set_: EngineSettings = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    install: Annotated[str | None, typer.Option(_COMPLETION[0], metavar="[SHELL]", help=_INSTALL), _ALONE] = None,
    show: Annotated[str | None, typer.Option(_COMPLETION[1], metavar="[SHELL]", help=_SHOW), _ALONE] = None,
) -> Callable[[], int] | None:
    name = context.invoked_subcommand
    if name is None and (install is not None or show is not None):
        from spec_tui.cli.completion import install_completion, show_completion

        return partial(show_completion, show) if install is None else partial(install_completion, install)
    if name is None:
        asked = Request((), engine=engine, options=engine_settings(set_), datastores=datastores.names)
        return _version if version else partial(open_application, models.load, theme, asked, presenter, rejected)
    given = (datastores.names, theme is not None, presenter, rejected, version, engine, set_, install, show)
    if models != ModelOrServerOptions() or any(given):
        raise UsageProblem("options go after the command", f"see spec-tui {name} --help")
    return None  # typer goes on to the command


def _version() -> int:
    from importlib.metadata import version

    print(f"spec-tui {version('spec-tui')}")
    return 0


app.callback(invoke_without_command=True)(command(tui, call=lambda function, **values: function(**values)))
