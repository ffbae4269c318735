"""Flags of several commands: one for every key of a run; flags, file and --set together.

The flags stand in groups in the help, and the shell completes their values.
"""

import inspect
import shlex
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from annealtune.cli.completion import complete_assignment, complete_names
from annealtune.errors import ConfigError
from annealtune.training.config import (
    DEFAULT_METHOD,
    DEVICES,
    RunConfig,
    assign,
    is_block,
    key_of_method,
    read_toml,
)
from annealtune.training.config.names import ARCHITECTURES, DATASETS

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set an option of a method: sgd-sa.lr=[0.1].",
        autocompletion=complete_assignment,
    ),
]

_BLOCKS: dict[str, Any] = {
    name: field.annotation for name, field in RunConfig.model_fields.items() if is_block(field)
}
_KEYS = [name for name in RunConfig.model_fields if name not in _BLOCKS]
# In which part of the help a key stands.
_GROUPS = {
    "Data": ("data", "data_dir", "download", "image_size", "train_size", "augment"),
    "Model": ("model", "pad"),
    "Training": ("method", "epochs", "batch_size", "reshuffle"),
    "Scores": ("validation_fraction", "validate_on", "train_sample"),
    "Seeds": ("seed", "init_seed", "data_seed", "split_seed", "decision_seed"),
    "Machine": ("device", "threads", "precision", "compile", "channels_last"),
    "Files": ("checkpoint_every", "tensorboard"),
}
_PLACES = {key: group for group, keys in _GROUPS.items() for key in keys}
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME", Path: "DIR"}
_OWN_METAVARS = {"image_size": "HEIGHT WIDTH", "checkpoint_every": "WHEN"}
# What the shell completes besides the choices of a key that has them.
_NAMES = {"data": tuple(DATASETS), "model": tuple(ARCHITECTURES), "device": DEVICES}


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
    names = choices or _NAMES.get(name)
    option = typer.Option(
        spelled,
        help=help_text,
        show_default=False,
        metavar=metavar,
        rich_help_panel=_PLACES.get(name),
        autocompletion=complete_names(names) if names else None,
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


def _spelled(block: str) -> str:
    return RunConfig.model_fields[block].alias or block


def read_values(
    file: Path | None, flags: dict[str, Any], assignments: list[str] | None
) -> dict[str, Any]:
    """Return what a file, --set and flags say together; flags win, then --set."""
    if file is not None and not file.exists():
        _check_meant(file.name)
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
    if block in map(_spelled, _BLOCKS) and block != method:
        raise ConfigError(
            f"--set {key}: is an option of {block}, but the method is {method}; add --method "
            f"{block}, or leave it out"
        )


def _check_meant(name: str) -> None:
    """Refuse the name of a method, data set or model where a file belongs."""
    methods = get_args(RunConfig.model_fields["method"].annotation)
    for flag, names in (("--method", methods), ("--data", DATASETS), ("--model", ARCHITECTURES)):
        if name in names:
            raise ConfigError(f"{name}: there is no such file; did you mean {flag} {name}?")


def as_assignment(flag: str, words: list[str]) -> str:
    """Return the end of a message about a flag that is a key of the chosen method's block.

    Args:
        flag: as it was typed, such as ``--around``.
        words: of the whole command; the method is looked up in them and in their file.
    """
    values: dict[str, Any] = {}
    for file in (word for word in words if word.endswith(".toml")):
        with suppress(ConfigError):  # what is wrong with the file is said once the flag is right
            values |= read_toml(Path(file))
    method = _value_after("--method", words) or values.get("method", DEFAULT_METHOD)
    key = key_of_method(flag.lstrip("-"), method)
    if key is None:
        return ""
    assignment = shlex.quote(f"{key}={_value_after(flag, words) or 'VALUE'}")
    return f"; did you mean --set {assignment}?"


def _value_after(flag: str, words: list[str]) -> str:
    """Return what follows a flag, as a word of its own or after ``=``; nothing if nothing does."""
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
        if word == flag:
            return "" if following.startswith("-") else following
    return ""


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
