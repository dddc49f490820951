"""Why a token is there: who proposed it, how likely it was to whom, what the target chose."""

from __future__ import annotations

from textual.content import Content

from engines.laws import LawSpec, trying
from engines.report.events import Choice, Round, Trial
from engines.report.run_state import RunState, TokenState
from spec_tui.learn.glossary_entries import word_of
from spec_tui.present import audit_text as verdict
from spec_tui.present.step.nodes import origins_of
from spec_tui.present.text import sanitise, visible
from spec_tui.present.token_facts import facts, fate
from spec_tui.session.chat_session import ChatSession
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import TextModal
from spec_tui.tui.widgets.strip_panel import bar, fit
from spec_tui.tui.widgets.styled_widget import marked

NAME = 14
PASSAGE = 6  # lines of a datastore's text that are shown
TRIALS = 12  # of a law that are listed


class Inspector(TextModal[tuple[int, int]]):
    """Explains one token; left and right go to its neighbours. Gives back the token it was left on."""

    FRAME = ("token", "← → other tokens · ↑ ↓ scroll · esc closes")
    ACTIONS = (
        Action(id="inspect.left", run="step(-1)", keys="left", label="Previous", footer=True,
               help="The previous token"),
        Action(id="inspect.right", run="step(1)", keys="right", label="Next", footer=True, help="The next token"),
        Action(id="inspect.close", run="close", keys="enter", label="Close", help="Close"),
    )

    def __init__(self, session: ChatSession, cursor: tuple[int, int]) -> None:
        super().__init__()
        self.session, self.cursor = session, cursor

    @property
    def word_here(self) -> str:
        turn, index = self.cursor
        return word_of(self.session.turns[turn].run.tokens[index].kind)

    def action_step(self, step: int) -> None:
        turn, index = self.cursor
        if 0 <= index + step < len(self.session.turns[turn].run.tokens):
            self.cursor = (turn, index + step)
            self.lay_out()
            self.query_one("#scroll").scroll_home(animate=False)

    def action_close(self) -> None:
        self.dismiss(self.cursor)

    def text(self, width: int) -> Content:
        turn, index = self.cursor
        return explain(self.session.turns[turn].run, index)


def explain(run: RunState, index: int) -> Content:
    """Everything known about a token, as lines."""
    token = run.tokens[index]
    event = run.rounds[token.round] if token.round >= 0 else None
    law = run.started.law if run.started is not None else ""
    style = {"accepted": "$tok-accept", "corrected": "bold underline $tok-fixed", "bonus": "bold $tok-bonus"}
    lines = [
        Content.assemble((visible(token.piece), style.get(token.kind, "bold")),
                         (f"   id {token.emitted.token}   token {index + 1} of the answer   "
                          + (f"round {event.index}" if event else "prefill"), "$tok-prompt")),
        Content(""),
        marked(fate(run, token, event)),
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
        if token.prob is not None and all(c.token != token.emitted.token for c in token.emitted.top[:6]):
            lines.append(_choice(Choice(token.emitted.token, token.piece, token.emitted.prob), token))
    if token.emitted.trials:
        lines += [Content(""), *_trials(trying(law), token.emitted.trials, event)]
    return Content("\n").join(lines)


def _passage(event: Round | None, token: TokenState) -> list[Content]:
    """The text of the datastore that a token was copied from, as it stands there; what was drafted is marked."""
    if event is None or token.emitted.node < 0 or event.retrieval is None:
        return []
    found = event.retrieval.passages
    number = next((o.passage for o in origins_of(event, token.emitted.node) if o.passage is not None), -1)
    if not 0 <= number < len(found):
        return []
    passage = found[number]
    text = Content.assemble((sanitise(passage.before), "$tok-prompt"), ("│", "$border"),
                            (sanitise(passage.after), "italic $src-retrieval"))
    return [Content(""), Content("the passage; the draft begins after │"), *text.split("\n")[:PASSAGE]]


def _choice(choice: Choice, token: TokenState) -> Content:
    chosen = choice.token == token.emitted.token
    return Content.assemble(
        ("  ▸ " if chosen else "    ", "$primary"), (fit(visible(choice.piece), 16), "bold" if chosen else ""),
        f" {choice.prob:.3f} ", (bar(choice.prob, 24), "$primary"),
    )


def _trials(law: LawSpec, trials: tuple[Trial, ...], event: Round | None) -> list[Content]:
    """What a law tried where the token is, one by one, under a heading."""
    out = [marked(law.trials_title)]
    for number, trial in enumerate(trials[:TRIALS]):
        known = event is not None and 0 <= trial.node < len(event.draft.pieces)
        piece = visible(event.draft.pieces[trial.node]) if known else "?"
        style = "$tok-accept" if trial.accepted else "strike $tok-ghost"
        out.append(Content.assemble("    ", (fit(piece, 16), style), f" {law.trial(trial, trials[:number])}"))
    if len(trials) > TRIALS:
        out.append(Content(f"    … {len(trials) - TRIALS} more"))
    if note := law.trials_note(trials):
        out.append(Content(f"    {note}"))
    return out
