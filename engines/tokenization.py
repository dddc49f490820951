"""From a conversation to token ids, and from token ids to text."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from jinja2 import Environment, TemplateError, TemplateSyntaxError, nodes
from tokenizers import AddedToken

from engines.errors import UsageProblem, first_line
from engines.hub.gguf_folder import ends_by_name
from engines.libraries.hf import Tokenizer
from engines.machine import limited
from engines.request import Request
from engines.vocabularies import byte_alphabet

_ANSWER = "b"  # an answer of which only its end is of interest
_BRIEF = 10**8  # characters put together in a fraction of a second
_SIMPLE = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem,
    nodes.Slice, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Test, nodes.CondExpr, nodes.Add,
    nodes.Sub, nodes.Concat,
)


def encode(tokenizer: Tokenizer, request: Request, vocab_size: int) -> tuple[list[int], tuple[str, ...]]:
    """Token ids of the prompt, and warnings.

    With a chat template the conversation is rendered with it, ready for the assistant's turn; with ``raw``, or where
    the tokenizer has no template, the contents are joined by newlines and fed as they are. What the answer was begun
    with (``Request.continued``) follows. The text of a special token in a content is text, unless ``raw`` is asked for;
    the template's own are tokens. Raises UsageProblem: the template refuses the conversation, nothing is left to feed,
    or a token is beyond the model's ``vocab_size``.
    """
    warnings: tuple[str, ...] = ()
    if request.raw or not tokenizer.chat_template:
        text = "\n".join(content for _, content in request.conversation)
        ids = plain(tokenizer, text) if not request.raw else _one_begin(tokenizer, text)
        if not request.raw:
            warnings = ("the model has no chat template: the prompt is fed as it is",)
    else:
        ids = _templated(tokenizer, request)
    if not ids:
        raise UsageProblem("the prompt has no tokens", "type a prompt")
    foreign = next((token for token in request.continued if not 0 <= token < vocab_size), None)
    if foreign is not None:
        raise UsageProblem(f"token {foreign} to continue from is beyond the model's vocabulary of {vocab_size}",
                           "continue answers of this model, or of one with the same tokens")
    ids = [*ids, *request.continued]
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = max(ids) if min(ids) >= 0 else min(ids)
        raise UsageProblem(f"token {wrong} of the prompt is beyond the model's vocabulary of {vocab_size}",
                           "the tokenizer is not this model's: check the model folder")
    return ids, warnings


def plain(tokenizer: Tokenizer, text: str, begin: bool = True) -> list[int]:
    """Token ids of somebody's text, in which the name of a special token is text. ``begin``: with what the tokenizer
    puts before a prompt."""
    return tokenizer(text, add_special_tokens=begin, split_special_tokens=True, verbose=False)["input_ids"]


def _one_begin(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text as it is, its special tokens too, without the begin token that the tokenizer puts before one which
    has it already."""
    own, ids, begin = _ids(tokenizer, text), tokenizer(text, verbose=False)["input_ids"], tokenizer.bos_token_id
    return ids[1:] if begin is not None and own[:1] == [begin] and ids[: 1 + len(own)] == [begin, *own] else ids


def _templated(tokenizer: Tokenizer, request: Request) -> list[int]:
    """The ids of a conversation in its template's words. A GGUF file that says so has its begin token put before them,
    as by llama.cpp, unless the template wrote it."""
    conversation, special = request.conversation, _special(tokenizer)
    if not any(special.texts.search(content) for _, content in conversation):
        ids = _ids(tokenizer, _render(tokenizer, conversation))
    else:
        marks = special.marks({*tokenizer.chat_template}.union(*(content for _, content in conversation)))
        broken = tuple((role, special.broken(content, marks)) for role, content in conversation)
        ids = special.ids(tokenizer, _render(tokenizer, broken), marks)
    begin = plain(tokenizer, "")[:1] if getattr(tokenizer, "begins_templates", False) else []
    return ids if ids[:1] == begin else begin + ids


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a rendered text, whose special tokens are the template's."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


