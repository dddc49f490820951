"""Why a token is there: who proposed it, how likely it was to whom, what the target chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from engines.core.tree import children
from engines.laws import trying
from engines.report.events import Choice, Layers, Origin, Round
from engines.report.run_state import RunState, TokenState, origin_of
from spec_tui.present import audit_words as verdict
from spec_tui.present import token_styles as marks
from spec_tui.present.text import LOSSY, one_line, sanitise, visible
from spec_tui.present.token_styles import marked
from spec_tui.tui.actions import Action
from spec_tui.tui.chat_session import ChatSession
from spec_tui.tui.price_words import budget_words
from spec_tui.tui.screens import trials
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.widgets.strip_panel import bar, fit

NAME = 14
PASSAGE = 6  # lines of a datastore's text that are shown


class Inspector(SpecModal[tuple[int, int]]):
    """Explains one token; left and right go to its neighbours. Gives back the token it was left on."""

    CSS_PATH: ClassVar = ["modal.tcss", "inspector.tcss"]
    ACTIONS = (
        Action(id="inspect.left", run="step(-1)", keys="left", label="Before", footer=True, help="The token before"),
        Action(id="inspect.right", run="step(1)", keys="right", label="After", footer=True, help="The next token"),
        Action(id="inspect.close", run="close", keys="enter", label="Close", help="Close"),
    )

    def __init__(self, session: ChatSession, cursor: tuple[int, int]) -> None:
        super().__init__()
        self.session, self.cursor = session, cursor

    def compose(self) -> ComposeResult:
        with Box("token", "← → other tokens · esc closes"):
            yield Static("", id="why", markup=False)

    def on_mount(self) -> None:
        self._draw()

    def action_step(self, step: int) -> None:
        turn, index = self.cursor
        if 0 <= index + step < len(self.session.turns[turn].run.tokens):
            self.cursor = (turn, index + step)
            self._draw()

    def action_close(self) -> None:
        self.dismiss(self.cursor)

    def _draw(self) -> None:
        turn, index = self.cursor
        self.query_one("#why", Static).update(explain(self.session.turns[turn].run, index))


def explain(run: RunState, index: int) -> Content:
    """Everything known about a token, as lines."""
    token = run.tokens[index]
    event = run.rounds[token.round] if token.round >= 0 else None
    law = run.started.law if run.started is not None else ""
    style = {"accepted": "$tok-accept", "corrected": "bold underline $tok-fixed", "bonus": "bold $tok-bonus"}
    lines = [
        Content.assemble((visible(token.piece), style.get(token.kind, "bold")),
                         (f"   id {token.emitted.token}   token {index} of the answer   "
                          + (f"round {event.index}" if event else "prefill"), "$tok-prompt")),
        Content(""),
        marked(fate(token, event, law)),
        Content(""),
    ]
    for name, words in facts(run, token, event):
        lines.append(Content.assemble((fit(name, NAME), "$tok-prompt"), marked(words)))
    for name, words in verdict.of_token(run.audited, index, token.emitted.token) if run.audited else ():
        lines.append(Content.assemble((fit(name, NAME), "$tok-prompt"), words))
    lines += _passage(event, token)
    if token.emitted.top:
        lines += [Content(""), Content("the target's distribution here")]
        lines += [_choice(c, token) for c in token.emitted.top[:6]]
        if all(c.token != token.emitted.token for c in token.emitted.top[:6]):
            lines.append(_choice(Choice(token.emitted.token, token.piece, token.emitted.prob), token))
    if token.emitted.trials:
        lines += [Content(""), *trials.lines(trying(law), token.emitted.trials, event)]
    return Content("\n").join(lines)


def fate(token: TokenState, event: Round | None, law: str = "") -> str:
    """One sentence on what happened."""
    if event is None:
        return "The first token comes from the prefill: the target had read the prompt, nothing was drafted yet."
    itself = token.source == "draft" and "exit_threshold" in event.note
    who = "a part of the target" if itself else marks.SOURCES.get(token.source, token.source)
    if token.emitted.trials:
        return trying(law).fate(token, who)
    if token.kind == "accepted":
        return f"Proposed ({who}), and the target chose the same token: accepted."
    if token.kind == "corrected":
        wrong = rivals(event)
        said = " or ".join(visible(p) for p in wrong[:3])
        return f"The draft said {said}; the target chose otherwise, and its token stands." if said else (
            "The target chose another token than the draft; its token stands.")
    if token.kind == "bonus":
        return "The whole path was accepted, so the same forward gave one more token of the target's own for free."
    return "Nothing was drafted in this round: the target wrote this token alone."


def rivals(event: Round) -> list[str]:
    """What was drafted at the place where the target wrote its own token, likeliest first."""
    nodes = children(event.draft.parents).get(event.path[-1] if event.path else -1, [])
    return [event.draft.pieces[n] for n in sorted(nodes, key=lambda n: -(event.draft.probs[n] or 0.0))]


def facts(run: RunState, token: TokenState, event: Round | None) -> Iterator[tuple[str, str]]:
    """Name and value of what is known."""
    e = token.emitted
    if event is not None and e.node >= 0:
        layers = run.prefilled.layers if run.prefilled else None
        yield "proposed by", "; and ".join(
            _part(layers) if layers and origin.source == "draft" else _origin(origin)
            for origin in _origins(event, e.node))
        q = event.draft.probs[e.node]
        yield "draft says", f"{q:.3f}" if q is not None else "no probability (copied, not predicted)"
    else:
        yield "proposed by", "the target itself"
    yield "target says", f"{e.prob:.3f}"
    if e.gap is not None:
        yield "won by", f"{e.gap:.3f} over the next best score" + (
            f", noise {e.noise:+.3f} included" if e.noise is not None else " (logits)")
    if event is not None:
        depth = sum(1 for t in run.tokens_of(token.round) if t.emitted.node >= 0)
        gained = len(event.emitted)
        plural = "s" if gained > 1 else ""
        yield "its round", f"{len(event.draft.tokens)} drafted, {depth} kept, {gained} token{plural} gained"
        kept, expected = budget_words(event.budget)
        if kept or expected:
            worth, tokens = f"{kept} worth verifying" if kept else "", f"{expected} tokens" if expected else ""
            yield "its budget", ", ".join(filter(None, (worth, tokens)))
        if event.bias is not None:
            law = f", law {one_line(run.started.law, 20)}" if run.started is not None else ""
            yield "bias", f"{event.bias:.3f} in this round: {LOSSY}{law}"


def _origins(event: Round, node: int) -> list[Origin]:
    """Who proposed a node: of a fused tree it may be two."""
    draft = event.draft
    second = [draft.origins[draft.also[node]]] if draft.also and draft.also[node] >= 0 else []
    return [origin_of(draft, node), *second]


def _passage(event: Round | None, token: TokenState) -> list[Content]:
    """The text of the datastore that a token was copied from, as it stands there; what was drafted is marked."""
    if event is None or token.emitted.node < 0 or event.retrieval is None:
        return []
    found = event.retrieval.passages
    origin = next((o for o in _origins(event, token.emitted.node) if o.source == "retrieval"), None)
    if origin is None or origin.passage is None or not 0 <= origin.passage < len(found):
        return []
    passage = found[origin.passage]
    text = Content.assemble((sanitise(passage.before), "$tok-prompt"), ("│", "$border"),
                            (sanitise(passage.after), "italic $src-retr"))
    return [Content(""), Content("the passage, after │ what followed there"), *text.split("\n")[:PASSAGE]]


def _part(layers: Layers) -> str:
    attention, mlp = (sum(map(bool, rules)) for rules in (layers.attention, layers.mlp))
    return f"the target without {attention} attention and {mlp} MLP sublayers of its {len(layers.attention)} layers"


def _origin(origin: Origin) -> str:
    words = marks.SOURCES.get(origin.source, origin.source)
    if origin.datastore:
        words += f" {one_line(origin.datastore, 40)}"
    if origin.document:
        words += f", document {one_line(origin.document, 60)}"
    if origin.line is not None:
        words += f", line {origin.line}"
    elif origin.place is not None:
        words += f", from position {origin.place}"
    if origin.match is not None:
        words += f", after a match of {origin.match} tokens"
    return words


def _choice(choice: Choice, token: TokenState) -> Content:
    chosen = choice.token == token.emitted.token
    return Content.assemble(
        ("  ▸ " if chosen else "    ", "$primary"), (fit(visible(choice.piece), 16), "bold" if chosen else ""),
        f" {choice.prob:.3f} ", (bar(choice.prob, 24), "$primary"),
    )
