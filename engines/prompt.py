"""From a conversation to token ids."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from engines.errors import UsageProblem, first_line
from engines.request import Request


def encode(
    tokenizer: PreTrainedTokenizerBase, request: Request, vocab_size: int
) -> tuple[list[int], tuple[str, ...]]:
    """Token ids of the prompt, and warnings.

    With a chat template the conversation is rendered with it, ready for the assistant's turn; with ``raw``, or where
    the tokenizer has no template, the contents are joined by newlines and fed as they are. What the answer was begun
    with (``Request.continued``) follows.

    Raises:
        UsageProblem: the template refuses the conversation, nothing is left to feed, or a token is beyond the model's
            ``vocab_size``.
    """
    warnings: tuple[str, ...] = ()
    if request.raw or not tokenizer.chat_template:
        if not request.raw:
            warnings = ("the model has no chat template: the prompt is fed as it is",)
        ids = tokenizer("\n".join(content for _, content in request.conversation))["input_ids"]
    else:
        ids = _render(tokenizer, request)
    if not ids:
        raise UsageProblem("the prompt has no tokens", "type something to ask")
    ids = [*ids, *request.continued]
    if min(ids) < 0 or max(ids) >= vocab_size:
        wrong = max(ids) if min(ids) >= 0 else min(ids)
        raise UsageProblem(
            f"token {wrong} of the prompt is beyond the model's vocabulary of {vocab_size}",
            "the tokenizer is not this model's: check the model folder",
        )
    return list(ids), warnings


def _render(tokenizer: PreTrainedTokenizerBase, request: Request) -> list[int]:
    from jinja2.exceptions import TemplateError

    messages = [{"role": role, "content": content} for role, content in request.conversation]
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)[
            "input_ids"
        ]
    except (TemplateError, ValueError, TypeError) as error:
        raise UsageProblem(
            f"the model's chat template refuses this conversation: {first_line(error)}",
            "leave out the system prompt, or use --raw",
        ) from None