class _Special:
    """The special tokens of a tokenizer, looked for in texts. A character of no text here may stand in for the first of
    a special token's (``marks``): what a user typed is then no token, for the template either."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        known = sorted((t for t in tokens if t.special and t.content), key=lambda t: -len(t.content))
        self._first = sorted({token.content[0] for token in known})
        self.texts = re.compile("|".join(re.escape(t.content) for t in known) or r"(?!)")
        around = (r"\s*" * t.lstrip + re.escape(t.content) + r"\s*" * t.rstrip for t in known)
        self._with_spaces = re.compile("|".join(around) or r"(?!)")

    def marks(self, used: set[str]) -> dict[str, str]:
        """First characters of special tokens, and for each one that isn't ``used``, of those that stand for nothing."""
        free = (ch for ch in map(chr, range(0xE000, 0xF900)) if ch not in used)
        return dict(zip(self._first, free))

    def broken(self, text: str, marks: dict[str, str]) -> str:
        """The text without special tokens."""
        while self.texts.search(text):
            text = self.texts.sub(lambda found: marks[found[0][0]] + found[0][1:], text)
        return text

    def ids(self, tokenizer: Tokenizer, text: str, marks: dict[str, str]) -> list[int]:
        """Ids of a rendered text: stretches between two special tokens in which something is marked are text, all else
        is cut as ever."""
        back, marked = str.maketrans({mark: ch for ch, mark in marks.items()}), set(marks.values())
        found, begun, at = [], 0, 0
        for end, after in [*(m.span() for m in self._with_spaces.finditer(text)), (len(text), len(text))]:
            if marked.intersection(text[at:end]):
                found += _ids(tokenizer, text[begun:at]) if at > begun else []
                with _going_on(tokenizer, at > 0):
                    found += plain(tokenizer, text[at:end].translate(back), begin=False)
                begun = end
            at = after
        return found + (_ids(tokenizer, text[begun:]) if begun < len(text) else [])


_SPECIAL: WeakKeyDictionary[Tokenizer, _Special] = WeakKeyDictionary()


def _special(tokenizer: Tokenizer) -> _Special:
    found = _SPECIAL.get(tokenizer)
    if found is None:
        found = _SPECIAL[tokenizer] = _Special(tokenizer.added_tokens_decoder.values())
    return found


@contextmanager
def _going_on(tokenizer: Tokenizer, inside: bool) -> Iterator[None]:
    """Within, a text that stands ``inside`` another gets no space before it that only a text's begin gets."""
    cut = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    if not inside or getattr(cut, "prepend_scheme", None) != "first":
        yield
        return
    cut.prepend_scheme = "never"
    try:
        yield
    finally:
        cut.prepend_scheme = "first"


def _render(tokenizer: Tokenizer, conversation: tuple[tuple[str, str], ...], answer: bool = True) -> str:
    """The text of a conversation, ready for an ``answer`` or not. A template is a program of the model's author: it may
    run for ever, or fill the memory. Limits take a process, and most templates show that they need none."""
    if not isinstance(tokenizer.chat_template, str):
        raise UsageProblem("none of the model's chat templates is named default", "use --raw")
    messages = [{"role": role, "content": content} for role, content in conversation]

    def render() -> tuple[str, str]:
        """The text, and what makes the template none."""
        try:
            return tokenizer.apply_chat_template(messages, add_generation_prompt=answer, tokenize=False), ""
        except TemplateSyntaxError as error:
            return "", f"line {error.lineno}: {error.message}"

    characters = sum(len(content) for _, content in conversation)
    names = _names_put_together(tokenizer.chat_template)
    brief = names is not None and names * len(messages) * characters < _BRIEF
    try:
        text, damage = render() if brief else limited(render)
    except Exception as error:
        hint = "leave out the system prompt, or use --raw" if conversation[0][0] == "system" else "use --raw"
        raise UsageProblem(f"the model's chat template refuses this conversation: {first_line(error)}", hint) from None
    if damage:
        raise UsageProblem(f"the model's chat template is damaged: {damage}", "get the model again, or use --raw")
    if not text.strip():
        raise UsageProblem("the model's chat template makes no text of this prompt", "use --raw")
    return text


def end_tokens(tokenizer: Tokenizer, *settings: Any) -> frozenset[int]:
    """All tokens that end an answer: those that configurations and the tokenizer name, special tokens that end one by
    their name, and what the chat template writes after an answer. A model that ends its turn by any of them would go
    on with the user's."""
    ends: set[int] = set()
    for holder in (*settings, tokenizer):
        said = getattr(holder, "eos_token_id", None)
        ends |= {said} if isinstance(said, int) else {*(said or ())}
    known = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    ends |= {known[text] for text in ends_by_name(known)}
    if tokenizer.chat_template:
        with suppress(UsageProblem):
            written = _render(tokenizer, (("user", "a"), ("assistant", _ANSWER)), answer=False).rpartition(_ANSWER)[2]
            if end := _special(tokenizer).texts.match(written.lstrip()):
                ends.add(known[end[0]])
    return frozenset(ends)


@lru_cache
def _names_put_together(template: str) -> int | None:
    """How often a chat template uses a variable, if all it does is to go over the messages once and put texts together:
    its work is then that number times the texts. None where it does anything else, or isn't a template."""
    try:
        tree = Environment().parse(template)
    except (TemplateError, RecursionError):
        return None
    todo, names = [tree], 0
    while todo:
        node = todo.pop()
        if not _is_simple(node):
            return None
        names += isinstance(node, nodes.Name)
        todo += node.iter_child_nodes()
    return names


