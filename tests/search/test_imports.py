"""The search needs nothing but the standard library."""

import subprocess
import sys
from pathlib import Path

import annealtune.search

PACKAGE = Path(annealtune.search.__file__).parents[1]

# The parent package is stood in for, since its own __init__ may import what it likes.
SCRIPT = f"""
import sys, types
before = set(sys.modules)
package = types.ModuleType("annealtune")
package.__path__ = [{str(PACKAGE)!r}]
sys.modules["annealtune"] = package
import annealtune.search
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(roots - set(sys.stdlib_module_names)))
"""


def test_nothing_third_party_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['annealtune']"
