"""What is shipped: torch alone for the optimizers, floors above known holes, files with an end."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "annealtune"
PATHS = sorted(PACKAGE.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [
    Requirement(line)
    for lines in (PYPROJECT["build-system"]["requires"], PROJECT["dependencies"], *EXTRAS.values())
    for line in lines
]
MOST_LINES = 1000


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


# --- The optimizers need torch alone ---

# Hidden packages must look absent, not broken: find_spec answers None, as torch itself asks it.
HIDE = """
import json, sys

hidden = set(json.loads(sys.argv.pop()))

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in hidden:
            return self.finder.find_spec(name, path, target)

    def find_distributions(self, context):  # torch asks for the version of optree
        if (context.name or "").replace("-", "_") in hidden:
            return ()
        return getattr(self.finder, "find_distributions", lambda _: ())(context)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def distributions_behind(name: str) -> set[str]:
    """The distributions that pip installs for a name, that included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            try:
                lines = map(Requirement, metadata.requires(name) or [])
            except metadata.PackageNotFoundError:
                continue
            waiting += [r.name for r in lines if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def run_with_torch_alone(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter that can find nothing but torch and what it needs."""
    keep = distributions_behind("torch")
    hidden = {
        name
        for name, distributions in metadata.packages_distributions().items()
        if keep.isdisjoint(map(canonicalize_name, distributions))
    } - {"annealtune"}
    # Guards the test itself: what must be missing is missing, and torch is not.
    assert {"numpy", "typer", "pydantic", "sklearn", "scipy", "matplotlib", "PIL"} <= hidden
    assert hidden.isdisjoint({"torch", "sympy", "typing_extensions"})
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, json.dumps(sorted(hidden))],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_optimizers_need_torch_alone() -> None:
    done = run_with_torch_alone(
        """
import torch
from annealtune import SGDSA, SelfTuner, StochasticSA, grid

model = torch.nn.Linear(3, 1)
inputs = torch.randn(8, 3)
closure = lambda: model(inputs).square().mean()
adamw = torch.optim.AdamW(model.parameters())
for optimizer in [SGDSA(model, grid(lr=[0.1])), StochasticSA(model), SelfTuner(adamw, model)]:
    optimizer.step(closure)
print("stepped")
"""
    )
    assert (done.returncode, done.stdout) == (0, "stepped\n"), done.stderr


def test_the_program_without_its_extra_says_what_to_install() -> None:
    code = "sys.argv[0] = 'annealtune'; from annealtune.__main__ import main; sys.exit(main())"
    done = run_with_torch_alone(code)
    assert done.returncode == 2, done.stderr
    assert "pip install 'annealtune[train]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# --- What pyproject.toml says is so ---

IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "tomli-w": "tomli_w"}


def test_every_package_that_is_imported_is_declared() -> None:
    lines = [*PROJECT["dependencies"]]
    lines += [line for extra, found in EXTRAS.items() if extra != "dev" for line in found]
    names = [Requirement(line).name for line in lines]
    declared = {IMPORTED_AS.get(name, name) for name in names} | {"annealtune"}
    used = set()
    for path in PATHS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {(alias.name.partition(".")[0], name_of(path)) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                used.add((node.module.partition(".")[0], name_of(path)))
    known = declared | sys.stdlib_module_names
    assert [f"{file} imports {name}" for name, file in sorted(used) if name not in known] == []


def test_every_requirement_is_pinned() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == sorted(lines)
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    unpinned = {canonicalize_name(requirement.name) for requirement in REQUIREMENTS} - pinned
    assert unpinned <= {"annealtune", "setuptools"}  # an extra may consist of other extras
    assert "torchvision" not in pinned  # it breaks beside a CPU torch


# Package, the first version without the hole, which one.
HOLES = [
    ("setuptools", "78.1.1", "CVE-2025-47273: a path out of the download folder"),
    ("filelock", "3.20.3", "CVE-2025-68146, CVE-2026-22701: a link in place of the lock"),
    ("jinja2", "3.1.6", "CVE-2025-27516: a way out of the sandbox"),
    ("pillow", "12.3.0", "CVE-2026-25990 and later: writes out of bounds"),
    ("torch", "2.6.0", "CVE-2025-32434: weights_only=True ran code"),
    ("scikit-learn", "1.5.0", "CVE-2024-5206: kept words of the training data"),
]


@pytest.mark.parametrize(("name", "fixed", "hole"), HOLES)
def test_the_floor_lies_above_known_holes(name: str, fixed: str, hole: str) -> None:
    floors = [
        Version(bound.version)
        for requirement in REQUIREMENTS
        for bound in requirement.specifier
        if requirement.name == name and bound.operator == ">="
    ]
    assert min(floors) >= Version(fixed), hole


def test_every_data_file_is_shipped() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["annealtune"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert PACKAGE / "py.typed" in shipped
    others = {path for path in PACKAGE.rglob("*") if path.is_file()} - shipped
    assert [name_of(path) for path in others if path.suffix not in {".py", ".pyc"}] == []


def test_citation_changelog_and_addresses_agree() -> None:
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE)
    home = citation["repository-code"]
    assert [url for url in PROJECT["urls"].values() if not f"{url}/".startswith(f"{home}/")] == []


def test_every_file_has_a_subject_and_an_end() -> None:
    without_subject = {"utils", "helpers", "misc", "base"}
    assert [name_of(path) for path in PATHS if path.stem in without_subject] == []
    lines = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in PATHS}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
