"""llama.cpp as an oracle: tokens and next-token distributions of a GGUF file."""

from __future__ import annotations

import ctypes
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here to compare with")


def served(settings: xllamacpp.CommonParams) -> xllamacpp.Server:
    """A server that lives as long as this process: to end one waits for its thread with the interpreter locked, now and
    then for ever."""
    server = xllamacpp.Server(settings)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
    return server


class LlamaCpp:
    """llama.cpp's own server with one model, on this machine alone."""

    def __init__(self, model: Path) -> None:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(model)
        settings.n_ctx, settings.n_parallel, settings.warmup = 256, 1, False
        settings.cpuparams.n_threads = 1
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.verbosity = -1
        self.server = served(settings)

    def tokens(self, text: str) -> list[int]:
        """A text's tokens."""
        return self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def conversation(self, turns: Sequence[tuple[str, str]]) -> list[int]:
        """The tokens of a conversation as its server feeds it, ready for an answer."""
        messages = [{"role": role, "content": content} for role, content in turns]
        return self.tokens(self._post("/apply-template", {"messages": messages})["prompt"])

    def ends(self, token: int) -> bool:
        """Whether a generation stops where this token is written."""
        only = {"prompt": [1], "n_predict": 2, "logit_bias": [[token, 1e6]], "temperature": 0.0}
        return self._post("/completion", only)["stop_type"] == "eos"

    def logprobs(self, tokens: list[int], count: int, written: int) -> dict[int, float]:
        """Log-probabilities of the ``count`` likeliest next tokens. ``written``: a token that is a whole character, the
        only ones that it reports of; it is what will be sampled, which changes no probability."""
        plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cache_prompt": False}
        plain["logit_bias"] = [[written, 1e6]]
        answer = self._post("/completion", {"prompt": tokens, "n_predict": 1, "n_probs": count, **plain})
        return {row["id"]: row["logprob"] for row in answer["completion_probabilities"][0]["top_logprobs"]}

    def _post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)
