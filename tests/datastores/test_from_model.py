"""What the model makes of a datastore: its answers as documents, its hidden states as keys."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from engines.core.outcome import Stop
from engines.core.sampling import Sampling
from engines.core.tree import DraftTree
from engines.datastores.building import build_spec as order
from engines.datastores.building import hub_dataset
from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.corpus import Document
from engines.datastores.building.hidden_states import HiddenStates, tokens_before
from engines.datastores.building.model_answers import ModelAnswers, read_prompts
from engines.datastores.search.dense import DenseStore
from engines.datastores.search.reduction import Recipe
from engines.datastores.storage.manifest import ModelIdentity
from engines.errors import DatastoreProblem, ModelUnavailable, StartCancelled, UsageProblem
from engines.laws import make_law
from engines.methods.drafter import Drafter
from engines.model.feature_request import LAST, FeatureRequest
from engines.report.events import Loading, Origin
from engines.report.recorder import record
from engines.request import Request


def sampled_answers(answers=1, temperature=0.0, max_new_tokens=256, **options):
    """A build of the model's answers."""
    return order.BuildSpec("store", (order.ANSWERS,), answers=answers, temperature=temperature,
                           max_new_tokens=max_new_tokens, **options)


PROMPTS = ["What is a tree?", "Count to ten.", "Say something long, please.", "x"]


class Asking(Drafter):
    """Drafts what it is given, some of it wrong, and notes what a query would be: hidden state and emitted token."""

    features = FeatureRequest(latest=frozenset({LAST}))

    def __init__(self, target, answer):
        self.target, self.answer, self.queries = target, answer, []

    def start(self, outcome):
        self.prompt = outcome.prompt_length
        self.learn(outcome)

    def learn(self, outcome):
        path, emitted = outcome.verdict.path, outcome.verdict.tokens
        row = (path[-1] + 1 if path else 0) if len(outcome.tree) else -1
        done, hidden = len(outcome.context) - self.prompt, self.target.features.latest(LAST)
        if len(emitted) == 1 + len(path):  # not cut short at the end
            self.queries.append((hidden[row].float().numpy().copy(), emitted[-1], done - 1))

    def propose(self, context, room):
        right = self.answer[len(context) - self.prompt :][:3]
        tokens = [*right[:2], (right[2] + 1) % 260] if len(right) == 3 else list(right)
        return DraftTree.chain(tokens, Origin("retrieval"))


