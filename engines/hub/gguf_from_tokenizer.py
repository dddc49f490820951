"""What a GGUF file says of a tokenizer, from a model folder's tokenizer.json: the other way of ``gguf_folder``.

Byte-level BPE only, as llama.cpp reads it: its way to cut text before merges are applied goes by a name
(``tokenizer.ggml.pre``), so a folder that cuts in a way without one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.hub.gguf_config import SPECIAL_TOKENS, Unsupported
from engines.hub.gguf_folder import ends_by_name
from engines.hub.model_checks import check_tokenizer
from engines.hub.untrusted_json import is_count, object_in, read_object
from engines.vocabularies import byte_alphabet

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # ggml's types of a token
# How text is cut, and whether a word that is a token is taken without merging: by llama.cpp's names
# (its src/llama-vocab.cpp).
_SPLITS = {
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
     r"|\s+(?!\S)|\s+", True): "llama-bpe",
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
     r"|\s+(?!\S)|\s+", False): "qwen2",
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
     r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
     r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", True): "tekken",
}  # fmt: skip


def tokenizer_keys(folder: Path, rows: int, config: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The metadata of a folder's tokenizer by ggml's names, and remarks for the user.

    Args:
        rows: of the embedding; those without a token get one that no text has.
        config: the content of config.json, for the ids that the tokenizer does not state.

    Raises:
        OSError: unreadable.
        ValueError: damaged; as Unsupported: a tokenizer that llama.cpp would not read the same.
    """
    if not (folder / "tokenizer.json").exists():
        raise Unsupported("its tokenizer is in no tokenizer.json")
    check_tokenizer(folder)
    try:
        return _keys(folder, read_object(folder / "tokenizer.json"), _settings(folder), rows, config)
    except (TypeError, AttributeError, KeyError):
        raise ValueError(f"the tokenizer files in {folder.name} are damaged") from None


