"""The command line put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui import PRIVACY
from spec_tui.cli import datastore as datastore_commands
from spec_tui.cli import head as head_commands
from spec_tui.cli import model as model_commands
from spec_tui.cli.advise import advise
from spec_tui.cli.application import open_application
from spec_tui.cli.bench import bench
from spec_tui.cli.compare import compare
from spec_tui.cli.doctor import doctor
from spec_tui.cli.engines import engines
from spec_tui.cli.export import export
from spec_tui.cli.forget import forget
from spec_tui.cli.learn import learn
from spec_tui.cli.option_groups import (
    DatastoreOptions,
    EngineSettings,
    ModelOrServerOptions,
    Presenter,
    Rejected,
    Theme,
    command,
    engine_settings,
)
from spec_tui.cli.price import price
from spec_tui.cli.replay import replay
from spec_tui.cli.reproduce import reproduce
from spec_tui.cli.run import run
from spec_tui.cli.serve import serve
from spec_tui.cli.sweep import sweep

app = typer.Typer(
    help="Watch speculative decoding at work: which tokens were drafted, and which were accepted.\n\n"
    "Without a command, the terminal application opens.",
    epilog=PRIVACY,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the time to the first line, and the same in a pipe
)

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
) -> Callable[[], int] | None:
    name = context.invoked_subcommand
    if name is None:
        asked = Request((), engine=engine, options=engine_settings(set_), datastores=datastores.names)
        return _version if version else partial(open_application, models.load, theme, asked, presenter, rejected)
    given = (datastores.names, theme is not None, presenter, rejected, version, engine, set_)
    if models != ModelOrServerOptions() or any(given):
        raise UsageProblem("options go after the command", f"see spec-tui {name} --help")
    return None  # typer goes on to the command


def _version() -> int:
    from importlib.metadata import version

    print(f"spec-tui {version('spec-tui')}")
    return 0


app.callback(invoke_without_command=True)(command(tui, call=lambda function, **values: function(**values)))

_CODES = "Exit codes: 0, 1 {}, 2 usage, 3 model unavailable, 130 interrupted."
_RUN_CODES = _CODES.format("failed run or a BUG found by --audit")
_ADVICE_CODES = _CODES.format("a BUG")
_RACE_CODES = ("Exit codes: 0, 1 a lane failed or a BUG, 2 usage, 3 model unavailable, 5 a lane that was asked for "
               "cannot run, 130 interrupted.")
_HEAD = "Train, list and check draft heads, EAGLE's and Medusa's."
_MODEL = "Describe models without loading them."
_DATASTORE = "Build and search datastores, for drafts by retrieval."

for offered, help, codes in (
    (run, "Decode one prompt, without the application.", _RUN_CODES),
    (replay, "Play a recorded run; no model is loaded.", None),
    (learn, "Speculative decoding in short lessons.", None),
    (serve, "The application in the browser, for a class.", None),
    (export, "Write a recorded run as Markdown, web page, picture or cast.", None),
    (compare, "Compare engines: speed, acceptance, same text.", _RACE_CODES),
    (bench, "Benchmark engines and transformers.generate on tasks.", _RACE_CODES),
    (reproduce, "Run a table of a paper on your model, next to its numbers.", _RACE_CODES),
    (advise, "Find the engine and settings for your model and prompts.", _ADVICE_CODES),
    (sweep, "Vary one option of an engine: speed and acceptance.", None),
    (engines, "List the engines (decoding methods) and their options.", None),
    (price, "Measure what verification costs, and when drafts are faster.", None),
    (forget, "Forget the past answers that drafts are copied from.", None),
    (doctor, "Check what is installed, what works, what is missing.", None),
):
    app.command(offered.__name__.replace("_", "-"), short_help=help, epilog=codes)(command(offered))
app.add_typer(model_commands.group, name="model", short_help=_MODEL)
app.add_typer(head_commands.group, name="head", short_help=_HEAD)
app.add_typer(datastore_commands.group, name="datastore", short_help=_DATASTORE)
