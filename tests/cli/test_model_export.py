"""``spec-tui model export``: a GGUF file of a model, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engines.hub import gguf_file
from tests.sources.test_gguf_export import make_folder


def test_the_command_writes_a_file_without_torch(tmp_path):
    code = ("import sys; from spec_tui.cli import call; code = call(sys.argv[1:]); "
            "assert not {'torch', 'transformers'} & sys.modules.keys(); sys.exit(code)")  # fmt: skip

    def export(*arguments):
        return subprocess.run([sys.executable, "-c", code, "model", "export", *arguments], cwd=tmp_path, text=True,
                              capture_output=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})

    done = export("sample-draft", "--gguf", "--type", "bf16")
    assert (done.returncode, done.stdout) == (0, "") and "wrote sample-draft-BF16.gguf, 3.57 MB" in done.stderr
    assert gguf_file.read(tmp_path / "sample-draft-BF16.gguf").metadata["general.name"] == "sample-draft"
    again = export("sample-draft", "--gguf", "--type", "bf16")
    assert again.returncode == 2 and "exists" in again.stderr and "--force" in again.stderr
    assert export("sample-draft", "--gguf", "--force", "-o", "sample-draft-BF16.gguf").returncode == 0
    stored = gguf_file.read(tmp_path / "sample-draft-BF16.gguf").stored()
    assert set(stored) == {"F32"}


@pytest.mark.parametrize("arguments, code, words", [
    (["sample"], 2, "--gguf writes a GGUF file"), (["sample", "--gguf", "--type", "q3"], 2, "q8_0"),
    (["/no/such", "--gguf"], 3, "there is no model folder"), (["--gguf"], 2, "ID"),
    (["sample", "--gguf", "--revision", "v1"], 2, "has no revisions"),
    (["sample", "--gguf", "-o", "/no/such/m.gguf"], 1, "cannot be written"),
    (["smollm2-draft", "--gguf", "-o", "never.gguf"], 3, "is a GGUF file already"),
])  # fmt: skip
def test_mistakes_are_sentences(cli, arguments, code, words):
    done = cli("model", "export", *arguments)
    assert (done.code, done.out) == (code, "") and words in " ".join(done.err.split())


def test_a_model_of_the_hub_is_fetched_first(cli, hub, tmp_path, monkeypatch):
    model = make_folder(tmp_path / "model")
    hub.publish("someone/tiny", {file.name: file.read_bytes() for file in model.iterdir()})
    monkeypatch.chdir(tmp_path)
    done = cli("model", "export", "someone/tiny", "--gguf")
    assert done.code == 0 and "wrote tiny-F32.gguf" in done.err, done.err
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == ["tiny-F32.gguf"]
