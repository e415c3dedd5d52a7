"""The rooms of design/architecture.md, section 5, held by reading every import: what a room may touch, and what not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "generator" / "hvdcompose"
MODULES = sorted(PACKAGE.rglob("*.py"))

# what each room may import of our own; a room may always import itself, and everybody `errors` and the version
ROOMS = {
    "config": set(),
    "stack": {"config"},
    "hosts": {"config", "stack"},
    "deploy": {"config", "stack", "hosts", "doctor"},
    "doctor": {"config", "stack", "hosts"},
    "report": {"config", "stack", "deploy", "hosts", "doctor"},
    "lab": {"hosts"},
    "console": set(),
    "errors": set(),
    "cli": {"config", "stack", "hosts", "deploy", "doctor", "report", "lab", "console"},
}
# programs, files, sockets, threads and other machines: everything whose answer may be another one tomorrow
IO = (
    *("os", "subprocess", "socket", "shutil", "tempfile", "threading", "concurrent", "asyncio", "multiprocessing"),
    *("urllib.request", "http", "python_on_whales", "glob", "io", "sys", "time", "random", "secrets", "signal"),
)
# modules that decide and do nothing else
PURE = (
    *(f"config/{path.name}" for path in (PACKAGE / "config").glob("*.py")),
    *(f"stack/{path.name}" for path in (PACKAGE / "stack").glob("*.py")),
    *(f"doctor/{path.name}" for path in (PACKAGE / "doctor").glob("*.py")),
    *(f"report/{path.name}" for path in (PACKAGE / "report").glob("*.py")),
    *(
        "deploy/reconcile.py",
        "deploy/images.py",
        "doctor/rules.py",
        "hosts/explain.py",
        "hosts/transfer.py",
        "errors.py",
    ),
)
# pathlib opens files too: these may name paths, or read what they are there to read
PATHLIB = {
    "config/source.py": "load_cluster reads cluster.yaml",
    "stack/plan.py": "PurePosixPath names the folder of the code",
    "stack/render.py": "reads the templates",
}
EVERYWHERE_ELSE = {
    # a library -> the only places that import it
    "typer": ("cli/", "console.py"),
    "click": ("cli/", "console.py"),
    "rich": ("cli/", "console.py"),
    "python_on_whales": ("hosts/", "lab/"),
    "subprocess": ("hosts/", "lab/"),
    "jinja2": ("stack/render.py",),
    "yaml": ("config/", "stack/render.py"),
    "pydantic": ("config/",),
    "cryptography": ("hosts/keys.py", "lab/ssh.py"),
    "socket": ("hosts/", "lab/"),
    "threading": ("hosts/", "lab/", "console.py"),
    "concurrent": ("hosts/fanout.py",),
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports, in functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides the room it leads to"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def at_start(path: Path) -> set[str]:
    """Return the modules that are imported when the file is: not in a function, not for type checkers only."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def touches(found: set[str], library: str) -> bool:
    return any(name == library or name.startswith(f"{library}.") for name in found)


def room_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_room_imports_only_rooms_below_it(path):
    own = room_of(name_of(path))
    if own == "__init__":
        own = "errors"
    used = {name.split(".")[1] for name in imports(path) if name.startswith("hvdcompose.")}
    used &= ROOMS.keys()
    assert used - {own, "errors"} <= ROOMS[own]


@pytest.mark.parametrize("library", EVERYWHERE_ELSE)
def test_a_library_stays_in_its_room(library):
    users = {name_of(path) for path in MODULES if touches(imports(path), library)}
    assert {name for name in users if not name.startswith(EVERYWHERE_ELSE[library])} == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_what_decides_does_nothing_else(name):
    found = imports(PACKAGE / name)
    assert {library for library in IO if touches(found, library)} == set()
    if name not in PATHLIB:
        assert not touches(found, "pathlib")


@pytest.mark.parametrize("name", sorted(PURE))
def test_what_decides_opens_no_file(name):
    """Only the two that are there to read do; `open` needs no import."""
    tree = ast.parse((PACKAGE / name).read_text())
    names = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not names & {"open", "print", "input", "exec", "eval"}
    if name not in ("config/source.py", "stack/render.py"):
        assert not methods & {"read_text", "write_text", "read_bytes", "write_bytes", "open"}


def test_the_command_line_starts_light():
    """Each of these costs a tenth of a second at every call: they are imported where they are needed."""
    heavy = ("pydantic", "jinja2", "yaml", "python_on_whales", "cryptography", "rich")
    rooms = ("config", "stack", "hosts", "deploy", "doctor", "report", "console", "lab")
    for path in (PACKAGE / "cli").glob("*.py"):
        found = at_start(path)
        assert not [library for library in heavy if touches(found, library)], path
        assert not [room for room in rooms if touches(found, f"hvdcompose.{room}")], path


def test_every_room_is_in_the_table():
    assert {room_of(name_of(path)) for path in MODULES} - {"__init__"} == set(ROOMS)
