"""Rules of the house: what may import what, what loads when, which names stand where.

What a rule does not hold for is listed in ``known_exceptions.toml``; an entry that is no longer needed fails, too.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from engines import specs
from engines.laws import LAWS

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "engines").rglob("*.py"), *(ROOT / "spec_tui").rglob("*.py")])
EXCEPTIONS = tomllib.loads((ROOT / "tests" / "known_exceptions.toml").read_text("utf-8"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def read(path: Path) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """A file's tree, and all nodes of it."""
    tree = ast.parse(path.read_text("utf-8"))
    return tree, tuple(ast.walk(tree))


def everywhere(*kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    """All nodes of these kinds, with the file that they stand in."""
    return ((path, node) for path in SOURCES for node in read(path)[1] if isinstance(node, kinds))


# -- imports ------------------------------------------------------------------------------------------------


def test_the_contracts_of_imports_hold():
    """Layers, circles, and what each package may use (``tool.importlinter`` in pyproject.toml)."""
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run([sys.executable, "-c", program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_are_absolute():
    assert not [name(path) for path, node in everywhere(ast.ImportFrom) if node.level]


@pytest.mark.parametrize(
    "module, forbidden",
    [
        ("engines", "torch transformers numpy rich textual typer spec_tui"),
        ("engines; engines.specs()", "torch transformers numpy rich textual typer spec_tui"),
        ("spec_tui", "torch transformers rich textual typer"),
        ("spec_tui.cli", "torch transformers textual rich"),
        ("spec_tui.cli.commands", "torch transformers textual rich spec_tui.cli.run spec_tui.cli.head"),
        (
            "spec_tui.cli.commands, typer.main; dict(typer.main.get_command(spec_tui.cli.commands.app).commands)",
            "torch transformers textual rich",
        ),
        ("spec_tui.session.process", "torch transformers textual rich typer"),
        ("spec_tui.session.worker", "torch transformers textual rich typer"),
        ("spec_tui.tui.app", "torch transformers"),
        (  # before the first paint
            "spec_tui.tui.app as tui, spec_tui.session.process as session, spec_tui.session.engine_commands as load\n"
            "tui.SpecTui(session.ProcessClient(), load.LoadRequest())",
            "engines.methods.pld engines.methods.hybrid",
        ),
        (
            "spec_tui.tui.recorded, spec_tui.tui.picture, spec_tui.export.formats",
            "torch transformers huggingface_hub",
        ),
    ],
)
def test_imports_are_cheap(module, forbidden):
    program = f"import sys; import {module}\nassert not (found := set({forbidden.split()}) & set(sys.modules)), found"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_parameter_hides_what_is_called():
    """``--narrate`` once hid the function of that name, in a branch that no test ran."""
    for path in SOURCES:
        tree, _ = read(path)
        known = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
                 for alias in node.names} | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for function in (node for node in read(path)[1] if isinstance(node, ast.FunctionDef)):
            given = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)} & known
            called = {node.func.id for node in ast.walk(function)
                      if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            assert not given & called, f"{name(path)}:{function.lineno}: {given & called}"


def test_tools_use_what_there_is():
    """Tests run few of the tools, so moved names would be missed."""
    for path in sorted((ROOT / "tools").rglob("*.py")):
        for node in read(path)[1]:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("engines", "spec_tui", "tests")):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    found = hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")
                    assert found, f"{name(path)}:{node.lineno}: {node.module} has no {alias.name}"


# -- what is dangerous ----------------------------------------------------------------------------------------

CALLS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "dill", "joblib", "shelve", "marshal", "requests", "urllib3", "aiohttp"}


