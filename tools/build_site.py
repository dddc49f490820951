"""Builds the documentation as a site of static pages: `make docs`.

Pages keep the folders that they have in the repository, so that links between them hold. A page for each method comes
from what the method says of itself, from a recorded run, from the benchmark's tables and from what papers report; the
library's reference from its docstrings. The site needs no server and no network: open site/index.html.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pages  # noqa: E402

from engines import MethodSpec, specs  # noqa: E402
from engines.bench.published import Figure, figures  # noqa: E402
from engines.report.run_state import fold_all  # noqa: E402
from engines.wire import read_trace  # noqa: E402
from spec_tui.export.cast import cast  # noqa: E402
from spec_tui.export.page import page as page_of_runs  # noqa: E402
from spec_tui.learn.glossary_entries import markdown as glossary  # noqa: E402

STAGED, BUILT, CONFIG = ROOT / "build" / "site", ROOT / "site", ROOT / ".zensical.toml"
OWN_SEARCH = Path(__file__).with_name("search_from_file.js")
FETCHED_SEARCH = "https://unpkg.com/iframe-worker/shim"  # what lets the search run in a page that is a file
COPIED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.*", "docs/pictures/*", "sample_*/README.md",
          "sample_*/*/README.md")
REFERENCE = {  # a page each, of these modules and classes
    "library": ("engines", "engines.runtime.Runtime", "engines.request.Request"),
    "events": ("engines.report.events", "engines.report.run_state", "engines.report.metrics"),
    "loop": ("engines.core.loop", "engines.core.tree", "engines.core.lossless_laws"),
    "methods": ("engines.methods.spec", "engines.methods.drafter", "engines.methods.options"),
}


def main() -> int:
    """Write the README's table and docs/glossary.md, stage the pages and build the site. Returns the exit status."""
    pages.put(ROOT / "README.md", "engines", engines_table())
    (ROOT / "docs" / "glossary.md").write_text(glossary(), "utf-8")
    shutil.rmtree(STAGED, ignore_errors=True)
    runs = recorded_runs()
    for page in sorted(found for pattern in COPIED for found in ROOT.glob(pattern)):
        put(page.relative_to(ROOT), playing(page.read_bytes()))
    put(Path("runs", "index.md"), runs_page(runs).encode())
    for spec in own_methods():
        shown = next((name for name, engines in runs.items() if spec.id in engines), None)
        put(Path("methods", f"{spec.id}.md"), method_page(spec, shown).encode())
    for name, objects in REFERENCE.items():
        put(Path("reference", f"{name}.md"), reference_page(name, objects).encode())
    CONFIG.write_text(site_config(), "utf-8")
    build = [sys.executable, "-m", "zensical", "build", "--config-file", str(CONFIG), "--clean", "--strict"]
    built = subprocess.run(build, cwd=ROOT)
    if built.returncode == 0:
        search_without_network()
    return built.returncode


def site_config() -> str:
    """zensical.toml with the pages on methods: those of docs that it does not name, and one of each method."""
    config = (ROOT / "zensical.toml").read_text("utf-8")
    links = [(page.read_text("utf-8").partition("\n")[0].lstrip("# ").partition(",")[0], f"docs/{page.name}")
             for page in sorted((ROOT / "docs").glob("*.md")) if f'"docs/{page.name}"' not in config]
    found, all_methods = (
        ", ".join(f'{{ "{title}" = "{path}" }}' for title, path in of)
        for of in (links, [(spec.title, f"methods/{spec.id}.md") for spec in own_methods()]))
    return config.replace('"Methods" = []', f'"Methods" = [{found}, {{ "All methods" = [{all_methods}] }}]')


def own_methods() -> list[MethodSpec]:
    """The methods of this project: not those of plug-ins that are installed here."""
    return [spec for spec in specs() if spec.drafter.startswith("engines.")]


def engines_table() -> str:
    """The README's table of the engines."""
    rows = (f"| `{spec.id}` | {spec.title} | {spec.summary} |" for spec in own_methods())
    return "\n".join(["| engine | method | how it drafts |", "|---|---|---|", *rows])


def search_without_network() -> None:
    """Let pages take the script that is here instead of the one from the network."""
    (BUILT / OWN_SEARCH.name).write_bytes(OWN_SEARCH.read_bytes())
    for page in BUILT.rglob("*.html"):
        up = "../" * len(page.relative_to(BUILT).parent.parts)
        page.write_text(page.read_text("utf-8").replace(FETCHED_SEARCH, up + OWN_SEARCH.name), "utf-8")


def playing(content: bytes) -> bytes:
    """A page with the recorded runs that it names: ``<!-- run NAME -->``."""
    return re.sub(rb"<!-- run ([a-z0-9-]+) -->", lambda found: frame(found[1].decode()).encode(), content)


