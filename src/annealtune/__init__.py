"""annealtune: train once, tune nothing; the hyper-parameters anneal inside the run.

`__init__.pyi` beside this file is the table of contents. Each name in it is imported when it is
first used, so that the rules and the program's help do not wait for torch.
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    public.name: f"{__name__}.{line.module}"
    for line in ast.parse(get_data(__name__, "__init__.pyi") or b"").body
    if isinstance(line, ast.ImportFrom)
    for public in line.names
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
