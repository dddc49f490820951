"""Runs as a web page: one file, no script, nothing from outside. Colours and views are the application's; pointing at a
token tells its facts; a run plays by the engine's clock."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from engines.report.run_state import RunState, TokenState
from spec_tui.export import about
from spec_tui.present import token_styles as marks
from spec_tui.present.narration import question
from spec_tui.present.rejected import interleaved
from spec_tui.present.styles import DARK, LIGHT, all_styles, style_named
from spec_tui.present.text import one_line, sanitise, visible
from spec_tui.present.token_facts import facts, fate

_ATTRIBUTES = {
    "bold": "font-weight:700", "italic": "font-style:italic", "underline": "text-decoration:underline",
    "underline2": "text-decoration:underline double", "strike": "text-decoration:line-through",
}
_TOLD = 5  # of the target's most probable tokens

_LAYOUT = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.5rem;background:var(--background);color:var(--foreground);
 font:16px/1.6 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
h1{font-size:1.2rem;color:var(--primary)} h2{font-size:1rem;color:var(--primary);margin:2rem 0 .5rem}
fieldset{display:inline-block;border:1px solid var(--border);border-radius:.3rem;margin:0 .6rem .6rem 0;padding:0 .7rem}
label{margin-right:.8rem;white-space:nowrap} .muted,legend,td:first-child,th{color:var(--tok-prompt)}
.prompt{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--primary);padding-left:.8rem;
 color:var(--tok-prompt)}
.answer{position:relative;white-space:pre-wrap;overflow-wrap:anywhere;margin:1rem 0}
.t{cursor:help} .t:hover,.t:focus{outline:1px solid var(--foreground)}
.t:hover::after,.t:focus::after{content:attr(data-facts);position:absolute;left:0;margin-top:1.7em;z-index:9;width:max-content;
 max-width:100%;padding:.5rem .7rem;background:var(--panel);color:var(--foreground);white-space:pre-wrap;
 border:1px solid var(--border);border-radius:.3rem;font:400 13px/1.5 ui-monospace,monospace;text-decoration:none}
.ghost{display:none} .legend .ghost,body:has(#view-rejected:checked) .ghost{display:inline}
.legend{display:none} .legend span{margin-right:1.2rem} .t{--at:0s}
@keyframes written{from{opacity:0}} body:has(#play:checked) :is(.t,.ghost){animation:written 1ms var(--at) both}
table{border-collapse:collapse;font-size:.85rem} td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
td{overflow-wrap:anywhere;white-space:pre-wrap} td:first-child{white-space:nowrap} .wide{overflow-x:auto}
@media print{fieldset{display:none}}
"""


def page(runs: Sequence[RunState], rejected: bool = False, problems: Sequence[str] = ()) -> str:
    """A whole HTML document of these runs, with the ``problems`` of their trace. Everything from models, prompts and
    files is escaped. With ``rejected`` it opens in the view that keeps rejected drafts in the text."""
    title = about.title(runs[0]) if runs else "spec-tui"
    choices = _choices(marks.REJECTED_KEPT if rejected else marks.OUTCOME)
    notes = [f"<p>{text_of(said)}</p>\n" for said in about.notes(problems)]
    return document(title, "".join([f"{choices}\n", *notes, *(part for run in runs for part in _run(run))]))


def document(title: str, body: str, more_style: str = "") -> str:
    """A whole HTML document in the colours of the application; ``body`` is markup, ``more_style`` rules."""
    return "".join([
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
        f"<title>{text_of(title)}</title>\n<style>{_style()}{more_style}</style>\n</head>\n<body>\n{body}",
        "</body>\n</html>\n",
    ])


def _style() -> str:
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK))
    rules = [f":root{{color-scheme:light dark;{light}}}",
             f"@media(prefers-color-scheme:dark){{:root:not(:has(#light:checked)){{{dark}}}}}",
             f":root:has(#dark:checked){{color-scheme:dark;{dark}}}", ":root:has(#light:checked){color-scheme:light}"]
    for view in marks.VIEWS:
        rules.append(f"body:has(#view-{view}:checked) .legend.{view}{{display:block}}")
    for view, styles in _styles().items():
        for style in styles:
            rules.append(f"body:has(#view-{view}:checked) .{style}{{{declarations_of(style)}}}")
            rules.append(f".legend .{style}{{{declarations_of(style)}}}")
    return _LAYOUT + "\n".join(rules)


def _styles() -> dict[str, list[str]]:
    """The style names of each view that has colours."""
    names = [name for name, style in all_styles().items() if style.legend]
    sources, heat = [n for n in names if n.startswith("by-")], ["sure", "likely", "unsure", "guess"]
    fates = [n for n in names if n not in (*sources, *heat, "ghost")]
    return {marks.OUTCOME: fates, marks.REJECTED_KEPT: [*fates, "ghost"], "source": sources, "confidence": heat}


