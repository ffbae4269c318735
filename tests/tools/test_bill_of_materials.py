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


@pytest.fixture(scope="module")
def bill(tmp_path_factory):
    file = tmp_path_factory.mktemp("bill") / "annealtune.cdx.json"
    assert main([str(file)]) == 0
    return json.loads(file.read_text(encoding="utf-8"))


def test_it_is_cyclonedx_about_this_version(bill):
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("annealtune", PROJECT["version"])


def test_every_part_is_what_is_pinned_and_installed(bill):
    lines = set(CONSTRAINTS.lower().replace("_", "-").splitlines())
    for part in bill["components"]:
        assert f"{part['name']}=={part['version']}" in lines, part["name"]
        assert metadata.version(part["name"]).partition("+")[0] == part["version"]
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
    names = [part["name"] for part in bill["components"]]
    assert names == sorted(set(names))
    # Some that the project names, and some that only these bring.
    assert {"torch", "pillow", "filelock", "tensorboard", "markupsafe", "sympy"} <= set(names)
    assert not {"pytest", "ruff", "mkdocs", "lightning"} & set(names)


def test_every_dependency_is_a_part(bill):
    known = {part["bom-ref"] for part in bill["components"]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert known == needs.keys() - {bill["metadata"]["component"]["bom-ref"]}
    assert {name for names in needs.values() for name in names} == known
    assert "markupsafe" in needs["jinja2"]


def test_most_parts_tell_their_licence(bill):
    without = [part["name"] for part in bill["components"] if "licenses" not in part]
    assert len(without) <= 3, without


def test_another_version_than_the_pinned_one_is_refused():
    pinned = {**pins(CONSTRAINTS), "jinja2": "0.1"}
    with pytest.raises(ValueError, match=r"jinja2: .* is installed, constraints.txt pins 0.1"):
        bill_of_materials(PROJECT, pinned)


def test_a_package_that_is_not_there_is_refused():
    project = {**PROJECT, "dependencies": ["no-such-package-at-all"]}
    with pytest.raises(ValueError, match="no-such-package-at-all: must be installed"):
        bill_of_materials(project, pins(CONSTRAINTS))
