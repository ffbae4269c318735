"""What is wrong with a config, in words: key, rule and value."""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from pydantic import BaseModel

from annealtune.errors import ConfigError

# 'rate' is nearer to 'strategy' than difflib's own threshold.
_NEAR = 0.75


def explain(detail: Any, model: type[BaseModel]) -> str:
    """Return one line about one fault.

    Args:
        detail: what pydantic says of it.
        model: what the values were checked against.
    """
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key([str(part) for part in detail["loc"]], model)
    if detail["type"] == "model_type":
        return f"{key}: must be a table of options, got {_short(detail['input'])}"
    if detail["type"] == "missing":
        return f"{key}: must be given, got {_short(detail['input'])}"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub("^(Input|String)", lambda first: first[0].lower(), message)
    if isinstance(detail.get("ctx", {}).get("error"), ConfigError):
        return str(detail["ctx"]["error"])
    received = "" if detail["type"] == "value_error" else f", got {_short(detail['input'])}"
    return f"{key}: {message}{received}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ..."


def _unknown_key(path: list[str], model: Any) -> str:
    for part in path[:-1]:
        if not part.isdigit():  # the place in a list
            fields = model.model_fields.items()
            model = _model_in(
                next(field.annotation for name, field in fields if part in (name, field.alias))
            )
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=_NEAR)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}"
    return f"{'.'.join(path)}: is no key{hint}"


def _model_in(annotation: Any) -> Any:
    """Return the block that an annotation is, or that its list holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
