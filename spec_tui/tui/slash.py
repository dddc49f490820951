"""Commands typed into the prompt box: ``/engine pld``, ``/set num_tokens=8``. Settings in, settings out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from engines import methods
from engines.errors import UsageProblem
from engines.laws import LAWS
from engines.report.events import Ready
from spec_tui.present.on_screen import on_screen
from spec_tui.session.settings import FIT_LATER, SAMPLING, ChatSettings, stores, unavailable
from spec_tui.tui.actions import Action
from spec_tui.tui.chat_actions import APPLICATION, CHAT

# As typed, the sampling value it sets.
_SAMPLING = {
    "temp": "temperature", "top-p": "top_p", "top-k": "top_k", "min-p": "min_p",
    "repetition-penalty": "repetition_penalty", "no-repeat-ngram": "no_repeat_ngram_size", "seed": "seed",
    "law": "law", "max": "max_new_tokens",
}
_BY_NAME = {option.name: option for option in SAMPLING}
_ALONE = ("datastore", "system", "forget")  # which mean something without an argument, too
_ACTIONS = {action.command: action for action in (*CHAT, *APPLICATION) if action.command}
COMMANDS = {
    "engine": ("NAME", "choose the engine"),
    "set": ("OPTION=VALUE", "an option of the engine"),
    **{name: (_BY_NAME[key].range, _BY_NAME[key].help) for name, key in _SAMPLING.items()},
    "datastore": ("NAME ...", "datastores to search; without a name, the default ones"),
    "system": ("TEXT", "system prompt of the conversation; without a text, none"),
    **{name: (f"[{choices}]" if choices and name in _ALONE else choices, action.help)
       for name, action in _ACTIONS.items() for choices in (" | ".join(action.choices),)},
}
"""What can be typed, without the slash: the argument it takes, and what it does."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did: the settings after it, a sentence, and the screen's action that it starts ("": none)."""

    settings: ChatSettings
    message: str = ""
    action: str = ""


def is_command(text: str) -> bool:
    """A slash alone, or a text that starts with a slash and a letter, in one line unless it is a system prompt."""
    several = "\n" in text.strip() and not text.startswith("/system ")
    return (text.strip() == "/" or (text.startswith("/") and text[1:2].isalpha())) and not several


def sent(typed: str) -> str:
    """The prompt that is sent for what was typed: ``//`` stands for a slash that begins no command."""
    return typed[1:] if typed.startswith("//") else typed


def typed(sent: str) -> str:
    """What is typed to send this prompt."""
    return f"/{sent}" if is_command(sent) or sent.startswith("//") else sent


def execute(line: str, settings: ChatSettings, ready: Ready | None) -> CommandResult:
    """Run a command line. Raises UsageProblem with what there is instead."""
    name, _, argument = line.strip()[1:].partition(" ")
    argument = argument.strip()
    if name in _ACTIONS:
        return CommandResult(settings, action=_action_string(_ACTIONS[name], argument))
    if name in _SAMPLING:
        key = _SAMPLING[name]
        new = settings.with_sampling(key, argument)
        law = f"{LAWS[new.law].label}: {LAWS[new.law].summary}"
        return CommandResult(new, f"law set to {law}" if key == "law" else f"{key} is {getattr(new, key)}")
    handlers: dict[str, Callable[[str, ChatSettings, Ready | None], CommandResult]] = {
        "engine": _engine, "set": _set, "system": _system, "datastore": _datastore,
    }
    if name not in handlers:
        raise UsageProblem(f"there is no command /{name}", _suggest(name))
    return handlers[name](argument, settings, ready)


def complete(text: str, settings: ChatSettings, ready: Ready | None) -> dict[str, str]:
    """Whole lines that continue what is typed, each with what it does; first the line as it is, if it is whole."""
    if not is_command(text):
        return {}
    name, space, argument = text[1:].partition(" ")
    if not space:
        lines = {f"/{c}" + " " * (bool(takes) and c not in _ALONE): words
                 for c, (takes, words) in COMMANDS.items() if c.startswith(name)}
    else:
        *before, word = argument.split(" ") if name == "datastore" else [argument]  # several: the last one is completed
        start = " ".join((f"/{name}", *before))
        known = _arguments(name, before, settings, ready)
        lines = {f"{start} {value}": words for value, words in known.items() if value.startswith(word)}
    return {line: lines[line] for line in sorted(lines, key=lambda line: line != text)}


