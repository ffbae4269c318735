"""Imports point one way: annealing <- search <- optim <- training <- studies <- cli."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PATHS = sorted((SOURCE / "annealtune").rglob("*.py"))

# What each room may import of annealtune besides itself. "(root)" is annealtune/__init__.py, the
# public surface: it stands above what it offers, and training may still ask it for its version.
FOR_ALL = {"errors"}
UP_TO_OPTIM = FOR_ALL | {"annealing", "search", "optim"}
MAY_IMPORT = {
    "errors": set(),
    "annealing": FOR_ALL,
    "search": FOR_ALL | {"annealing"},
    "strategies": FOR_ALL | {"annealing"},
    "temperatures": FOR_ALL | {"annealing"},
    "optim": FOR_ALL | {"annealing", "search"},
    "reference": FOR_ALL | {"annealing"},
    "(root)": UP_TO_OPTIM | {"training", "strategies", "temperatures"},
    "integrations": FOR_ALL | {"annealing", "optim"},
    "training": UP_TO_OPTIM | {"(root)"},
    "studies": UP_TO_OPTIM | {"(root)", "training"},
    "experiments": FOR_ALL,
    "cli": UP_TO_OPTIM | {"(root)", "training", "studies", "integrations"},
}
WITHOUT_TORCH = FOR_ALL | {"annealing", "search", "strategies", "temperatures"}
WITH_OPTIONAL_PACKAGES = {"training", "studies", "experiments", "integrations", "cli"}

# What a single file of a room without optional packages may import all the same, when it is called.
WHEN_CALLED = {"annealtune.optim.plot": {"matplotlib"}}

# Packages of an extra of their own: one file each, so that everything else works without them.
IN_ONE_FILE = {"tensorboard", "lightning", "transformers", "accelerate", "skorch", "ray"}


def module_of(path: Path) -> str:
    """The dotted name of a file; a package keeps its ``__init__``."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def room_of(name: str) -> str:
    """The room that a dotted name of annealtune belongs to."""
    second = name.split(".")[1] if "." in name else ""
    if second == "__main__":
        return "cli"
    return second if second in MAY_IMPORT else "(root)"


def imports_of(module: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yields every dotted name that a module imports, and whether as soon as it is imported."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((alias.name, node in tree.body) for alias in node.names)
            case ast.ImportFrom():
                above = module.split(".")[: -node.level] if node.level else []
                start = [*above, node.module] if node.module else above
                yield from ((".".join([*start, a.name]), node in tree.body) for a in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name, False


def violations(module: str, text: str) -> list[str]:
    """Says in words which imports of a module its room does not allow."""
    room = room_of(module)
    found = []
    for name, is_at_once in imports_of(module, text):
        package = name.split(".")[0]
        if package == "annealtune":
            if room_of(name) not in MAY_IMPORT[room] | {room}:
                found.append(f"{module}: {room} must not import {name}")
        elif package == "torch":
            if room in WITHOUT_TORCH:
                found.append(f"{module}: {room} works without torch, but imports {name}")
        elif package in WHEN_CALLED.get(module, ()):
            if is_at_once:
                found.append(f"{module}: imports {name} before it is called")
        elif package not in sys.stdlib_module_names and room not in WITH_OPTIONAL_PACKAGES:
            found.append(f"{module}: {room} must not import {name}, an optional package")
    return found


def test_every_module_imports_only_what_its_room_allows() -> None:
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in PATHS}
    assert [line for name, text in texts.items() for line in violations(name, text)] == []
    known = MAY_IMPORT.keys() | {"__init__", "__main__"}
    assert {module.split(".")[1] for module in texts} <= known


def test_a_package_with_its_own_extra_is_imported_in_one_file() -> None:
    importers: dict[str, set[str]] = {}
    for path in PATHS:
        for name, _ in imports_of(module_of(path), path.read_text(encoding="utf-8")):
            for package in IN_ONE_FILE & set(name.split(".")):
                if not name.startswith("annealtune."):
                    importers.setdefault(package, set()).add(module_of(path))
    assert {package: files for package, files in importers.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    ("module", "text", "is_allowed"),
    [
        ("annealtune.annealing.acceptance", "import math\nfrom annealtune.errors import X", True),
        ("annealtune.annealing.acceptance", "import torch", False),
        ("annealtune.annealing.acceptance", "from ..search import Annealer", False),
        ("annealtune.annealing.__init__", "from .strategies import Tabu", True),
        ("annealtune.annealing.__init__", "from ..optim import SGDSA", False),
        ("annealtune.optim.embedded", "import torch\nfrom annealtune.annealing import g", True),
        ("annealtune.optim.embedded", "if X:\n    from annealtune import training", False),
        ("annealtune.optim.embedded", "importlib.import_module('numpy')", False),
        ("annealtune.optim.plot", "def f():\n    from matplotlib.figure import Figure", True),
        ("annealtune.optim.plot", "from matplotlib.figure import Figure", False),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str, *, is_allowed: bool) -> None:
    assert len(violations(module, text)) == (0 if is_allowed else 1)
