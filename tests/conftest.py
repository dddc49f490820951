"""Small models and a byte tokenizer, made here; the shipped pair, loaded once."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # more processes than cores run tests
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "SPEC_TUI_TESTS_CUDA" not in os.environ:  # make test-cuda
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tempfile

import pytest
from hypothesis import HealthCheck, settings

from engines.hub.known_models import KNOWN
from engines.model.load_options import LoadOptions

# The user's own, which `make test` fetches; processes of the tests inherit where it is.
SMOLLM2 = Path(os.environ.setdefault("SPEC_TUI_TESTS_SMOLLM2", str(KNOWN["smollm2"].path)))
QWEN_CODER = tuple(Path(os.environ.setdefault(f"SPEC_TUI_TESTS_QWEN_CODER_{number}", str(model.path)))
                   for number, model in enumerate(KNOWN["qwen-coder"].files))
# What is measured or built here is not put beside what the user's own runs measured and built.
OWN = {name: tempfile.mkdtemp(prefix="spec-tui-tests-") for name in ("SPEC_TUI_CACHE_DIR", "SPEC_TUI_DATA_DIR")}
os.environ.update(OWN)
MADE = [*OWN.values()]  # by this process, which removes them
# Native code is compiled once for all processes of a test run.
if "SPEC_TUI_TESTS_NATIVE" not in os.environ:
    MADE.append(os.environ.setdefault("SPEC_TUI_TESTS_NATIVE", tempfile.mkdtemp(prefix="spec-tui-tests-")))
Path(OWN["SPEC_TUI_CACHE_DIR"], "native").symlink_to(os.environ["SPEC_TUI_TESTS_NATIVE"])

# On a busy machine an example takes long, which is no failure: a test as a whole has a limit (pyproject.toml).
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

ONE = LoadOptions(device="cpu", threads=1)
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def make_tokenizer(template: bool = True):
    """A byte-level tokenizer of 260 tokens: four special ones, then one for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    if template:
        fast.chat_template = TEMPLATE
    return fast


