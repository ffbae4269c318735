"""What a release was tested with, as CycloneDX 1.6: `python -m tools.bill_of_materials BOM.json`.

The parts are the packages that ``pip install 'annealtune[train,tensorboard]'`` brings, with the
versions that ``constraints.txt`` pins and the licences and requirements that the installed ones
tell of themselves. The same pins and packages give the same bytes.
"""

import argparse
import json
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXTRAS = ("train", "tensorboard")


def pins(text: str) -> dict[str, str]:
    """Return the version of every package in a file of constraints."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(n): v for n, _, v in (line.partition("==") for line in lines)}


def required(lines: list[str], extra: str = "") -> list[str]:
    """Return the names of what requirements ask for on this machine."""
    wanted = map(Requirement, lines)
    return sorted(
        {
            str(canonicalize_name(each.name))
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": extra})
        }
    )


def bill_of_materials(project: dict[str, Any], pinned: dict[str, str]) -> dict[str, Any]:
    """Return the bill as plain data.

    Raises:
        ValueError: if a package is not installed, or in another version than the pinned one.
    """
    own = f"{project['name']}@{project['version']}"
    lines = [*project["dependencies"]]
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    needs = {own: required(lines)}
    waiting = list(needs[own])
    parts: dict[str, dict[str, Any]] = {}
    while waiting:
        name = waiting.pop()
        if name in parts:
            continue
        parts[name], needs[name] = _part(name, pinned)
        waiting += needs[name]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": f"pkg:pypi/{own}",
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [parts[name] for name in sorted(parts)],
        "dependencies": [{"ref": name, "dependsOn": needs[name]} for name in sorted(needs)],
    }


def _part(name: str, pinned: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise ValueError(f"{name}: must be installed; run make test first") from None
    version = found.version.partition("+")[0]  # torch tells its build: 2.13.0+cpu
    # What has no pin belongs to one build of torch alone, such as that for CUDA.
    if version != pinned.get(name, version):
        raise ValueError(f"{name}: {version} is installed, constraints.txt pins {pinned[name]}")
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    licence = _licence(found)
    if licence:
        part["licenses"] = [{"license": {"name": licence}}]
    return part, required(list(found.requires or []))


def _licence(found: metadata.Distribution) -> str:
    """Return what a package says of its licence, in one line."""
    told = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
    classes = [
        line.rpartition(" :: ")[2]
        for line in found.metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    first = told.strip().splitlines()[:1]
    return first[0].strip() if first and len(told) < 200 else ", ".join(classes)


def main(arguments: list[str] | None = None) -> int:
    """Write the bill; the exit code is 1 if the environment is not the pinned one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="where to, such as dist/annealtune.cdx.json")
    file = parser.parse_args(arguments).file
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    try:
        bill = bill_of_materials(project, pinned)
    except ValueError as error:
        print(f"bill_of_materials: {error}", file=sys.stderr)
        return 1
    file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"{file}: {len(bill['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
