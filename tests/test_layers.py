"""Imports point one way: annealing <- search <- optim <- training <- studies <- cli."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PATHS = sorted(path for end in ("py", "pyi") for path in (SOURCE / "annealtune").rglob(f"*.{end}"))

# What each room may import of annealtune besides itself. "(root)" is annealtune/__init__.py: it
# re-exports everything up to optim and, from training, `load`, each when it is first used: so it
# stands above them, and training may still ask it for its version.
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
    "(root)": UP_TO_OPTIM | {"training"},
    "integrations": FOR_ALL | {"annealing", "optim"},
    "training": UP_TO_OPTIM | {"(root)"},
    "studies": UP_TO_OPTIM | {"(root)", "training"},
    "experiments": FOR_ALL,
    "cli": UP_TO_OPTIM | {"(root)", "training", "studies", "integrations"},
}
WITHOUT_TORCH = FOR_ALL | {"annealing", "search"}
WITH_OPTIONAL_PACKAGES = {"training", "studies", "experiments", "integrations", "cli"}

# What a single file of a room without optional packages may import all the same, when it is called.
WHEN_CALLED = {"annealtune.optim.plot": {"matplotlib"}}

# Packages of an extra of their own: one file each, so that everything else works without them.
IN_ONE_FILE = ["tensorboard", "lightning", "transformers", "accelerate", "skorch", "ray"]


def module_of(path: Path) -> str:
    """The dotted name of a file; a package keeps its ``__init__``."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def room_of(name: str) -> str:
    """The room that a dotted name of annealtune belongs to."""
    second = name.split(".")[1] if "." in name else ""
    if second == "__main__":
        return "cli"
    return second if second in MAY_IMPORT else "(root)"


def imports_of(module: str, text: str) -> Iterator[str]:
    """Yields every dotted name that a module imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                above = module.split(".")[: -node.level] if node.level else []
                start = [*above, node.module] if node.module else above
                yield from (".".join([*start, alias.name]) for alias in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def names_at_import(text: str) -> set[str]:
    """The packages that are imported as soon as a module is, not only inside a function."""
    found = set()
    for node in ast.parse(text).body:
        match node:
            case ast.Import():
                found |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(name)):
                found.add(name.split(".")[0])
    return found


def violations(module: str, text: str) -> list[str]:
    """Says in words which imports of a module its room does not allow."""
    room = room_of(module)
    found = []
    for name in imports_of(module, text):
        package = name.split(".")[0]
        if package == "annealtune":
            if room_of(name) not in MAY_IMPORT[room] | {room}:
                found.append(f"{module}: {room} must not import {name}")
        elif package == "torch":
            if room in WITHOUT_TORCH:
                found.append(f"{module}: {room} works without torch, but imports {name}")
        elif package in WHEN_CALLED.get(module, ()):
            if package in names_at_import(text):
                found.append(f"{module}: imports {name} before it is called")
        elif package not in sys.stdlib_module_names and room not in WITH_OPTIONAL_PACKAGES:
            found.append(f"{module}: {room} must not import {name}, an optional package")
    return found


def test_every_module_imports_only_what_its_room_allows() -> None:
    assert PATHS
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in PATHS}
    assert [line for name, text in texts.items() for line in violations(name, text)] == []


def test_every_module_has_a_room() -> None:
    known = MAY_IMPORT.keys() | {"__init__", "__main__"}
    homeless = [module_of(path) for path in PATHS if module_of(path).split(".")[1] not in known]
    assert homeless == []


def test_a_package_with_its_own_extra_is_imported_in_one_file() -> None:
    importers: dict[str, set[str]] = {package: set() for package in IN_ONE_FILE}
    for path in PATHS:
        for name in imports_of(module_of(path), path.read_text(encoding="utf-8")):
            for package in importers.keys() & set(name.split(".")):
                if not name.startswith("annealtune."):
                    importers[package].add(module_of(path))
    assert {package: files for package, files in importers.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("annealtune.annealing.acceptance", "import torch"),
        ("annealtune.annealing.acceptance", "import numpy as np"),
        ("annealtune.annealing.acceptance", "from ..search import Annealer"),
        ("annealtune.annealing.strategies", "from ..optim.embedded import EmbeddedTuner"),
        ("annealtune.annealing.__init__", "from ..optim import SGDSA"),
        ("annealtune.search", "def f():\n    from torch import nn"),
        ("annealtune.search", "from annealtune import SGDSA"),
        ("annealtune.optim.embedded", "if TYPE_CHECKING:\n    from annealtune import training"),
        ("annealtune.optim.embedded", "import_module('annealtune.studies.plan')"),
        ("annealtune.optim.embedded", "importlib.import_module('numpy')"),
        ("annealtune.__init__", "from .studies import run"),
        ("annealtune.__init__", "from annealtune.integrations.lightning import Callback"),
        ("annealtune.training.session", "import annealtune.studies.plan"),
        ("annealtune.studies.plan", "from annealtune.cli import main"),
        ("annealtune.integrations.lightning", "from annealtune.training import run"),
        ("annealtune.integrations.lightning", "from annealtune.search import Annealer"),
        ("annealtune.errors", "from annealtune.annealing import grid"),
        ("annealtune.optim.plot", "from matplotlib.figure import Figure"),
        ("annealtune.optim.embedded", "def f():\n    import matplotlib"),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str) -> None:
    assert len(violations(module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("annealtune.annealing.acceptance", "import math\nfrom annealtune.errors import X"),
        ("annealtune.annealing.__init__", "from .strategies import Tabu"),
        ("annealtune.annealing.strategies", "from .acceptance import metropolis"),
        ("annealtune.optim.embedded", "import torch\nfrom annealtune.annealing import grid"),
        ("annealtune.__init__", "from .optim import SGDSA\nfrom annealtune.search import Annealer"),
        (
            "annealtune.training.session",
            "import numpy\nfrom annealtune import SGDSA, __version__",
        ),
        ("annealtune.integrations.lightning", "import lightning\nfrom annealtune.optim import X"),
        ("annealtune.__main__", "from annealtune.cli import main"),
        ("annealtune.optim.plot", "def f():\n    from matplotlib.figure import Figure"),
        ("annealtune.cli", "import typer\nfrom annealtune.studies import plan"),
    ],
)
def test_an_allowed_import_is_left_alone(module: str, text: str) -> None:
    assert violations(module, text) == []
