"""The bill of materials: every package that is installed, in the version that is pinned."""

import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tools.bill_of_materials import bill_of_materials, main, pins

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_it_names_what_is_pinned_and_installed(tmp_path):
    file = tmp_path / "annealtune.cdx.json"
    assert main([str(file)]) == 0
    bill = json.loads(file.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("annealtune", PROJECT["version"])
    lines = set(CONSTRAINTS.lower().replace("_", "-").splitlines())
    for part in bill["components"]:
        assert f"{part['name']}=={part['version']}" in lines, part["name"]
        assert metadata.version(part["name"]).partition("+")[0] == part["version"]
    names = {part["name"] for part in bill["components"]}
    # Some that the project names, and some that only these bring.
    assert {"torch", "pillow", "filelock", "tensorboard", "markupsafe", "sympy"} <= names
    assert not {"pytest", "ruff", "mkdocs", "lightning"} & names
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert names == needs.keys() - {about["bom-ref"]}
    assert {name for each in needs.values() for name in each} == names


def test_another_version_and_a_missing_package_are_refused():
    pinned = {**pins(CONSTRAINTS), "jinja2": "0.1"}
    with pytest.raises(ValueError, match="jinja2"):
        bill_of_materials(PROJECT, pinned)
    project = {**PROJECT, "dependencies": ["no-such-package-at-all"]}
    with pytest.raises(ValueError, match="no-such-package-at-all"):
        bill_of_materials(project, pins(CONSTRAINTS))