def declarations_of(name: str) -> str:
    """The declarations of a style of the application."""
    colour, words = style_named(name).colour, style_named(name).attributes.split()
    out = [_ATTRIBUTES[word] for word in words if word in _ATTRIBUTES]
    out += ([f"background:var(--{colour})", "color:var(--background)"] if "reverse" in words
            else [f"color:var(--{colour})"])
    return ";".join(out)


def _choices(view: str) -> str:
    views = _radios("view", {f"view-{name}": name for name in marks.VIEWS}, f"view-{view}")
    themes = _radios("theme", {name: name for name in ("auto", "light", "dark")}, "auto")
    play = '<label><input type="checkbox" id="play"> as it was written</label>'
    return (f"<fieldset><legend>view</legend>{views}{play}</fieldset>"
            f"<fieldset><legend>theme</legend>{themes}</fieldset>")


def _radios(group: str, words: dict[str, str], first: str) -> str:
    """Buttons by id, of which one is chosen; ``first`` at the beginning."""
    return "".join(f'<label><input type="radio" name="{group}" id="{name}"{" checked" * (name == first)}> '
                   f'{said}</label>' for name, said in words.items())


def _run(run: RunState) -> Iterator[str]:
    yield f"<h1>{text_of(about.title(run))}</h1>\n"
    if run.started is not None:
        yield f'<div class="prompt">{text_of(question(run.started), lines=True)}</div>\n'
    written = list(interleaved(run))
    yield f'<div class="answer">{"".join(_token(run, index, gone) for index, gone in written)}</div>\n'
    for view in _styles():
        present = marks.present(run.tokens, view) | ({"ghost"} if any(gone for _, gone in written) else set())
        words = "".join(f'<span class="{name}">{text_of(said)}</span>'
                        for name, said in marks.legend(present, view, [run]))
        yield f'<div class="legend {view}">{words}</div>\n'
    yield f"<h2>numbers</h2>\n{rows_as_table(about.outcome(run))}"
    if run.started is not None:
        yield f"<h2>how to repeat it</h2>\n{rows_as_table(about.origin(run.started))}"
    yield f"<h2>rounds</h2>\n{rows_as_table(about.rounds(run), about.ROUND)}"


def _token(run: RunState, index: int, gone: Sequence[str]) -> str:
    """A token, and before it the labels of what was rejected there."""
    token = run.tokens[index]
    at = run.clock[token.round] if token.round >= 0 else 0.0
    ghost = f'<del class="ghost" style="--at:{at:.3f}s">{text_of("".join(gone))}</del>' if gone else ""
    if not token.text:
        return ghost
    classes = " ".join(["t", *(marks.style_of(token, view) for view in (marks.OUTCOME, "source", "confidence"))])
    # The blanks before a word carry no line.
    inked = token.text.lstrip(" ") or token.text
    blanks = token.text[: len(token.text) - len(inked)]
    span = (f'<span class="{classes}" style="--at:{at:.3f}s" tabindex="-1" '
            f'data-facts="{text_of(_facts(run, token), lines=True)}">')
    return f"{ghost}{blanks}{span}{text_of(inked, lines=True)}</span>"


def _facts(run: RunState, token: TokenState) -> str:
    """Everything known about a token, a line each."""
    event = run.rounds[token.round] if token.round >= 0 else None
    where = f"round {event.index}" if event else "prefill"
    lines = [f"{visible(token.piece)}   id {token.emitted.token}   {where}   {token.kind}, {token.source}",
             fate(run, token, event), *(f"{name}: {words}" for name, words in facts(run, token, event))]
    top = [f"{visible(choice.piece)} {choice.prob:.3f}" for choice in token.emitted.top[:_TOLD]]
    return "\n".join([*lines, *(["likeliest: " + "   ".join(top)] if top else [])])


def rows_as_table(rows: Iterable[Sequence[str]], names: Sequence[str] = ()) -> str:
    """Cells as a table, with a header where there are names."""
    head = f"<tr>{''.join(f'<th>{text_of(name)}</th>' for name in names)}</tr>" if names else ""
    body = "".join(f"<tr>{''.join(f'<td>{text_of(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table>{head}\n{body}</table></div>\n'


def preformatted(text: str) -> str:
    """Lines to be copied, as they are."""
    return f'<pre class="wide">{text_of(text, lines=True)}</pre>\n'


def text_of(text: str, lines: bool = False) -> str:
    """Text that is no markup, for an element or an attribute; with ``lines`` its breaks stay."""
    return html.escape(sanitise(text) if lines else one_line(text), quote=True)
