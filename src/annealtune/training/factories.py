"""What a user names as ``package.module:factory``: data sets, models, objectives, strategies.

Imports nothing heavy, so that a typo is answered at once.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from annealtune.errors import ConfigError, DataError, did_you_mean, unknown_name


def is_factory(name: str) -> bool:
    """Tell whether a name is meant as ``package.module:factory``."""
    return ":" in name


def check_name(key: str, name: str, known: Iterable[str], form: str) -> str:
    """Return the value of a key if it is a known name, or has the form of a thing to import.

    Raises:
        ConfigError: otherwise, with the nearest name.
    """
    if is_factory(name):
        split_factory(key, name)
    elif name not in known:
        raise unknown_name(key, name, known, or_else=form)
    return name


def split_factory(key: str, name: str) -> tuple[str, str]:
    """Return the module and the attribute that ``package.module:factory`` names.

    Raises:
        ConfigError: If the form is wrong.

    Example:
        >>> split_factory("model", "collections:Counter")
        ('collections', 'Counter')
    """
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise ConfigError(
            f"{key} = {name!r}: must have the form package.module:factory; a module is named "
            "without .py"
        )
    return module, attribute


def import_factory(key: str, name: str) -> Callable[..., object]:
    """Import what ``package.module:factory``, the value of a key, points to.

    Raises:
        ConfigError: If the form is wrong, the import fails or the thing cannot be called.

    Example:
        >>> import_factory("model", "collections:Counter")("aab")["a"]
        2
    """
    module_name, attribute = split_factory(key, name)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's: whatever it raises, say where
        raise ConfigError(
            f"{key} = {name!r}: importing {module_name} failed: {in_one_line(error)}; a module is "
            "named without .py, and its folder must be on PYTHONPATH"
        ) from error
    factory: Callable[..., object] | None = getattr(module, attribute, None)
    if factory is None:
        hint = did_you_mean(attribute, vars(module))
        raise ConfigError(f"{key} = {name!r}: {module_name} has no {attribute!r}{hint}")
    if not callable(factory):
        raise ConfigError(
            f"{key} = {name!r}: must be callable, got an object of type {type(factory).__name__}"
        )
    return factory


def call_factory(
    key: str,
    name: str,
    told: Mapping[str, Any],
    failure: type[ConfigError | DataError] = ConfigError,
) -> object:
    """Return what ``package.module:factory`` returns, called with those keywords that it takes.

    Args:
        key: whose value the name is.
        name: of the factory.
        told: what it may ask for.
        failure: what is raised if it fails.

    Raises:
        ConfigError: If there is no such factory.
    """
    factory = import_factory(key, name)
    try:
        return factory(**asked_for(factory, told))
    except Exception as error:  # the factory is the user's: whatever it raises, say where
        known = ", ".join(f"{word}={value}" for word, value in told.items())
        raise failure(
            f"{key} = {name!r}: calling it with what it takes of {known} failed: "
            f"{in_one_line(error)}"
        ) from error


def asked_for(factory: Callable[..., object], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the things told that a factory takes by keyword.

    Raises:
        TypeError: if it needs something else, naming it.

    Example:
        >>> asked_for(lambda width, *, depth=3: None, {"width": 4, "height": 5})
        {'width': 4}
    """
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # one that does not tell takes every keyword
        return dict(told)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in told]
    if missing:
        raise TypeError(f"it asks for {', '.join(missing)}{did_you_mean(missing[0], told)}")
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(told)
    return {p.name: told[p.name] for p in named if p.name in told}


def in_one_line(error: BaseException) -> str:
    """Return an exception as one line: its type and its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