def put(path: Path, content: bytes) -> None:
    """A page or picture of the site; the README is its first page."""
    if path.suffix == ".md":
        content = re.sub(rb"(\]\((?:\.\./)*)README\.md", rb"\1index.md", content)
    target = STAGED / ("index.md" if path == Path("README.md") else path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def recorded_runs() -> dict[str, set[str]]:
    """Put a page and a recording for a terminal of each recorded run. Returns which engines each is of, those of
    smollm2 first."""
    found = {}
    for path in sorted((ROOT / "sample_traces").glob("*.jsonl"), key=lambda path: not path.name.startswith("smollm2")):
        runs = [fold_all(run) for run in read_trace(path).runs]
        put(Path("runs", f"{path.stem}.html"), page_of_runs(runs).encode())
        put(Path("runs", f"{path.stem}.cast"), cast(runs).encode())
        found[path.stem] = {run.started.engine for run in runs}
    return found


def runs_page(runs: dict[str, set[str]]) -> str:
    """All recorded runs, one below the other."""
    about = ("Answers as they were recorded, no model needed. *as it was written* plays one by the engine's clock; "
             "point at a token for its facts; *view* colours by outcome, source or confidence.")
    shown = (f"## {name}\n\n{frame(name)}\n\n{download(name)}" for name in runs)
    return "\n\n".join([f"# Runs to play\n\n{about}", *shown]) + "\n"


def frame(run: str) -> str:
    """The page of a recorded run, within another one in a folder beside it."""
    return (f'<iframe src="../runs/{run}.html" title="the recorded run {run}" loading="lazy" '
            'style="width:100%;height:32rem;border:1px solid #8888"></iframe>')


def download(run: str) -> str:
    """Where the run is as a recording of a terminal."""
    link = f'<a href="../runs/{run}.cast" download>{run}.cast</a>'
    return f"{link} for asciinema, `spec-tui replay {run}` in the program."


def measured(engine: str) -> list[str]:
    """What docs/benchmark.md has of an engine: each of its tables that has a row of it, with that row only."""
    text = (ROOT / "docs" / "benchmark.md").read_text("utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text[text.index("<!-- tables -->"):], re.MULTILINE)
    lines = [table.splitlines() for table in tables if not table.startswith("| published")]
    return ["\n".join([*of[:2], row]) for of in lines for row in of[2:] if row.startswith(f"| {engine} |")]


def published_table(known: list[Figure]) -> str:
    """Published figures, those of one run in a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for f in known:
        greedy = {None: "", 0.0: "greedy"}.get(f.temperature, f"temperature {f.temperature}")
        options = ", ".join(f"{name}={value}" for name, value in f.options.items())
        cells = (f.model, f.data, greedy, f.variant or options, f.where)
        value = f"{100 * f.value:.1f}%" if f.measure in ("MAR", "MRR") else f"{f.value:,g}"
        rows.setdefault(cells, []).append(f"{f.measure} {value}")
    head = ["| figures | model | data | sampling | variant | source |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {', '.join(values)} | {' | '.join(cells)} |" for cells, values in rows.items())])


def method_page(spec: MethodSpec, run: str | None) -> str:
    """What a method says of itself, ``run``: a recorded run of it, its options, and its figures."""
    lossless = {True: "Lossless under the lossless laws.", False: "**Lossy.**", None: "Lossless where its program is."}
    parts = [f"# {spec.title}", f"`{spec.id}`: {spec.summary}", lossless[spec.lossless]]
    if spec.needs:
        parts.append(f"Needs: {', '.join(spec.needs)}.")
    if source := spec.reference or spec.source:
        parts.append(f"Source: {source}.")
    if run is not None:
        parts += ["## A recorded run", frame(run)]
    shown = [option for option in spec.options if not option.lane]
    if shown:
        rows = ["| option | meaning | values | default | published |", "|---|---|---|---|---|"]
        for option in shown:
            published = "" if option.paper is None else option.paper
            values = (option.name, option.help, option.range, option.default, published)
            rows.append("| " + " | ".join(str(value).replace("|", "\\|") for value in values) + " |")
        parts += ["## Options", "\n".join(rows)]
    if tables := measured(spec.id):
        parts += ["## Measured on smollm2", "From [the benchmark](../docs/benchmark.md).", *tables]
    if known := [figure for figure in figures() if figure.engine == spec.id]:
        about = "On other models, data and machines; `spec-tui reproduce --list` names what can be run here."
        parts += ["## What papers report", about, published_table(known)]
    return "\n\n".join(parts) + "\n"


def reference_page(name: str, objects: tuple[str, ...]) -> str:
    """A page that is made of docstrings."""
    return f"# Reference: {name}\n\n" + "\n\n".join(f"::: {dotted}" for dotted in objects) + "\n"


if __name__ == "__main__":
    sys.exit(main())