@pytest.mark.parametrize("sampled", [sampled_answers(1, 0.0, 24), sampled_answers(2, 0.8, 12)])
def test_a_query_of_the_loop_finds_its_own_key_first(tiny, sampled):
    corpus = ModelAnswers(tiny, PROMPTS, sampled)
    recipe, reader = Recipe(0, z_norm=False), HiddenStates(tiny.target, tiny.identity, None)
    store = DenseStore(
        build_datastore("store", corpus, tiny.tokenizer, reader, recipe=recipe, before=tokens_before(corpus, None))
    )
    found = [document for document, _ in corpus.documents()]
    facts = store.store.manifest
    assert facts.documents == len(PROMPTS) * sampled.answers == len(found)
    assert facts.keys + len(store.held_out) == facts.tokens == sum(len(d.tokens) for d in found)  # a key a token
    asked = 0
    for number, document in enumerate(found):
        begin, end = store.documents.bounds(number)
        assert store.tokens[begin:end].tolist() == list(document.tokens)
        assert store.documents.place(begin).source == PROMPTS[number // sampled.answers]
        drafter, sampling = Asking(tiny.target, document.tokens), Sampling(sampled.temperature)
        law = make_law("exact", sampling, number % sampled.answers, tiny.target.vocab_size)
        prompt = corpus.context(number)
        stop = Stop(tiny.end_tokens, sampled.max_new_tokens)
        with tiny.target.features.requested(drafter.features):
            *_, last = record(tiny.target, drafter, law, prompt, stop, tiny.words)
        assert last.tokens == document.tokens
        for hidden, emitted, at in drafter.queries:
            if begin + at not in store.positions:  # held out
                continue
            key = store.keys[int(np.flatnonzero(store.positions == begin + at)[0])].astype(np.float32)
            mine = store.reduction.one(hidden)
            assert np.abs(key - mine).max() < 1e-3 and document.tokens[at] == emitted  # float16
            if len(document.tokens) > at + 1:
                first = store.query(hidden, emitted, drafts=1, length=3)
                assert np.linalg.norm(store.keys[first.keys[0]].astype(np.float32) - mine) < 5e-3
            asked += 1
    assert asked > 3 * len(found)


def test_answers_for_a_datastore_are_no_past_answers():
    spec = order.BuildSpec("mine", (order.ANSWERS,), prompts="file")
    assert spec.request("x").keeps is False


def test_answers_can_be_stored_with_their_prompts(tiny):
    """Then a document is what the model read and wrote, in one; the keys of the answer's tokens are the same."""
    alone, whole = (
        ModelAnswers(tiny, PROMPTS, sampled_answers(1, 0.0, 8, with_prompts=given)) for given in (False, True))
    for number, ((answer, _), (both, _)) in enumerate(zip(alone.documents(), whole.documents(), strict=True)):
        assert both.tokens == (*alone.context(number), *answer.tokens) and both.source == answer.source
        assert whole.context(number) == []
    assert whole.identity != alone.identity and "with_prompts" not in alone.identity, "old builds go on"
    with pytest.raises(UsageProblem, match="with-prompts"):
        order.BuildSpec("store", ("file.txt",), with_prompts=True).check()


@pytest.mark.parametrize("wrong", [{"sources": (Path("a.txt"),)}, {"limit": "5"}, {"limit": 0}, {"window": 3}])
def test_a_build_of_values_of_other_types_is_refused(wrong):
    with pytest.raises(UsageProblem):
        order.BuildSpec(**{"name": "store", "sources": ("file.txt",)} | wrong).check()


@pytest.mark.parametrize("kind", ["dense", "both"])
def test_a_prompt_that_leaves_an_answer_no_room_in_the_window_is_refused_before_any_is_answered(tiny, kind):
    size = len(ModelAnswers(tiny, PROMPTS[2:3], sampled_answers()).context(0))
    ModelAnswers(tiny, PROMPTS[2:3], sampled_answers(kind=kind, window=size + 4))
    with pytest.raises(UsageProblem, match=f"prompt 1 of 1 needs {size} tokens before it; .* {size + 3} at") as caught:
        ModelAnswers(tiny, PROMPTS[2:3], sampled_answers(kind=kind, window=size + 3))
    assert "--window" in caught.value.hint
    ModelAnswers(tiny, PROMPTS[2:3], sampled_answers(kind=kind, window=size + 3, with_prompts=True))
    ModelAnswers(tiny, PROMPTS[2:3], sampled_answers(window=size + 3))


def test_an_estimate_of_answers_counts_the_prompts_that_are_stored_with_them(tiny):
    plain, whole = (sampled_answers(2, 0.5, 8, with_prompts=given) for given in (False, True))
    alone, both = (order.estimate_build(spec, ModelAnswers(tiny, PROMPTS, spec), tiny.tokenizer, tiny)
                   for spec in (plain, whole))
    asked = sum(len(ModelAnswers(tiny, [prompt], plain).context(0)) for prompt in PROMPTS)
    assert alone.tokens == 8 * 2 * len(PROMPTS) and both.tokens == alone.tokens + 2 * asked
    assert both.size > alone.size and both.seconds == alone.seconds, "prompts are not written"


def test_states_are_those_of_texts_read_alone(tiny):
    reader = HiddenStates(tiny.target, tiny.identity)
    texts = [np.arange(n) % 250 for n in (3, 40, 1, 17, 40)]
    together = reader(texts)
    for text, states in zip(texts, together):
        (alone,) = reader([text])
        assert states.shape == (len(text), 32) and np.allclose(states, alone, atol=1e-4)


def test_a_token_that_begins_every_text_is_read_before_a_document(tiny, tokenizer, monkeypatch):
    assert list(tokens_before(types.SimpleNamespace(), tokenizer)(0)) == []
    begins = types.SimpleNamespace(bos_token_id=7)
    both = type("T", (), {"bos_token_id": 7, "__call__": lambda self, text: {"input_ids": [7]}})()
    assert list(tokens_before(begins, both)(3)) == [7]


def test_prompts_are_lines_or_json_each_once(tmp_path):
    path = tmp_path / "prompts"
    path.write_text('\ufeffone\n\n {"prompt": "two\\nlines", "id": 3}\n  one  \nthree\n', "utf-8")
    assert read_prompts(path) == ["one", "two\nlines", "three"]


def test_a_line_ends_at_a_newline_alone(tmp_path):
    """U+2028 and U+0085 end lines for ``str.splitlines``, but may stand in a JSON string."""
    path = tmp_path / "prompts"
    path.write_bytes('{"prompt": "two\u2028lines"}\r\none\x85prompt\r\n'.encode())
    assert read_prompts(path) == ["two\u2028lines", "one\x85prompt"]


@pytest.mark.parametrize("content, message", [
    (b"", "no prompts"), (b"\xff\xfe", "not text in"), (b'ok\n{"text": "x"}', "line 2"), (b'{"prompt": 3}', "line 1"),
    (b'{"prompt": ""}', "line 1"), (b"{" * 5000, "line 1"), (b'{"prompt": "\\ud800"}', "line 1"),
])  # fmt: skip
def test_a_file_without_prompts_is_told(tmp_path, content, message):
    (tmp_path / "prompts").write_bytes(content)
    with pytest.raises(UsageProblem, match=message):
        read_prompts(tmp_path / "prompts")
    with pytest.raises(UsageProblem, match="there is no file"):
        read_prompts(tmp_path / "nowhere")


def test_a_prompt_that_cannot_be_asked_is_named_before_any_is_answered(tiny):
    with pytest.raises(UsageProblem, match="prompt 2 of 3 has"):
        ModelAnswers(tiny, ["fine", "x" * 300, "fine too"], sampled_answers())
    with pytest.raises(UsageProblem, match="prompt 2 of 2"):
        ModelAnswers(tiny, ["fine", "  "], sampled_answers())


def test_what_answers_depend_on_is_their_identity(tiny):
    def identity(prompts, spec, fingerprint="m"):
        model = types.SimpleNamespace(
            tokenizer=tiny.tokenizer, target=tiny.target, identity=ModelIdentity("x", fingerprint, 1)
        )
        return ModelAnswers(model, prompts, spec).identity

    seen = {str(identity(p, s, m)) for p, s, m in (
        (["a"], sampled_answers(), "m"), (["b"], sampled_answers(), "m"), (["a"], sampled_answers(), "n"),
        (["a"], sampled_answers(2, 0.5), "m"), (["a"], sampled_answers(2, 0.5, top_p=0.9), "m"),
        (["a"], sampled_answers(system="Be kind."), "m"), (["a"], sampled_answers(max_new_tokens=3), "m"),
    )}  # fmt: skip
    assert len(seen) == 7
    assert identity(["a"], sampled_answers(engine="pld")) == identity(["a"], sampled_answers())


# --- datasets of the hub --------------------------------------------------------------------------


class Rows(list):
    """A streamed dataset, as far as one is needed."""

    def skip(self, count):
        return Rows(self[count:])


ROWS = [{"id": i, "text": f"row {i} \ud800" if i == 2 else f"row {i}", "talk": [{"role": "user", "content": "hi"}]}
        for i in range(5)]  # fmt: skip


@pytest.fixture
def datasets(monkeypatch):
    """The library datasets, with one dataset."""

    def load_dataset(name, split, streaming, revision):
        assert streaming and revision == "c0ffee"
        if (name, split) != ("some/rows", "train"):
            raise ValueError(f"Unknown split {split}\nsecond line")
        return Rows(ROWS)

    library = types.ModuleType("datasets")
    library.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", library)
    monkeypatch.setattr(hub_dataset, "find_spec", lambda name: True)
    monkeypatch.setattr(hub_dataset, "_revision", lambda name: "c0ffee")


def test_rows_of_a_dataset_are_documents_and_are_taken_up_anywhere(datasets):
    corpus = hub_dataset.hub_dataset("some/rows")
    found = list(corpus.documents())
    assert found[0] == (Document("some/rows row 1", "row 0"), 1) and found[2][0].text == "row 2 ?"
    assert list(corpus.documents(3)) == found[3:]
    assert corpus.identity["column"] == "text" and corpus.identity["revision"] == "c0ffee"
    talk = hub_dataset.hub_dataset("some/rows:train:talk")
    assert next(talk.documents())[0].text == "hi" and talk.identity != corpus.identity


def test_what_is_wrong_with_a_dataset_is_said(datasets, monkeypatch):
    with pytest.raises(ModelUnavailable, match="Unknown split"):
        hub_dataset.hub_dataset("some/rows:test")
    with pytest.raises(UsageProblem, match="no column 'words'"):
        hub_dataset.hub_dataset("some/rows::words")
    for source in ("", "a/b/c", "a:b:c:d", "../x\x1b"):
        with pytest.raises(UsageProblem, match="names no dataset"):
            hub_dataset.hub_dataset(source)

    class Broken(Rows):
        def __iter__(self):
            yield from ROWS[:2]
            raise ConnectionError("gone")

    corpus = hub_dataset.HubDataset("some/rows", Broken(), "text", {})
    with pytest.raises(DatastoreProblem, match="after 2 cannot be read"):
        list(corpus.documents())
    monkeypatch.setattr(hub_dataset, "find_spec", lambda name: None)
    with pytest.raises(UsageProblem, match="not installed"):
        hub_dataset.hub_dataset("some/rows")


# --- what is built when it is used ----------------------------------------------------------------


def test_the_standard_library_is_built_once_for_a_tokenizer(tokenizer, monkeypatch, tmp_path):
    from engines.datastores.building import text_files as sources

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("import os\n")
    monkeypatch.setattr(sources.sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    built = []
    tell = lambda step: built.append(step.stage)  # noqa: E731
    store = order.open_standard_library(tokenizer, tell)
    assert store.name == "python-stdlib" and "suffix array" in built
    built.clear()
    assert order.open_standard_library(tokenizer, tell).manifest == store.manifest and not built
    monkeypatch.setattr(sources, "library_name", lambda: "python9.9")
    again = order.open_standard_library(tokenizer, tell)
    assert again.manifest.parameters["sources"]["roots"] == ["python9.9"] and built


def test_a_run_says_that_it_builds_the_standard_library_and_can_be_stopped_meanwhile(tiny, monkeypatch, tmp_path):
    from engines.datastores.building import text_files as sources

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("import os\n" * 50)
    monkeypatch.setattr(sources.sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    wanted, said = Request((("user", "import"),), "rest", datastores=("python-stdlib",), max_new_tokens=4), []
    with pytest.raises(StartCancelled, match="the build of the datastore was stopped"):
        list(tiny.run(wanted, cancelled=lambda: len(said) > 1, progress=said.append))
    events = list(tiny.run(wanted, progress=said.append))
    stages = [step.stage for step in said if isinstance(step, Loading)]
    assert stages[0].startswith("building the datastore: ") and all(0 <= (s.done or 0) <= 1 for s in said)
    assert events[0].datastores == ("python-stdlib",) and events[-1].tokens
    said.clear()
    list(tiny.run(wanted, progress=said.append))
    assert not said, "it is there"
    tiny.open_datastores.forget("python-stdlib")


def test_the_users_own_store_of_that_name_is_left_alone(tokenizer, tmp_path):
    from engines.datastores.building.build_datastore import build_datastore
    from engines.datastores.building.text_files import text_files

    (tmp_path / "mine.txt").write_text("my own text")
    mine = build_datastore("python-stdlib", text_files([tmp_path / "mine.txt"]), tokenizer)
    assert order.open_standard_library(tokenizer).manifest == mine.manifest


def test_a_run_uses_the_offered_store(tiny, monkeypatch, tmp_path):
    from engines.datastores.building import text_files as sources

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text("import os\n" * 30)
    monkeypatch.setattr(sources.sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    request = Request((("user", "import os"),), "rest", max_new_tokens=8, datastores=("python-stdlib",))
    started, *_, end = tiny.run(request)
    assert started.datastores == ("python-stdlib",)
    *_, plain = tiny.run(Request((("user", "import os"),), "autoregressive", max_new_tokens=8))
    assert end.tokens == plain.tokens
    tiny.open_datastores.forget("python-stdlib")