def _is_simple(node: nodes.Node) -> bool:
    match node:
        case nodes.For():
            once = isinstance(node.iter, nodes.Name) and node.iter.name == "messages" and all(
                map(_over_nothing, node.find_all(nodes.For)))
            return (once or _over_nothing(node)) and not node.recursive
        case nodes.Name(name="messages" | "tools"):
            return node.ctx == "load"
        case nodes.Assign():
            return not isinstance(node.target, nodes.NSRef) and not any(node.find_all((nodes.Add, nodes.Concat)))
        case nodes.Filter():
            return node.name in ("trim", "upper", "lower", "tojson") and not node.args and not node.kwargs
        case nodes.Call():
            return isinstance(node.node, nodes.Name) and node.node.name == "raise_exception"
    return isinstance(node, _SIMPLE)


def _over_nothing(loop: nodes.For) -> bool:
    """Whether it goes over tools or their calls: there are none here."""
    over = loop.iter
    return (isinstance(over, nodes.Name) and over.name == "tools") or (
        isinstance(over, nodes.Getattr) and over.attr == "tool_calls" and isinstance(over.node, nodes.Name))


_PARTS = re.compile("(?:<0x[C-F][0-9A-F]>)(?:<0x[89AB][0-9A-F]>){1,3}")  # labels of a character's bytes


class Detokenizer:
    """A tokenizer's way back: ``stream()`` for an answer, ``piece()`` for a label, ``text()`` for a passage."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        decoder = getattr(self._backend, "decoder", None)  # its state is JSON; the whole tokenizer's takes 0.1 s
        self._decoder = json.loads(decoder.__getstate__()) if decoder is not None else None
        self._bytes = byte_alphabet() if '"ByteLevel"' in json.dumps(self._decoder) else None
        self._data: _Once | None = None
        self.piece = _Once(self._label).__getitem__  # asked for every drafted token: no function of ours in between
        """The token's own text: special tokens by name, half a character as ``<0xE4>``, unknown ids as ``<id 9>``."""

    def text(self, tokens: Iterable[int]) -> str:
        """The labels of tokens that follow each other; bytes that make a character together are shown as that."""
        return _PARTS.sub(_whole, "".join(map(self.piece, tokens)))

    def stream(self) -> ByteStream | SlowStream:
        """A fresh decoder of one answer; ``step(token)`` returns the text it completes."""
        if self._bytes is None or self._decoder["type"] != "ByteLevel":  # or it is one of several steps
            # tokenizers' own stream breaks on byte-fallback vocabularies, where a lone byte can follow finished text
            return SlowStream(self.tokenizer)
        if self._data is None:
            special = {token for token, added in self._backend.get_added_tokens_decoder().items() if added.special}
            self._data = _Once(lambda token: b"" if token in special else self._encoded(token))
        return ByteStream(self._data)

    def _encoded(self, token: int) -> bytes:
        """The bytes a token of a byte-level vocabulary stands for."""
        raw = self._backend.id_to_token(token) if token >= 0 else None
        if raw is None:
            return b""
        plain = all(ch in self._bytes for ch in raw)  # else an added token, stored as plain text
        return bytes(self._bytes[ch] for ch in raw) if plain else raw.encode()

    def _label(self, token: int) -> str:
        raw = self.tokenizer.convert_ids_to_tokens(token) if 0 <= token < len(self.tokenizer) else None
        if raw is None:
            return f"<id {token}>"
        if isinstance(raw, bytes):
            raw = raw.decode("utf-8", "replace")
        if token in self._special:
            return raw
        if self._bytes is None:
            return raw.replace("▁", " ")
        data = self._encoded(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "".join(chr(b) if b < 0x80 else f"<0x{b:02X}>" for b in data)


def _whole(parts: re.Match[str]) -> str:
    try:
        return bytes.fromhex(parts[0].replace("<0x", "").replace(">", "")).decode()
    except UnicodeDecodeError:
        return parts[0]


class _Once(dict):
    """What a function says of each token, asked once."""

    def __init__(self, say: Callable[[int], Any]) -> None:
        super().__init__()
        self._say = say

    def __missing__(self, token: int) -> Any:
        said = self[token] = self._say(token)
        return said


class ByteStream:
    """Streaming over a vocabulary of bytes: text is held back until its characters are complete."""

    def __init__(self, data: Mapping[int, bytes]) -> None:
        self._data, self._decoder = data, codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: int) -> str:
        """What this token adds to the text."""
        return self._decoder.decode(self._data[token])


class SlowStream:
    """The same for any other tokenizer: decode a short window again with each token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._ids, self._start, self._done = tokenizer, [], 0, 0

    def step(self, token: int) -> str:
        """What this token adds to the text."""
        self._ids.append(token)
        before = self._decode(self._ids[self._start : self._done])
        after = self._decode(self._ids[self._start :])
        if len(after) <= len(before) or after.endswith("\ufffd"):
            return ""
        self._start, self._done = self._done, len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)
