"""Writing a model in the form of another program, on the command line."""

from __future__ import annotations

import re

from engines.errors import UsageProblem
from engines.folders import typed_path
from spec_tui.cli.failures import narrate
from spec_tui.cli.output import Status


def export_model(name: str, revision: str | None, kind: str, output: str | None, force: bool) -> int:
    """Write a model as a GGUF file whose weights are of a type in ggml's words, such as "f16"."""
    stem = _stem(name)
    file = typed_path(output or f"{stem}-{kind.upper()}.gguf")
    if file.exists() and not force:
        raise UsageProblem(f"{file} exists", "name another file with --output, or say --force")
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    from engines.hub.download_progress import in_bytes
    from engines.hub.gguf_export import export
    from engines.hub.known_models import known_name
    from engines.hub.model_source import locate

    with Status() as status:
        source = locate(name, revision, progress=status.show)
        source.fetch_weights(status.show)
        title = known_name(name) or stem
        remarks = export(source, file, lambda _: kind.upper(), status.show, name=title, replace=force)
    for remark in remarks:
        narrate(f"note: {remark}")
    narrate(f"wrote {file}, {in_bytes(file.stat().st_size)}")
    return 0


_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def export_folder(name: str, revision: str | None, kind: str, output: str | None) -> int:
    """Write a model as a folder of safetensors whose weights are of a type in ggml's words."""
    if kind not in _DTYPES:
        raise UsageProblem(f"safetensors hold no {kind}", "--type takes " + ", ".join(_DTYPES) + " for a folder")
    folder = typed_path(output or f"{_stem(name)}-{kind.upper()}")
    from spec_tui.session.environment import prepare_this_process

    prepare_this_process()
    from engines.hub.model_source import locate
    from engines.model.folder_export import export_folder

    with Status() as status:
        source = locate(name, revision, progress=status.show)
        source.fetch_weights(status.show)
        export_folder(source, folder, _DTYPES[kind], status.show)
    for remark in source.notes:
        narrate(f"note: {remark}")
    narrate(f"wrote {folder}")
    return 0


def _stem(name: str) -> str:
    """A model's name as the beginning of a file's."""
    last = name.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-") or "model"
