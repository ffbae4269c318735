"""Run the tutorial notebook from its first cell to its last and keep what each cell prints.

    python docs/site/run_notebook.py [NOTEBOOK]

The cells run in order in one namespace, as in a notebook that was just opened; the first cell that
fails ends it.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "tutorial.ipynb"


def run(notebook: dict[str, Any]) -> None:
    """Run all code cells and replace their outputs by what they print."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"  # the format asks for one
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        text = printed.getvalue().splitlines(keepends=True)
        cell["outputs"] = (
            [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        )


def main(path: Path) -> None:
    """Run a notebook and write it back."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    run(notebook)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOK)
