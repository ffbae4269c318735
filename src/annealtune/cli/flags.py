"""Flags of several commands: one for every key of a run; flags, file and --set together."""

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from annealtune.errors import ConfigError
from annealtune.training.config import DEFAULT_METHOD, RunConfig, assign, is_block, read_toml

Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set an option of a method: sgd-sa.lr=[0.1]."),
]

_BLOCKS: dict[str, Any] = {
    name: field.annotation for name, field in RunConfig.model_fields.items() if is_block(field)
}
_KEYS = [name for name in RunConfig.model_fields if name not in _BLOCKS]


def with_config_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for every top-level key of the config."""

    def wrapper(**arguments: Any) -> None:
        flags = {key: arguments.pop(key) for key in _KEYS}
        command(flags={key: flag for key, flag in flags.items() if flag is not None}, **arguments)

    own = inspect.signature(command, eval_str=True).parameters
    parameters = [
        *(each.replace(kind=each.KEYWORD_ONLY) for name, each in own.items() if name != "flags"),
        *(_flag(key) for key in _KEYS),
    ]
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper


def _flag(name: str) -> inspect.Parameter:
    field = RunConfig.model_fields[name]
    kind = _plain_type(field.annotation)
    spelled = "--" + name.replace("_", "-")
    if kind is bool:
        spelled = f"{spelled}/--no-{name.replace('_', '-')}"
    shown = "" if field.default is None else f"  [default: {str(field.default).lower()}]"
    metavar = "HEIGHT WIDTH" if name == "image_size" else None
    if get_origin(field.annotation) is Literal:
        metavar = "|".join(get_args(field.annotation))
    option = typer.Option(
        spelled, help=f"{field.description}{shown}", show_default=False, metavar=metavar
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _plain_type(annotation: Any) -> Any:
    """Return the type that a flag is parsed as; the config itself checks the value."""
    if get_origin(annotation) in (types.UnionType, Union):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is tuple:
        return tuple[int, int]
    return annotation if annotation in (bool, int, float, Path) else str


def explain_options() -> str:
    """Return one line for every option of every method, for the end of a help text."""
    lines = ["Options of the methods, for the file or --set:"]
    for name, block in _BLOCKS.items():
        for key, option in block.model_fields.items():
            value = "unset" if option.default is None else _short(option.default)
            lines.append(f"{_spelled(name)}.{key}: {option.description} [{value}]")
    return "\b\n" + "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{value[0]} ... {value[-1]}"
    return str(list(value) if isinstance(value, tuple) else value)


def _spelled(block: str) -> str:
    return RunConfig.model_fields[block].alias or block


def read_values(
    file: Path | None, flags: dict[str, Any], assignments: list[str] | None
) -> dict[str, Any]:
    """Return what a file, --set and flags say together; flags win, then --set."""
    values = read_toml(file) if file is not None else {}
    for assignment in assignments or []:
        assign(values, assignment)
    return {**values, **flags}


def write_short_forms(values: dict[str, Any], **short: str | None) -> None:
    """Write flags that are short for keys of the chosen method into its block.

    Raises:
        ConfigError: if the method has no such key.
    """
    method = str(values.get("method", DEFAULT_METHOD))
    blocks = {_spelled(name): block.model_fields for name, block in _BLOCKS.items()}
    for key, value in short.items():
        if value is None or method not in blocks:  # the config itself refuses an unknown method
            continue
        if key not in blocks[method]:
            having = [name for name, keys in blocks.items() if key in keys]
            raise ConfigError(
                f"--{key.replace('_', '-')} {value}: method = {method!r} has no key {key}; "
                f"{', '.join(having[:-1])} and {having[-1]} have it"
            )
        spelled = method.replace("-", "_")  # a block may be spelled either way in the file
        name = spelled if spelled in values else method
        block = values.get(name, {})
        if isinstance(block, dict):
            values[name] = {**block, key: value}
