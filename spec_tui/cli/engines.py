"""``spec-tui engines``: the engines there are, with their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Format, OutputFormat
from spec_tui.cli.output import console
from spec_tui.present.text import as_json, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from engines.methods.spec import MethodSpec

_WIDE = 70  # columns that a table of options needs
_OPTION = ("name", "type", "default", "paper", "range", "low", "high", "choices", "help")  # what is said of each


def engines(format: OutputFormat = Format.text) -> int:
    """List the engines: how each drafts, its options, what it needs, whether it is lossless."""
    from engines.methods import of_other_programs, problems, specs

    for sentence in problems():
        narrate(f"note: {one_line(sentence)}")
    if format is Format.json:
        print(as_json([describe(spec) for spec in (*specs(), *of_other_programs())], indent=2))
        return 0
    out = console()
    for spec in (*specs(), *of_other_programs()):
        _print(spec, out)
    return 0


def describe(spec: MethodSpec) -> dict[str, Any]:
    """An engine as plain data; ``host`` is the program that decodes with it, "" for this one."""
    facts = {name: getattr(spec, name) for name in ("id", "title", "summary", "source", "needs", "lossless", "host")}
    return facts | {"options": [{name: getattr(option, name) for name in _OPTION} for option in spec.options]}


def _print(spec: MethodSpec, out: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    out.print(Text.assemble((spec.id, "bold"), "  ", spec.title))
    lossless = {True: "lossless", None: "whether it is lossless is not checked"}.get(
        spec.lossless, "LOSSY: the text does not follow the target's distribution")
    one_of = tuple(spec.drafts_with[1].values()) if spec.drafts_with else ()
    all_of = [need for need in spec.needs if need not in one_of]
    other = [f"another program, by {spec.flag} or as a lane of a race"] if spec.host else []
    needs = ", ".join(filter(None, [" or ".join(one_of), *all_of, *other])) or "nothing"
    for line in (spec.summary, f"source: {spec.source}", f"needs: {needs}; {lossless}"):
        out.print(Padding(Text(line), (0, 0, 0, 2)))
    table = Table("option", "type", "default", "range", "meaning", box=None, pad_edge=False, header_style="underline")
    for option in spec.options:
        default = f"{option.default}" if option.paper is None else f"{option.default} (paper {option.paper})"
        words = f"{option.range}: {option.help}" if option.choices else option.help  # too long for a column
        cells = (option.name, option.type, default, "" if option.choices else option.range, words)
        table.add_row(*map(Text, cells))
        if out.width < _WIDE:
            said = ", ".join(filter(None, (option.name, option.type, f"default {default}", cells[3])))
            out.print(Padding(Text(f"{said}: {words}"), (0, 0, 0, 2)))
    if spec.options and out.width >= _WIDE:
        out.print(Padding(table, (0, 0, 0, 2)))
    out.print()