def test_nothing_is_unpickled_evaluated_or_sent():
    for path, node in everywhere(ast.Import, ast.ImportFrom, ast.Call):
        where = f"{name(path)}:{node.lineno}"
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & MODULES, where
        elif isinstance(node, ast.ImportFrom):
            forbidden = (node.module or "").partition(".")[0] in MODULES
            allowed = EXCEPTIONS["imports_that_could_send"].get(name(path), {"names": ()})["names"] if forbidden else ()
            assert not forbidden or {alias.name for alias in node.names} == {*allowed}, where
        else:
            assert not (isinstance(node.func, ast.Name) and node.func.id in CALLS), where
            for keyword in node.keywords:
                assert keyword.arg not in ("trust_remote_code", "shell", "weights_only") or harmless(keyword), where


def harmless(keyword: ast.keyword) -> bool:
    """Off, or handed on as the user said it (whose defaults are off)."""
    if isinstance(keyword.value, ast.Constant):
        return keyword.value.value is (keyword.arg == "weights_only")
    return isinstance(keyword.value, ast.Name | ast.Attribute) and keyword.arg == "trust_remote_code" == getattr(
        keyword.value, "attr", getattr(keyword.value, "id", None)
    )


def test_nothing_is_trusted_unless_the_user_says_so():
    from engines.hub.model_source import TrustPolicy
    from spec_tui.session.engine_commands import LoadRequest

    for unsaid in (TrustPolicy(), LoadRequest()):
        assert (unsaid.allow_pickle, unsaid.trust_remote_code) == (False, False)


def test_looking_whether_a_file_is_there_raises_nothing():
    """``Path.exists`` and its like raise where a folder of the path may not be searched, as of somebody else's home, or
    a name is too long; those of ``os.path`` say no. ``folders.check_reachable`` is for who wants to know."""
    asked = [f"{name(path)}:{node.lineno}" for path, node in everywhere(ast.Call)
             if isinstance(node.func, ast.Attribute) and not node.args
             and node.func.attr in ("exists", "is_dir", "is_file", "is_symlink")]
    assert len(asked) == 1 and asked[0].startswith("engines/folders.py"), asked


# -- names and places -----------------------------------------------------------------------------------------


def test_no_handler_calls_that_of_its_base_class():
    """Textual calls both, so the base class's would run twice, whatever a condition around the call says. ``on_event``
    is no handler: it calls them."""
    found = [f"{name(path)}:{node.lineno}" for path, node in everywhere(ast.Attribute)
             if name(path).startswith("spec_tui/tui/") and node.attr.startswith("on_") and node.attr != "on_event"
             and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"]
    assert not found


def test_every_file_says_what_it_is_for():
    silent = [name(p) for p in SOURCES if not ast.get_docstring(read(p)[0])]
    assert not [path for path in silent if not path.endswith("__main__.py") and (ROOT / path).read_text().strip()]


def test_engines_have_rooms():
    loose = {path.name for path in SOURCES if path.parent == ROOT / "engines"} - {"__init__.py"}
    assert len(loose) <= 10


def test_the_algorithm_fits_two_screens():
    lines = {path.name: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "engines" / "core").glob("*.py")}
    assert sum(lines.values()) < 600 and lines["loop.py"] <= 100


def same_names(names: Iterable[str]) -> set[str]:
    return {one for one, count in Counter(names).items() if count > 1}


def modules_of_one_name() -> set[str]:
    parts = {"__init__", "__main__", "drafter", "explain", "events"}  # which every room may have
    return same_names(path.stem for path in SOURCES if path.stem not in parts)


def classes_of_one_name() -> set[str]:
    return same_names(node.name for path in SOURCES for node in read(path)[0].body if isinstance(node, ast.ClassDef))


def ids_in_other_rooms() -> dict[str, list[str]]:
    """Ids of methods and laws as strings in the code of other rooms, by file."""
    faces = sorted((ROOT / "engines" / "methods").glob("*/__init__.py"))
    rooms = {spec.id: tuple(f"{name(face.parent)}/" for face in faces if f'id="{spec.id}"' in face.read_text("utf-8"))
             for spec in specs()}
    rooms |= {law: ("engines/core/", "engines/laws/") for law in LAWS}
    found = defaultdict(set)
    for path, node in everywhere(ast.Constant):
        if isinstance(node.value, str) and node.value in rooms and not name(path).startswith(rooms[node.value]):
            found[name(path)].add(node.value)
    return {path: sorted(ids) for path, ids in found.items()}


