"""Where the models, datastores and traces that ship lie: in the checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def sample_model(name: str) -> Path | None:
    """Folder of a shipped model ("target" or "draft"), None where it is missing."""
    for folder in (_HERE / "_samples" / "models" / name, _HERE.parent / "sample_models" / name):
        if (folder / "config.json").is_file():
            return folder
    return None


def shipped(model: str) -> str:
    """Which of the models that ship a name (a folder or a hub id) is: "target", "draft", or "" for any other."""
    for name in ("target", "draft"):
        folder = sample_model(name)
        if model and folder is not None and Path(model).resolve() == folder.resolve():
            return name
    return ""


def sample_datastores() -> Path | None:
    """Folder that holds the shipped datastores, None where there is none."""
    for folder in (_HERE / "_samples" / "datastores", _HERE.parent / "sample_datastores"):
        if folder.is_dir():
            return folder
    return None


def sample_traces() -> Path | None:
    """Folder of the shipped traces, None where there is none."""
    for folder in (_HERE / "_samples" / "traces", _HERE.parent / "sample_traces"):
        if folder.is_dir():
            return folder
    return None
