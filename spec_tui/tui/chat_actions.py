"""Everything that can be done on the chat screen; ``slash`` and the help page read it without loading the screen."""

from __future__ import annotations

from typing import Any

from spec_tui.present.token_styles import VIEWS
from spec_tui.tui.actions import BY_OUTCOME, EXAMPLES, Action, can


def _answered(chat: Any) -> bool:
    """Whether there is an answer to measure and to check, and an engine that is free for it."""
    session = chat.session
    return session.phase == "ready" and not session.busy and session.last is not None and session.last.kept


CHAT = (
    Action(id="chat.close", run="close", keys="escape", label="Close", footer=True, palette="",
           help="Close what is open: a list, a notice, an enlarged panel, the token cursor",
           when=lambda chat: chat.escape_does == "close"),
    Action(id="run.stop", run="stop", keys="escape", label="Stop", footer=True, palette="Stop",
           help="Stop the answer and keep its text; stop loading", when=lambda chat: chat.escape_does == "stop"),
    Action(id="chat.text", run="text", keys="escape", label="Text", footer=True, palette="",
           help="Leave the prompt or the panel for the text, where letters are keys",
           when=lambda chat: chat.escape_does == "text"),
    Action(id="chat.view", run="view", keys="v", label="View", footer=True, palette="", command="view",
           choices=tuple(VIEWS), offered=lambda chat: chat.in_text, help=BY_OUTCOME),
    Action(id="run.baseline", run="baseline", keys="b", anywhere="f7", label="Baseline", footer=True,
           palette="Measure baseline", command="baseline",
           help="Answer the last prompt without drafts, to compare speed and text", when=can("baseline"),
           offered=_answered),
    Action(id="run.audit", run="audit", keys="a", anywhere="f6", label="Audit", footer=True,
           palette="Audit the answer", command="audit",
           help="Check every token of the answer (under the cursor, else the last) against the target",
           when=can("audit"), offered=_answered),
    Action(id="chat.engine", run="engine", opens=True, anywhere="ctrl+e,f2", label="Engine", footer=True,
           palette="Engine and options", help="Choose the engine, its options and sampling", when=can("ask")),
    Action(id="chat.showcase", run="showcase", opens=True, keys="ctrl+o,f3", label="Examples", palette="Examples",
           command="showcase", help=EXAMPLES, when=can("ask")),
    Action(id="run.again", run="again", anywhere="ctrl+r,f4", label="Again", palette="Ask again", command="again",
           help="Ask the last prompt again with the same seed; restart a dead or stuck engine", when=can("ask")),
    Action(id="run.restart", run="restart", label="Restart", palette="Restart the engine",
           help="Start the engine again; the conversation is kept",
           when=lambda chat: chat.session.restartable),
    Action(id="chat.new-key", run="ask_new", keys="n", label="New", palette="",
           help="Start a new conversation (press twice)", when=can("ask")),
    Action(id="chat.new", run="new", label="New", palette="New conversation", command="new",
           help="Start a new conversation", when=can("ask")),
    Action(id="chat.history", run="history", opens=True, keys="h", label="History", palette="Conversations",
           command="history", help="Earlier conversations: continue, rename, delete", when=can("ask")),
    Action(id="chat.forget", run="forget_answers", label="Forget", palette="Forget past answers", command="forget",
           help="Say how many past answers are kept for drafts; with all, delete them. Conversations stay",
           choices=("all",), when=can("ask")),
    Action(id="chat.race", run="race", opens=True, keys="r", label="Race", palette="Race", command="race",
           help="Engines side by side on one prompt", when=can("race")),
    Action(id="chat.papers", run="papers", opens=True, label="Papers", palette="Papers' tables", command="papers",
           help="Tables of papers: what they show, and their rows as lanes of a race", when=can("race")),
    Action(id="chat.evaluate", run="evaluate", opens=True, keys="E", label="Evaluate", palette="Evaluate",
           command="evaluate", help="Find the engine and settings that are fastest with this model and your prompts",
           when=can("race")),
    Action(id="chat.price", run="price", opens=True, keys="p,f10", label="Price", palette="Cost of verification",
           command="price", help="What verification costs, and whether drafting is faster"),
    Action(id="chat.explain", run="explain", opens=True, keys="w", label="Explain", palette="Why faster or slower",
           command="explain", help="Why the answer was faster or slower than without drafts, and what to try first"),
    Action(id="chat.step", run="step", opens=True, keys="full_stop", label="Step", palette="Step through the answer",
           command="step", help="Go through the answer phase by phase, with explanations, from the cursor's round on"),
    Action(id="chat.learn", run="learn", opens=True, label="Lessons", palette="Lessons", command="learn",
           help="Speculative decoding in short lessons", when=can("ask")),
    Action(id="chat.models", run="models", opens=True, keys="o", anywhere="ctrl+l", label="Models",
           palette="Models", command="model", help="Choose another target or draft model; the conversation is kept",
           when=can("ask")),
    Action(id="chat.data", run="data", opens=True, keys="d", label="Data", palette="Datastores", command="data",
           help="Datastores: choose which are searched; build, probe, remove", when=can("datastores")),
    *(Action(id=f"chat.view-{view}", run=f"view('{view}')", label="View", palette=f"View: {view}",
             help=words) for view, words in VIEWS.items()),
    Action(id="chat.ghosts", run="ghosts", keys="g", label="Ghosts", palette="View: ghosts",
           help="Show or hide rejected drafts after the text while it is written"),
    Action(id="chat.tree", run="panel('tree')", keys="t,f5", label="Tree", palette="Panel: draft tree",
           help="Show or hide the draft tree"),
    Action(id="chat.speed", run="panel('speed')", keys="s,f8", label="Speed", palette="Panel: speed",
           help="Show or hide the speed panel"),
    Action(id="chat.layers", run="layers", keys="l", label="Layers", palette="Panel: layers", command="layers",
           help="Focus the layers panel; press again to hide it"),
    Action(id="chat.details", run="details", keys="x", label="Details", palette="Panels: details",
           help="Panels: the short view, or all details"),
    Action(id="chat.enlarge", run="enlarge", keys="m,f9", label="Enlarge", palette="Panel: enlarge",
           help="Enlarge the focused panel"),
    Action(id="chat.prompt", run="prompt", keys="i,enter", label="Prompt", footer=True, palette="",
           help="Go to the prompt; so does a click on it", when=can("ask"),
           offered=lambda chat: not chat.escape_does),  # where esc has brought one
    Action(id="chat.slash", run="slash", keys="slash", label="Command", palette="",
           help="Go to the prompt and begin a command there", when=can("ask")),
    Action(id="chat.copy", run="copy(False)", keys="y", label="Copy", palette="Copy: answer", help="Copy the answer"),
    Action(id="chat.copy-marked", run="copy(True)", keys="Y", label="Copy marked", palette="Copy: marked answer",
           help="Copy the answer with corrections marked (CriticMarkup)"),
    Action(id="chat.export", run="export", keys="e", label="Export", palette="Export",
           help="Save the answer as a trace, Markdown, a web page or a recording, or the screen as a picture"),
)

