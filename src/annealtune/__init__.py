"""annealtune: train once, tune nothing; the hyper-parameters anneal inside the run.

`__init__.pyi` beside this file is the table of contents. It is read when a name is first asked for,
and each name is imported when it is first used: the rules do not wait for torch, and the program
listens to Ctrl-C a moment after Python does.
"""

from functools import cache

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [*_homes(), "__version__"]
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted([*_homes(), "__version__"])


@cache
def _homes() -> dict[str, str]:
    """Tell which module each public name lives in."""
    import ast
    from pkgutil import get_data

    return {
        public.name: f"{__name__}.{line.module}"
        for line in ast.parse(get_data(__name__, "__init__.pyi") or b"").body
        if isinstance(line, ast.ImportFrom)
        for public in line.names
    }