def _keys(
    folder: Path, found: dict[str, Any], settings: dict[str, Any], rows: int, config: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    model = object_in(found, "model")
    tokens, types = _vocabulary(model, found.get("added_tokens") or [], rows)
    ids = _special_ids(tokens, settings, config)
    bos, eos = _frame(found.get("post_processor"), ids, tokens)
    keys = {
        "model": "gpt2", "pre": _cut(found.get("pre_tokenizer"), model.get("ignore_merges") is True),
        "tokens": tokens, "token_type": types, "merges": _merges(model.get("merges")),
        **{f"{name}_token_id": number for name, number in ids.items()},
        **_other_ends(folder, ids, tokens, types, config),
        "add_bos_token": _said(settings, "add_bos_token", bos), "add_eos_token": _said(settings, "add_eos_token", eos),
    }  # fmt: skip
    keys = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    if (template := _template(folder, settings)) is not None:
        template.encode()  # half of a character cannot be written
        keys["tokenizer.chat_template"] = template
    return keys, _remarks(found.get("normalizer"))


def _settings(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json, with the special tokens that older folders name in a file of their own."""
    files = [folder / name for name in ("special_tokens_map.json", "tokenizer_config.json")]
    found: dict[str, Any] = {}
    for file in files:
        found |= read_object(file) if file.exists() else {}
    return found


def _vocabulary(model: dict[str, Any], added: Any, rows: int) -> tuple[list[str], list[int]]:
    """Texts and ggml's types of all tokens. Raises Unsupported."""
    plain = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False}
    words = object_in(model, "vocab")
    odd = [name for name, usual in plain.items() if model.get(name) not in (usual, "", None, False)]
    if model.get("type") != "BPE" or odd or not words:
        raise Unsupported("its tokenizer is no byte-level BPE")
    by_id = {number: (text, _NORMAL) for text, number in words.items()}
    for token in added if isinstance(added, list) else []:
        match token:
            case {"id": int(number), "content": str(text)}:
                if any(token.get(name) for name in ("lstrip", "rstrip", "single_word")):
                    raise Unsupported(f"its token {text[:40]!r} takes the spaces around it, or is a word of its own")
                by_id[number] = (text, _CONTROL if token.get("special") else _USER_DEFINED)
            case _:
                raise Unsupported("its tokenizer.json has an added token that is none")
    if not all(is_count(number) and number < rows for number in by_id):
        raise Unsupported(f"its tokenizer has more tokens than the model, which has {rows:,}")
    alphabet = byte_alphabet()
    if strange := next((text for text, _ in by_id.values() if not text or not set(text) <= alphabet.keys()), None):
        raise Unsupported(f"its token {strange[:40]!r} is not spelled in bytes, as llama.cpp would read it")
    table = [by_id.get(number, (f"[PAD{number}]", _UNUSED)) for number in range(rows)]
    tokens = [text for text, _ in table]
    if len(set(tokens)) != rows:
        raise Unsupported("its vocabulary has a token twice")
    return tokens, [kind for _, kind in table]


def _merges(merges: Any) -> list[str]:
    """Merges as ggml has them, two tokens with a space between them. Raises Unsupported."""
    found = [" ".join(pair) if isinstance(pair, list) and all(isinstance(p, str) for p in pair) else pair
             for pair in merges or []]  # fmt: skip
    if not found:
        raise Unsupported("its tokenizer has no merges, without which llama.cpp reads none")
    if not all(isinstance(merge, str) and len(merge.split(" ")) == 2 for merge in found):
        raise Unsupported("its tokenizer has a merge that is not of two tokens")
    return found


def _cut(pre: Any, whole_words: bool) -> str:
    """llama.cpp's name for how text is cut before it is merged. Raises Unsupported."""
    pre = pre if isinstance(pre, dict) else {}
    steps = pre.get("pretokenizers") if pre.get("type") == "Sequence" else [pre]
    *first, last = steps if isinstance(steps, list) and steps else [{}]
    if isinstance(last, dict) and last.get("type") == "ByteLevel" and not last.get("add_prefix_space", True):
        if last.get("use_regex", True):
            match first:
                case [] if not whole_words:
                    return "gpt-2"
                case [{"type": "Digits", "individual_digits": True}] if not whole_words:
                    return "smollm"
        else:
            match first:
                case [{"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", "invert": False}]:
                    if (regex, whole_words) in _SPLITS:
                        return _SPLITS[regex, whole_words]
    raise Unsupported("its tokenizer cuts text in a way that llama.cpp has no name for")


def _special_ids(tokens: list[str], settings: dict[str, Any], config: dict[str, Any]) -> dict[str, int]:
    """Special tokens by ggml's words for them: as the tokenizer names them, else by their numbers in config.json."""
    numbers = {text: number for number, text in enumerate(tokens)}
    found = {}
    for role, theirs in SPECIAL_TOKENS.items():
        named = settings.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        stated = config.get(f"{role}_token_id")
        number = numbers.get(named) if isinstance(named, str) else stated
        if is_count(number) and number < len(tokens):
            found[theirs] = number
    return found


def _other_ends(
    folder: Path, ids: dict[str, int], tokens: list[str], types: list[int], config: dict[str, Any]
) -> dict[str, int]:
    """The tokens that end an answer beside the one that the tokenizer names and those that llama.cpp knows by their
    text. Raises Unsupported: more than a file can state."""
    ends: list[Any] = []
    file = folder / "generation_config.json"
    for said in (config.get("eos_token_id"), read_object(file).get("eos_token_id") if file.exists() else None):
        ends += said if isinstance(said, list) else [said]
    left = {end for end in ends if is_count(end) and end < len(tokens)} - {ids.get("eos")}
    left = sorted(end for end in left if tokens[end] not in ends_by_name(tokens))
    if "eos" not in ids and left:
        ids["eos"], *left = left
    if len(left) > 2:
        raise Unsupported(f"{len(left) + 1} of its tokens end an answer; a GGUF file states three")
    return {f"{name}_token_id": end for name, end in zip(("eot", "eom"), left)}


def _frame(post: Any, ids: dict[str, int], tokens: list[str]) -> tuple[bool, bool]:
    """Whether the tokenizer itself puts its first token before a text, and its last one behind. Raises Unsupported."""
    post = post if isinstance(post, dict) else {}
    steps = post.get("processors") if post.get("type") == "Sequence" else [post]
    around: list[list[Any]] = [[], []]
    for step in steps if isinstance(steps, list) else []:
        if not isinstance(step, dict) or step.get("type") not in (None, "ByteLevel", "TemplateProcessing"):
            raise Unsupported("its tokenizer adds tokens to a text in a way that is not known here")
        behind = 0
        for part in step.get("single") or ():
            behind |= "Sequence" in part
            if "SpecialToken" in part:
                around[behind].append(object_in(part, "SpecialToken").get("id"))
    named = {name: [tokens[ids[name]]] if name in ids else None for name in ("bos", "eos")}
    if around[0] not in ([], named["bos"]) or around[1] not in ([], named["eos"]):
        raise Unsupported("its tokenizer adds tokens to a text that are not its first and last one")
    return bool(around[0]), bool(around[1])


def _said(settings: dict[str, Any], name: str, otherwise: bool) -> bool:
    return settings[name] if isinstance(settings.get(name), bool) else otherwise


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The chat template; the one called "default" where a folder has several."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    said = settings.get("chat_template")
    if isinstance(said, list):
        by_name = {one.get("name"): one.get("template") for one in said if isinstance(one, dict)}
        said = by_name.get("default")
    return said if isinstance(said, str) else None


def _remarks(normalizer: Any) -> tuple[str, ...]:
    """Of what the tokenizer does to a text first. Raises Unsupported for what would be noticed in plain texts."""
    if normalizer is None:
        return ()
    if isinstance(normalizer, dict) and normalizer.get("type") == "NFC":
        return ("its tokenizer composes accents first (NFC), which llama.cpp does not: the same tokens for texts that "
                "are composed already, as nearly all are",)  # fmt: skip
    raise Unsupported("its tokenizer changes a text before it cuts it, which llama.cpp does not")
