"""A datastore's manifest in words."""

from __future__ import annotations

from engines.report.wording import counted


def source_words(sources: object) -> str:
    """Where the text of a datastore came from, unclean: the manifest may contain anything."""
    if not isinstance(sources, dict):
        return ""
    kind, parts, roots = sources.get("kind"), sources.get("parts"), sources.get("roots")
    if kind == "joined" and isinstance(parts, list):
        return "; ".join(filter(None, map(source_words, parts)))
    if kind == "files" and isinstance(roots, list):
        return f"{', '.join(map(str, roots))}: {_number_of(sources.get('files'), 'file')}"
    if kind == "model-answers":
        how = "greedy" if not sources.get("temperature") else f"temperature {sources['temperature']}"
        return f"the model's answers to {_number_of(sources.get('prompts'), 'prompt')}, {how}"
    if isinstance(sources.get("of"), dict):  # built of another datastore's text
        return f"another datastore: {source_words(sources['of'])}"
    hidden = ("digest", "model", "kind")
    words = [f"{k} {value}" for k, value in sources.items() if k not in hidden and value not in ("", [], {}, None)]
    return ", ".join([str(kind), *words])


def _number_of(value: object, word: str) -> str:
    return counted(value, word) if isinstance(value, int) else f"{value} {word}s"
