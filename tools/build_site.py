"""Builds the documentation as a site of static pages: `make docs`.

Pages keep the folders that they have in the repository, so that links between them hold. A page for each method comes
from what the method says of itself, and the library's reference from its docstrings. The site needs no server and no
network: open site/index.html.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engines import MethodSpec, specs  # noqa: E402

STAGED = ROOT / "build" / "site"
COPIED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.*", "docs/pictures/*", "sample_*/README.md",
          "sample_*/*/README.md")
REFERENCE = {  # a page each, of these modules and classes
    "library": ("engines", "engines.runtime.Runtime", "engines.request.Request"),
    "events": ("engines.report.events", "engines.report.run_state", "engines.report.metrics"),
    "loop": ("engines.core.loop", "engines.core.tree", "engines.core.lossless_laws"),
    "methods": ("engines.methods.spec", "engines.methods.drafter", "engines.methods.options"),
}


def main() -> int:
    """Stage the pages and build the site. Returns the exit status."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for page in sorted(found for pattern in COPIED for found in ROOT.glob(pattern)):
        put(page.relative_to(ROOT), page.read_bytes())
    for spec in specs():
        put(Path("methods", f"{spec.id}.md"), method_page(spec).encode())
    for name, objects in REFERENCE.items():
        put(Path("reference", f"{name}.md"), reference_page(name, objects).encode())
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT)
    return built.returncode


def put(path: Path, content: bytes) -> None:
    """A page or picture of the site; the README is its first page."""
    if path.suffix == ".md":
        content = re.sub(rb"(\]\((?:\.\./)*)README\.md", rb"\1index.md", content)
    target = STAGED / ("index.md" if path == Path("README.md") else path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def method_page(spec: MethodSpec) -> str:
    """What a method says of itself, with its options."""
    lossless = {True: "Lossless under the lossless laws.", False: "**Lossy.**", None: "Lossless where its program is."}
    parts = [f"# {spec.title}", f"`{spec.id}`: {spec.summary}", lossless[spec.lossless]]
    if spec.needs:
        parts.append(f"Needs: {', '.join(spec.needs)}.")
    if source := spec.reference or spec.source:
        parts.append(f"Source: {source}.")
    shown = [option for option in spec.options if not option.lane]
    if shown:
        rows = ["| option | meaning | values | default | published |", "|---|---|---|---|---|"]
        for option in shown:
            published = "" if option.paper is None else option.paper
            values = (option.name, option.help, option.range, option.default, published)
            rows.append("| " + " | ".join(str(value).replace("|", "\\|") for value in values) + " |")
        parts += ["## Options", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def reference_page(name: str, objects: tuple[str, ...]) -> str:
    """A page that is made of docstrings."""
    return f"# Reference: {name}\n\n" + "\n\n".join(f"::: {dotted}" for dotted in objects) + "\n"


if __name__ == "__main__":
    sys.exit(main())
