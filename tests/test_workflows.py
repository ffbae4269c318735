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
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
JOBS: list[dict[str, Any]] = [job for each in WORKFLOWS.values() for job in each["jobs"].values()]
STEPS: list[dict[str, Any]] = [step for job in JOBS for step in job.get("steps", [])]


def test_the_matrix_has_every_python_and_the_oldest_torch() -> None:
    matrix = WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]
    classifiers = (c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c)
    assert matrix["python"] == list(classifiers)
    assert f"\ntorch=={matrix['torch'][0]}\n" in (ROOT / "constraints.txt").read_text("utf-8")
    [torch] = (r for line in PROJECT["dependencies"] if (r := Requirement(line)).name == "torch")
    [oldest] = (specifier.version for specifier in torch.specifier)
    assert matrix["include"] == [{"python": matrix["python"][0], "torch": f"{oldest}.0"}]


def test_every_make_target_and_test_file_that_is_called_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    called = [step["run"] for step in STEPS if step.get("run", "").startswith("make ")]
    assert len(called) >= 3
    for run in called:
        _, target, *settings = shlex.split(re.sub(r"\$\{\{.*?\}\}", "value", run))
        assert target in targets, run
        assert {setting.partition("=")[0] for setting in settings} <= variables, run
        paths = [word for word in run.replace('"', " ").split() if word.startswith("tests/")]
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_only_a_tag_publishes_and_no_other_job_may_write() -> None:
    # YAML reads the key "on" as True.
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}
    assert "workflow_call" in WORKFLOWS["tests"][True]
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    assert [job["permissions"] for job in JOBS if "permissions" in job] == [{"id-token": "write"}]
    assert {"tests", "build"} <= set(WORKFLOWS["release"]["jobs"]["publish"]["needs"])
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", name)] == []


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