PLAYBACK = (
    Action(id="replay.pause", run="pause", keys="space", label="Play", footer=True, when=can("clock"),
           help="Play or pause the recording; at its end, play it again"),
    Action(id="replay.faster", run="speed(1)", keys="greater_than_sign", label="Faster", footer=True, when=can("clock"),
           help="Twice as fast"),
    Action(id="replay.slower", run="speed(-1)", keys="less_than_sign", label="Slower", footer=True, when=can("clock"),
           help="Half as fast"),
    Action(id="replay.round", run="one_round", keys="N", label="One round", when=can("clock"),
           help="Play one more round, then pause"),
    Action(id="replay.again", run="rewind", anywhere="ctrl+r,f4", label="Rewind", footer=True,
           palette="From the start", help="Play it from the beginning", when=can("clock")),
    Action(id="replay.rest", run="rest", keys="0", label="To the end", when=can("clock"),
           help="Show the rest of this run at once"),
)
"""What can be done with the clock of a recording, on the same screen."""

APPLICATION = (
    Action(id="app.help", run="app.help", keys="f1", label="Help", footer=True, palette="Help",
           command="help", help="All keys, commands and symbols"),
    Action(id="app.explain", run="app.explain", keys="question_mark", label="What is this", palette="",
           help="Explain the term under the cursor; without one, show this help"),
    Action(id="app.glossary", run="app.glossary", anywhere="f12", label="Glossary", palette="Glossary",
           command="glossary", help="What the words and symbols on the screen mean"),
    Action(id="app.present", run="app.present", keys="P", label="Present", palette="Present",
           help="Presenter mode for a projector: large, light, without frames"),
    Action(id="app.quit", run="app.quit", anywhere="ctrl+q", label="Quit", footer=True, palette="Quit", command="quit",
           offered=lambda app: not (app.session.client.capabilities.ask or getattr(app.screen, "can_leave", True)),
           help="Leave spec-tui"),  # in the footer where esc leads nowhere
)
"""What can be done on every screen."""