def make_llama(seed: int, vocab_size: int = 260, hidden: int = 32, layers: int = 2, context: int = 256, **changes):
    """A random Llama in float32 whose logits are spread enough to have opinions. Native code takes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(**{
        "vocab_size": vocab_size, "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": context,
        "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0, **changes,
    })
    return LlamaForCausalLM(config).eval()


TEXTS = (
    "Repeat: the cat sat on the mat, the cat sat on the hat, and the hat sat on the cat.",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
    "Write a Python function that adds two numbers. one two three one two three one two four.",
    "xxxx aaaa bbbb 0000 1111 the quick brown fox; the slow brown fox; the fox",
)


TURN = (("user", TEXTS[0]),)


class Texts:
    """A corpus of a few texts, and of one that is token ids."""

    unit = "documents"

    def __init__(self, tokens):
        self.texts, self.tokens, self.total = TEXTS, list(tokens), len(TEXTS) + 1
        self.identity = {"kind": "texts", "texts": list(TEXTS), "tokens": self.tokens}

    def documents(self, resume=None):
        from engines.datastores.building.corpus import Document

        for i in range(resume or 0, len(self.texts)):
            yield Document(f"text {i}", text=self.texts[i], line=1), i + 1
        yield Document("answer", tokens=self.tokens), self.total


def add_datastores(name: str, runtime) -> None:
    """Build a small datastore for a model, sparse and dense, once: texts, and what it answers to ``TURN``."""
    from dataclasses import replace

    from engines import Request
    from engines.datastores.building.build_datastore import build_datastore
    from engines.datastores.building.hidden_states import HiddenStates
    from engines.datastores.storage import catalog as places

    if all(entry.name != name for entry in places.listing()):
        started, *_, finished = runtime.run(Request(TURN, "autoregressive", max_new_tokens=80))
        corpus = Texts([*started.prompt, *finished.tokens])
        reader = HiddenStates(runtime.target, runtime.identity)
        build_datastore(name, corpus, runtime.tokenizer, reader, kind="both", index="exact")
    runtime.ready = replace(runtime.ready, datastores=runtime.open_datastores.searchable())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is seen on a screen or a terminal depends on how soon two busy cores draw it: such a test may fail once, and
    the summary names it (``-rR``)."""
    for item in items:
        if "tui" in item.path.parts or hasattr(item.module, "Terminal"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_unconfigure() -> None:
    for folder in MADE:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_finish() -> None:
    """All that was imported stays: each collection of garbage would look at its millions of objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> Iterator[None]:
    """Ctrl+c is heard by this process and those it starts, also where a shell started the tests with SIGINT ignored
    (in the background, say)."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_sweeps(monkeypatch) -> None:
    """Before each run of a race garbage is collected, which takes longer than all of the small ones."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


def make_tiny(name: str, place=lambda model: model, strict: bool = False):
    """A runtime on a tiny random target, a draft that agrees with it now and then (its first layers), and random
    heads, each model where ``place`` puts it. No clock decides what they draft."""
    from engines.cost.curve import CostCurve
    from engines.model.loading import wrap
    from engines.runtime import Prices, Runtime
    from tests.heads import make_head, make_medusa

    target = wrap(place(make_llama(1, layers=3)), f"{name}-target", LoadOptions(strict=strict))
    draft = make_llama(1, layers=3)
    draft.model.layers = draft.model.layers[:2]
    draft.config.num_hidden_layers = 2
    cheap, head, medusa = CostCurve(((1, 0.1), (64, 0.2))), make_head(target), make_medusa(target)
    prices = Prices(CostCurve(((1, 1.0), (64, 1.5))), cheap, {
        head.config.kind: cheap, medusa.config.kind: CostCurve(((1, 0.1), (4, 0.12)))})
    runtime = Runtime(target, make_tokenizer(), prices, draft=wrap(place(draft), f"{name}-draft"),
                      heads={found.config.kind: found for found in (head, medusa)})
    add_datastores(f"{name}-texts", runtime)
    return runtime


@pytest.fixture(scope="session")
def tiny():
    return make_tiny("tiny")


@pytest.fixture(scope="session")
def sample():
    """The shipped pair, on two threads where there are two cores."""
    from engines import load

    runtime = load(device="cpu", threads=min(2, os.cpu_count() or 1))
    add_datastores("sample-texts", runtime)
    return runtime


@pytest.fixture(scope="session")
def sample_gguf(tmp_path_factory):
    """The shipped pair as GGUF files of float32: the target's and the draft model's."""
    from engines.folders import sample_model
    from tests.sources.gguf_files import exported

    folder = tmp_path_factory.mktemp("gguf")
    return tuple(exported(sample_model(role), folder / f"{name}.gguf")
                 for role, name in (("target", "sample"), ("draft", "sample-draft")))


@pytest.fixture(scope="session")
def smollm2():
    """A real model on two threads, where it is on this machine."""
    from engines import load

    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    return load(str(SMOLLM2), device="cpu", threads=min(2, os.cpu_count() or 1))


@pytest.fixture(scope="session")
def qwen_coder():
    """The real pair on which drafting pays, on two threads, where it is on this machine."""
    from engines import load

    if not all(file.is_file() for file in QWEN_CODER):
        pytest.skip("it is not on this machine: tools/get_pair.py gets it, or says why it can't")
    target, draft = map(str, QWEN_CODER)
    return load(target, draft_model=draft, device="cpu", threads=min(2, os.cpu_count() or 1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Whether qwen-coder's tests ran, in the last lines."""
    of_pair = {outcome: [report for report in reports if "test_qwen_coder.py" in getattr(report, "nodeid", "")]
               for outcome, reports in terminalreporter.stats.items()}
    ran = sum(len(of_pair.get(outcome, ())) for outcome in ("passed", "failed"))
    skipped = of_pair.get("skipped")
    if ran:
        terminalreporter.write_line(f"qwen-coder: {ran} of its tests ran")
    elif skipped:
        why = skipped[0].longrepr[2] if isinstance(skipped[0].longrepr, tuple) else str(skipped[0].longrepr)
        terminalreporter.write_line(f"qwen-coder: its tests did not run: {why.removeprefix('Skipped: ')}")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub on this machine (``tests.hub.FakeHub``) with an empty cache, for this process alone."""
    from tests.hub import played

    with played(monkeypatch, tmp_path / "cache") as hub:
        yield hub


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A model folder as transformers saves it."""
    from tests.hub import save

    return save(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="session")
def crowded(saved):
    """The same as on the hub, among files for other programs."""
    useless = {
        "README.md": b"# a card", ".gitattributes": b"x", "pytorch_model.bin": b"pickle" * 900, "model.gguf": b"g" * 99,
        "onnx/model.onnx": b"o" * 900, "original/model.safetensors": b"m" * 900, "consolidated.safetensors": b"c" * 900,
        "model.fp16.safetensors": b"v" * 900, "trainer_state.json": b"{}", "modeling_own.py": b"raise SystemExit",
        "flax_model.msgpack": b"f" * 900, "tf_model.h5": b"t" * 900, "config_sentence_transformers.json": b"{}",
    }
    return {p.name: p.read_bytes() for p in saved.iterdir()} | useless