def describe(text: str) -> str:
    """A hint on the command being typed."""
    name = text[1:].partition(" ")[0]
    if name in COMMANDS:
        argument, words = COMMANDS[name]
        return f"/{name} {argument} — {words}" if argument else f"/{name} — {words}"
    found = [f"/{c}" for c in COMMANDS if c.startswith(name)]
    return "  ".join(found) if found else "no such command: " + _suggest(name)


def _arguments(name: str, before: list[str], settings: ChatSettings, ready: Ready | None) -> dict[str, str]:
    """What may follow a command, each with what it means; ``before`` are the words typed already."""
    if name == "engine":
        specs = methods.specs(ready.host if ready is not None else "")
        missing = {spec.id: on_screen(unavailable(spec, ready, settings.options(spec.id))) for spec in specs}
        return {spec.id: f"cannot run: {missing[spec.id]}" if missing[spec.id] else f"{spec.title}: {spec.summary}"
                for spec in specs}
    if name == "set":
        options = methods.find(settings.resolved(ready)).options
        values = {f"{o.name}={choice}": o.help for o in options for choice in o.choices}
        return {f"{o.name}=": f"{o.range}: {o.help}" for o in options} | values
    if name in _ACTIONS:
        return dict.fromkeys(_ACTIONS[name].choices, _ACTIONS[name].help)
    if name == "datastore":
        return {store: words for store, words in stores(ready).items() if store not in before}
    if _SAMPLING.get(name) == "law":
        return {law.name: f"{law.label}: {law.summary}" for law in LAWS.values()}
    return {}


def _action_string(action: Action, argument: str) -> str:
    """The action with what was typed after its command. Raises UsageProblem where that is none of its choices."""
    if argument in action.choices:
        return f"{action.run}('{argument}')"
    if action.choices and action.command not in _ALONE:
        said = f"there is no {action.command} {argument!r}" if argument else f"write /{action.command} NAME"
        raise UsageProblem(said, f"{action.command}s are: " + ", ".join(action.choices))
    if action.choices and argument:
        raise UsageProblem(f"/{action.command} does not take {argument!r}",
                           "it takes nothing, or " + " or ".join(action.choices))
    if argument:
        raise UsageProblem(f"/{action.command} takes no argument", f"type only /{action.command}")
    return action.run


def _engine(argument: str, settings: ChatSettings, ready: Ready | None) -> CommandResult:
    if not argument:
        offered = methods.specs(ready.host if ready is not None else "")
        raise UsageProblem("write /engine NAME", "engines are: " + ", ".join(spec.id for spec in offered))
    new = settings.with_engine(argument, ready)
    missing = on_screen(unavailable(methods.find(argument), ready, new.options(argument), new.datastores))
    return CommandResult(new, "engine: " + new.summary(ready) + (f"; {missing}" if missing else ""))


def _set(argument: str, settings: ChatSettings, ready: Ready | None) -> CommandResult:
    engine = settings.resolved(ready)
    name, equals, value = argument.replace(" ", "").partition("=")
    if not equals:
        names = ", ".join(o.name for o in methods.find(engine).options) or "none"
        raise UsageProblem("write /set OPTION=VALUE", f"options of {engine}: {names}")
    if command := next((typed for typed, key in _SAMPLING.items() if name in (typed, key)), ""):
        raise UsageProblem(f"{name} is not an engine option", f"/{command} {value} sets it")
    new = settings.with_option(engine, name, value)
    return CommandResult(new, f"{name} is {new.options(engine)[name]}")


def _datastore(argument: str, settings: ChatSettings, ready: Ready | None) -> CommandResult:
    new = settings.with_datastores(argument.replace(",", " ").split(), ready)
    engine = new.resolved(ready)
    said = "datastores: " + (", ".join(new.searched(ready)) or ("none fits the model" if ready else FIT_LATER))
    return CommandResult(new, said if new.retrieves(ready) else f"{said}; {engine} searches none, /engine rest does")


def _system(argument: str, settings: ChatSettings, ready: Ready | None) -> CommandResult:
    new = replace(settings, system=argument)
    return CommandResult(new, "system prompt set" if argument else "no system prompt")


def _suggest(name: str) -> str:
    close = get_close_matches(name, COMMANDS, 1)
    return f"did you mean /{close[0]}?" if close else "F1 lists the commands; so does / in an empty prompt"
