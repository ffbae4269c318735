"""Things found by name: ``package.module:factory``, and the answer to a name nobody knows.

Serves data sets and models alike. Imports nothing heavy, so that a typo is answered at once.
"""

import difflib
import importlib
from collections.abc import Callable, Iterable

from annealtune.errors import ConfigError


def is_factory(name: str) -> bool:
    """Tell whether a name is meant as ``package.module:factory``."""
    return ":" in name


def split_factory(key: str, name: str) -> tuple[str, str]:
    """Return the module and the attribute that ``package.module:factory`` names.

    Args:
        key: The config key the name was given for.
        name: A module and a callable in it, with a colon between them.

    Raises:
        ConfigError: If the form is wrong.

    Example:
        >>> split_factory("model", "collections:Counter")
        ('collections', 'Counter')
    """
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise ConfigError(f"{key} = {name!r}: must have the form package.module:factory")
    return module, attribute


def import_factory(key: str, name: str) -> Callable[..., object]:
    """Import what ``package.module:factory`` points to.

    Args:
        key: The config key the name was given for; it appears in every error.
        name: A module and a callable in it, with a colon between them.

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
            f"{key} = {name!r}: importing {module_name} failed: {describe(error)}; "
            "is its folder on PYTHONPATH?"
        ) from error
    factory: Callable[..., object] | None = getattr(module, attribute, None)
    if factory is None:
        near = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{key} = {name!r}: {module_name} has no {attribute!r}{hint}")
    if not callable(factory):
        raise ConfigError(
            f"{key} = {name!r}: must be callable, got an object of type {type(factory).__name__}"
        )
    return factory


def unknown(key: str, name: str, known: Iterable[str], suffix: str = "") -> ConfigError:
    """Return the error for a name that is not known, with the nearest one that is.

    Args:
        key: The config key the name was given for.
        name: The name received.
        known: The names that exist.
        suffix: What the user wrote after the name and the suggestion has to keep.

    Example:
        >>> print(unknown("model", "vg16", ["mlp", "vgg16"]))
        model = 'vg16': unknown; did you mean 'vgg16'? Known: mlp, vgg16, or package.module:factory
    """
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {near[0] + suffix!r}? Known" if near else "; known"
    return ConfigError(
        f"{key} = {name + suffix!r}: unknown{hint}: {', '.join(known)}, or package.module:factory"
    )


def describe(error: Exception) -> str:
    """Return an exception as one line: its type and its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