@pytest.mark.parametrize("found", [modules_of_one_name, classes_of_one_name], ids=lambda f: f.__name__)
def test_one_name_stands_for_one_thing(found):
    assert found() == set(EXCEPTIONS[found.__name__])


def test_methods_and_laws_describe_themselves():
    """Where an id stands elsewhere, it is listed with the reason: it is a word of another meaning there, or the file is
    about methods (tables of what was published, lessons, the showcase)."""
    listed = EXCEPTIONS["ids_in_other_rooms"]
    assert ids_in_other_rooms() == {path: sorted(entry["ids"]) for path, entry in listed.items()}
    assert all(entry["why"] for entry in listed.values())


# -- other libraries ------------------------------------------------------------------------------------------

OURS = {"engines", "spec_tui", "tests"}
DOCUMENTED = {"_exit", "_replace", "_asdict"}
UNDOCUMENTED = (  # without an underscore
    "gguf.constants", "gguf.quants", "gguf.tensor_mapping", "huggingface_hub.utils.WeakFileLock",
    "huggingface_hub.utils.build_hf_headers", "scann.scann_ops.py", "transformers.integrations", "typer.models",
)


def private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__") and part not in DOCUMENTED


def dotted(node: ast.AST) -> list[str]:
    """The parts of ``a.b.c``, none of anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner else []


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Names that stand for modules and names of other libraries, with what they stand for."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] not in OURS:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            roots = {alias.asname or alias.name.partition(".")[0]: alias.name.partition(".")[0] for alias in node.names}
            found |= {ours: theirs for ours, theirs in roots.items() if theirs not in OURS}
    return found


def defined_here() -> set[str]:
    """Private names that are defined, or are given a value, anywhere in our code."""
    found = set()
    for _, node in everywhere(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        if not isinstance(node, ast.ClassDef) or private(node.name):
            found.add(node.name)
    for _, node in everywhere(ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def overrides(path: Path) -> set[str]:
    """Private methods of a base class of another library that our method of that name calls."""
    return {node.attr for node in read(path)[1] if isinstance(node, ast.Attribute) and private(node.attr)
            and isinstance(node.value, ast.Call) and dotted(node.value.func) == ["super"]
            and functions().get(node.attr, {path}) == {path}}


@functools.cache
def functions() -> dict[str, set[Path]]:
    """The files in which there is a function of a name."""
    found = defaultdict(set)
    for path, node in everywhere(ast.FunctionDef, ast.AsyncFunctionDef):
        found[node.name].add(path)
    return found


def inside_of_other_libraries() -> dict[str, list[str]]:
    """What our code uses of other libraries that they keep to themselves, by file: private modules, names and methods,
    and what is replaced in one of their modules ("... =")."""
    found, ours = defaultdict(set), defined_here()
    for path in SOURCES:
        modules = imported(read(path)[1])
        names = {full for full in modules.values()
                 if any(map(private, full.split("."))) or full.startswith(UNDOCUMENTED)} | overrides(path)
        for node in read(path)[1]:
            if not isinstance(node, ast.Attribute):
                continue
            root, *rest = dotted(node) or [""]
            if root in modules and private(node.attr):
                names.add(".".join([modules[root], *rest]))
            elif private(node.attr) and node.attr not in ours:
                names.add(node.attr)
            elif root in modules and isinstance(node.ctx, ast.Store) and modules[root].partition(".")[0] != "sys":
                names.add(".".join([modules[root], *rest]) + " =")
        found[name(path)] = names
    return {path: sorted(names) for path, names in found.items() if names}


def test_what_is_used_inside_of_other_libraries_is_listed_with_what_was_checked():
    listed = EXCEPTIONS["inside_of_other_libraries"]
    assert inside_of_other_libraries() == {path: sorted(entry["names"]) for path, entry in listed.items()}
    assert all(entry["checked"] for entry in listed.values())
