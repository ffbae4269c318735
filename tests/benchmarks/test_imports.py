"""Every benchmark can be started: what it imports is there."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    set((ROOT / "benchmarks").rglob("*.py")) - set((ROOT / "benchmarks").rglob("__main__.py"))
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_can_be_imported(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    import_module(".".join(parts).removesuffix(".__init__"))
