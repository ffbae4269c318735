"""Flags of several commands: one for every key of a run; flags, file and --set together."""

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig, assign, is_block, read_toml

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key, such as an option of a method: sgd-sa.lr=[0.1].",
    ),
]
EPILOG = "annealtune config --method NAME prints all options of a method, to be set by --set."

_KEYS = [name for name, field in RunConfig.model_fields.items() if not is_block(field)]
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME", Path: "DIR"}
_OWN_METAVARS = {"image_size": "HEIGHT WIDTH", "checkpoint_every": "WHEN"}


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
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    metavar = _OWN_METAVARS.get(name) or _METAVARS.get(kind)
    help_text = str(field.description)
    if len(choices) > 3:
        help_text += f": {', '.join(choices)}"
    elif choices:
        metavar = "|".join(choices)
    if field.default is not None:
        help_text += f"  [default: {str(field.default).lower()}]"
    option = typer.Option(spelled, help=help_text, show_default=False, metavar=metavar)
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


def read_values(
    file: Path | None, flags: dict[str, Any], assignments: list[str] | None
) -> dict[str, Any]:
    """Return what a file, --set and flags say together; flags win, then --set.

    Raises:
        ConfigError: if the file cannot be read, or an assignment is none.
    """
    values = read_toml(file) if file is not None else {}
    for assignment in assignments or []:
        assign(values, assignment)
    return {**values, **flags}


def check_has_effect(assignment: str, method: str) -> None:
    """Refuse to set an option of a method that is not the one of the run.

    Raises:
        ConfigError: if it is one; a file may have blocks for several methods, a study needs them.
    """
    key = assignment.partition("=")[0].strip()
    block = key.partition(".")[0].replace("_", "-")
    if block in get_args(RunConfig.model_fields["method"].annotation) and block != method:
        raise ConfigError(
            f"--set {key}: is an option of {block}, but the method is {method}; add --method "
            f"{block}, or leave it out"
        )
