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
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MOST_LINES = 500


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


def distributions_behind(*names: str) -> set[str]:
    """The distributions that pip installs for these names, the names included."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting.extend(
            requirement.name
            for requirement in map(Requirement, lines)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        )
    return found


def importable_without(*kept: str) -> set[str]:
    """Every installed top-level name that does not come with one of the kept distributions."""
    keep = distributions_behind(*kept)
    return {
        name
        for name, distributions in metadata.packages_distributions().items()
        if keep.isdisjoint(map(canonicalize_name, distributions))
    } - {"annealtune"}


def run_without(hidden: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter in which the hidden packages cannot be found."""
    return subprocess.run(
        [sys.executable, "-c", HIDE + code, json.dumps(sorted(hidden))],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def all_but_torch() -> set[str]:
    hidden = importable_without("torch")
    # Guards the test itself: what must be missing is missing, and torch is not.
    for name in ["numpy", "typer", "rich", "pydantic", "sklearn", "scipy", "matplotlib", "PIL"]:
        assert name in hidden
    assert hidden.isdisjoint({"torch", "annealtune", "sympy", "typing_extensions"})
    return hidden


def test_the_optimizers_need_torch_alone(all_but_torch: set[str]) -> None:
    done = run_without(
        all_but_torch,
        """
import torch
import annealtune
from annealtune import SGDSA, EmbeddedTuner, grid
from annealtune.optim import StochasticSA

model = torch.nn.Linear(3, 1)
inputs = torch.randn(8, 3)
closure = lambda: model(inputs).square().mean()
adamw = torch.optim.AdamW(model.parameters())
for optimizer in [
    SGDSA(model),
    EmbeddedTuner(adamw, model=model, neighborhood=grid(lr=[1e-3, 1e-2], weight_decay=[0, 0.05])),
]:
    optimizer.step(closure)
    optimizer.cool()
    assert optimizer.last_step is not None
print("stepped")
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stepped\n"


def test_the_rules_need_no_torch() -> None:
    hidden = importable_without() | {"torch"}
    code = "import annealtune.annealing, annealtune.search; print(annealtune.__version__)"
    done = run_without(hidden, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == PROJECT["project"]["version"]


def test_the_program_without_its_extra_says_what_to_install(all_but_torch: set[str]) -> None:
    code = "sys.argv[0] = 'annealtune'; from annealtune.__main__ import main; sys.exit(main())"
    done = run_without(all_but_torch, code)
    assert done.returncode == 2, done.stderr
    assert "pip install 'annealtune[train]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# --- What pyproject.toml says is so ---

IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "tomli-w": "tomli_w"}


def test_every_package_that_is_imported_is_declared() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    lines = PROJECT["project"]["dependencies"] + [
        line for extra, lines in extras.items() if extra != "dev" for line in lines
    ]
    names = [Requirement(line).name for line in lines]
    declared = {IMPORTED_AS.get(name, name) for name in names} | {"annealtune"}
    used = {
        (name.partition(".")[0], name_of(path))
        for path in PATHS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported_names(node).values()
    }
    undeclared = [
        f"{file} imports {name}"
        for name, file in sorted(used)
        if name not in declared | sys.stdlib_module_names
    ]
    assert undeclared == []


def test_every_requirement_is_pinned() -> None:
    pinned = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["project"]["dependencies"] + [line for e in extras.values() for line in e]
    unpinned = {canonicalize_name(Requirement(line).name) for line in wanted} - pinned
    assert unpinned <= {"annealtune"}  # an extra of ours may be made of others


# Package, the first version without the hole, which one.
HOLES = [
    ("setuptools", "78.1.1", "CVE-2025-47273: a path out of the download folder"),
    ("filelock", "3.20.3", "CVE-2025-68146, CVE-2026-22701: a link in place of the lock"),
    ("jinja2", "3.1.6", "CVE-2025-27516: a way out of the sandbox"),
    ("pillow", "12.3.0", "CVE-2026-25990 and later: writes out of bounds"),
    ("torch", "2.6.0", "CVE-2025-32434: weights_only=True ran code"),
    ("scikit-learn", "1.5.0", "CVE-2024-5206: kept words of the training data"),
]


@pytest.mark.parametrize(("name", "mended", "hole"), HOLES)
def test_the_floor_lies_above_known_holes(name: str, mended: str, hole: str) -> None:
    lines = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    lines += [line for e in PROJECT["project"]["optional-dependencies"].values() for line in e]
    floors = [
        Version(bound.version)
        for line in lines
        if Requirement(line).name == name
        for bound in Requirement(line).specifier
        if bound.operator == ">="
    ]
    assert floors
    assert min(floors) >= Version(mended), hole


def test_no_torchvision_and_no_demo_that_waits_for_a_framework() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    frameworks = {Requirement(line).name for line in extras["frameworks"]}
    assert frameworks.isdisjoint(
        Requirement(line).name
        for extra in ("train", "tensorboard", "docs", "dev")
        for line in extras[extra]
    )
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "torchvision" not in pins
    lines = [line for line in pins.splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)
    done = subprocess.run(
        ["make", "-nB", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "[train,tensorboard,docs,dev]" in done.stdout
    assert "frameworks" not in done.stdout


def test_every_data_file_is_shipped() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["annealtune"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert PACKAGE / "py.typed" in shipped
    left_out = [
        name_of(path)
        for path in set(PACKAGE.rglob("*")) - shipped
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]
    assert left_out == []


def test_the_citation_and_the_changelog_know_the_version() -> None:
    version = PROJECT["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE)


def test_every_address_is_that_of_the_repository() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    home = citation["repository-code"]
    urls = PROJECT["project"]["urls"]
    assert urls["Source"] == home
    assert [url for url in urls.values() if not f"{url}/".startswith(f"{home}/")] == []
    for page in ("CONTRIBUTING.md", "SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"):
        assert home in (ROOT / page).read_text(encoding="utf-8"), page


# --- No file without a subject, none too long ---


def imported_names(node: ast.AST) -> dict[str, str]:
    """The names that an import statement binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            for alias in node.names
        }
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {}


def test_every_file_has_a_subject_and_an_end() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PATHS}
    assert lines
    without_subject = {"utils", "helpers", "misc", "base"}
    assert [name_of(path) for path in PATHS if path.stem in without_subject] == []
    assert {name_of(path): count for path, count in lines.items() if count > MOST_LINES} == {}
