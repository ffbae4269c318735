"""The workflows: they can be read, test what pyproject.toml promises, and call what exists."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((GITHUB / "workflows").glob("*.yml"))
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = re.search(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)[1]


def jobs() -> list[dict[str, Any]]:
    return [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]


def steps() -> list[dict[str, Any]]:
    return [step for job in jobs() for step in job.get("steps", [])]


def test_the_matrix_has_every_python_and_the_oldest_torch() -> None:
    matrix = WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert matrix["torch"] == [PINNED]
    [torch] = (
        r for line in PROJECT["dependencies"] if (r := Requirement(line)).name.startswith("torch")
    )
    [oldest] = (specifier.version for specifier in torch.specifier)
    assert matrix["include"] == [{"python": "3.11", "torch": f"{oldest}.0"}]


def test_the_classifiers_name_the_pythons_of_the_matrix() -> None:
    found = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    assert found == set(WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]["python"])


def test_every_make_target_and_test_file_that_is_called_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    runs = [step["run"] for step in steps() if "run" in step]
    called = [run for run in runs if run.startswith("make ")]
    assert len(called) >= 3
    for run in called:
        _, target, *settings = shlex.split(re.sub(r"\$\{\{.*?\}\}", "value", run))
        assert target in targets, run
        assert {setting.partition("=")[0] for setting in settings} <= variables, run
        paths = [word for word in run.replace('"', " ").split() if word.startswith("tests/")]
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_no_job_may_write_but_the_one_that_publishes() -> None:
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    granted = [job["permissions"] for job in jobs() if "permissions" in job]
    assert granted == [{"id-token": "write"}]
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["needs"] == ["tests", "build", "bill-of-materials"]
    assert publish["steps"][-1]["uses"] == "pypa/gh-action-pypi-publish@release/v1"


def test_actions_are_pinned_by_major_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", name)] == []


def test_a_release_is_a_tag() -> None:
    # YAML reads the key "on" as True.
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}
    assert "workflow_call" in WORKFLOWS["tests"][True]


@pytest.mark.parametrize(("tag", "code"), [(f"v{PROJECT['version']}", 0), ("v99.0", 1)])
def test_the_tag_must_agree_with_the_version(tag: str, code: int, tmp_path: Path) -> None:
    [step] = (
        s for s in WORKFLOWS["release"]["jobs"]["build"]["steps"] if "tag" in s.get("name", "")
    )
    (tmp_path / "python").symlink_to(sys.executable)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=ROOT,
        env=os.environ | {"GITHUB_REF_NAME": tag, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code:
        assert (
            done.stderr
            == f"The tag is {tag}, but pyproject.toml says version {PROJECT['version']}\n"
        )


def test_issue_forms_ask_for_what_is_needed() -> None:
    forms = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")
        if path.stem != "config"
    }
    assert forms.keys() == {"bug", "feature", "wrong-rate"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids))
    asked = {field["id"]: field for field in forms["wrong-rate"]["body"]}
    assert "opt.summary()" in asked["summary"]["attributes"]["label"]
    assert asked["summary"]["validations"] == {"required": True}


def test_a_pull_request_is_asked_whether_it_changes_results() -> None:
    text = (GITHUB / "pull_request_template.md").read_text(encoding="utf-8")
    assert "May this change results?" in text
