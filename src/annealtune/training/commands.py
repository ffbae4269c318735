"""The commands of the program that deal with one run. torch is imported once a config is valid."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from rich.console import Console

from annealtune.annealing import STRATEGIES
from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig, assign, from_values, read_toml
from annealtune.training.options import Options

Experiment = Annotated[
    Path | None, typer.Argument(help="A TOML file with any of these keys; flags win over it.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set an option of a method: sgd-sa.lr=[0.1]."),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run directory.  [default: runs/DATA-MODEL-METHOD-seedN]", metavar="DIR"),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in --out; start it if there is none.")
]
StopAfter = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="EPOCHS", help="Save and leave after so many epochs; --resume goes on."
    ),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Short for the method's key strategy: {', '.join(STRATEGIES)}, or "
        "package.module:Class.",
    ),
]
AcceptOn = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="Short for the method's key accept_on: loss, error or package.module:function.",
    ),
]
AcceptBatch = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE", help="Short for the method's key accept_batch: same, next or held-out."
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def with_config_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for every top-level key of the config."""

    def wrapper(**arguments: Any) -> None:
        flags = {name: arguments.pop(name) for name in flag_names}
        given = {name: value for name, value in flags.items() if value is not None}
        command(flags=given, **arguments)

    own = [p for p in inspect.signature(command).parameters.values() if p.name != "flags"]
    hints = inspect.get_annotations(command, eval_str=True)
    own = [p.replace(annotation=hints[p.name]) for p in own]
    keys = [name for name, field in RunConfig.model_fields.items() if not _is_block(field)]
    flag_names = set(keys)
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + [_flag(key) for key in keys]
    )
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__annotations__ = {
        p.name: p.annotation
        for p in wrapper.__signature__.parameters.values()  # type: ignore[attr-defined]
    }
    return wrapper


def _is_block(field: Any) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Options)


def _flag(name: str) -> inspect.Parameter:
    field = RunConfig.model_fields[name]
    kind = _plain_type(field.annotation)
    spelled = "--" + name.replace("_", "-")
    if kind is bool:
        spelled = f"{spelled}/--no-{name.replace('_', '-')}"
    shown = "" if field.default is None else f"  [default: {str(field.default).lower()}]"
    metavar = "HEIGHT WIDTH" if name == "image_size" else _choices(field.annotation)
    option = typer.Option(
        spelled, help=f"{field.description}{shown}", show_default=False, metavar=metavar
    )
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _choices(annotation: Any) -> str | None:
    return "|".join(get_args(annotation)) if get_origin(annotation) is Literal else None


def _plain_type(annotation: Any) -> Any:
    """Return the type that a flag is parsed as; the config itself checks the value."""
    if get_origin(annotation) in (types.UnionType, Union):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is tuple:
        return tuple[int, int]
    return annotation if annotation in (bool, int, float, Path) else str


def _explain_blocks() -> str:
    lines = ["Options of the methods, for the file or --set:"]
    for name, field in RunConfig.model_fields.items():
        if not _is_block(field):
            continue
        block: Any = field.annotation
        for key, option in block.model_fields.items():
            value = "unset" if option.default is None else _short(option.default)
            lines.append(f"{field.alias or name}.{key}: {option.description} [{value}]")
    return "\b\n" + "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{value[0]} ... {value[-1]}"
    return str(list(value) if isinstance(value, tuple) else value)


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
    method = str(values.get("method", RunConfig.model_fields["method"].default))
    blocks = {
        field.alias or name: _keys_of(field) for name, field in RunConfig.model_fields.items()
    }
    for key, value in short.items():
        if value is None or method not in blocks:  # which is a fault of its own
            continue
        if key not in blocks[method]:
            having = [name for name, keys in blocks.items() if key in keys]
            raise ConfigError(
                f"--{key.replace('_', '-')} {value}: method = {method!r} has no key {key}; "
                f"{', '.join(having[:-1])} and {having[-1]} have it"
            )
        spelled = method.replace("-", "_")  # either way, as in the file
        name = spelled if spelled in values else method
        block = values.get(name, {})
        if isinstance(block, dict):
            values[name] = {**block, key: value}


def _keys_of(field: Any) -> Iterable[str]:
    return field.annotation.model_fields if _is_block(field) else ()


@with_config_flags
def train(
    flags: dict[str, Any],
    experiment: Experiment = None,
    set_: Assignments = None,
    strategy: StrategyName = None,
    accept_on: AcceptOn = None,
    accept_batch: AcceptBatch = None,
    out: Out = None,
    resume: Resume = False,
    stop_after: StopAfter = None,
) -> None:
    """Train one model and keep its best weights."""
    if resume and out is not None and experiment is None and _is_run(out):
        experiment = out / "config.toml"
    values = read_values(experiment, flags, set_)
    write_short_forms(values, strategy=strategy, accept_on=accept_on, accept_batch=accept_batch)
    config = from_values(values, str(experiment or "flags"))
    run_dir = out or _free_directory(config, resume)

    from annealtune.training import run
    from annealtune.training.progress import Lines, Live, decimal
    from annealtune.training.stopping import stop_on_signals

    console = Console(stderr=True)
    progress = Live(console) if console.is_terminal else Lines(Console(file=sys.stderr))
    with stop_on_signals() as stop:
        stop.after_epoch = stop_after
        result = run(config, run_dir, resume=resume, progress=progress, stop=stop)
    if result["validated_on"] == "test":
        typer.echo(
            "the test set chose the best epoch (validate_on = test): its score is optimistic"
        )
    typer.echo(
        f"test accuracy {result['test_accuracy']:.2%}, test loss {decimal(result['test_loss'])}, "
        f"best epoch {result['best_epoch']} of {result['epochs']}"
    )
    typer.echo(f"weights: {run_dir / 'best.safetensors'}")


@with_config_flags
def config(
    flags: dict[str, Any],
    experiment: Experiment = None,
    set_: Assignments = None,
    strategy: StrategyName = None,
    accept_on: AcceptOn = None,
    accept_batch: AcceptBatch = None,
) -> None:
    """Print the resolved config as TOML."""
    values = read_values(experiment, flags, set_)
    write_short_forms(values, strategy=strategy, accept_on=accept_on, accept_batch=accept_batch)
    typer.echo(from_values(values, str(experiment or "flags")).to_toml(), nl=False)


def evaluate(
    run_path: RunPath,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data is now.")] = None,
) -> None:
    """Score the best weights of a run on its validation set and on the test set."""
    _require_run(run_path)
    from annealtune.training.entry import score

    scores = score(run_path, data_dir)
    typer.echo(f"best epoch {scores['epoch']}")
    for part in ("validation", "test"):
        typer.echo(
            f"{part} accuracy {scores[f'{part}_accuracy']:.2%}, "
            f"{part} loss {scores[f'{part}_loss']:.4f}"
        )


def inspect_run(run_path: RunPath) -> None:
    """Print what a run is and how far it got."""
    _require_run(run_path)
    from annealtune.training.inspection import describe_run

    for name, value in describe_run(run_path):
        typer.echo(f"{name:<14} {value}")


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()


def _require_run(path: Path) -> None:
    if not _is_run(path):
        raise ConfigError(f"{path}: is no run directory: it has no config.toml")


def _free_directory(config: RunConfig, resume: bool) -> Path:
    data, model = (name.replace(":", ".") for name in (config.data, config.model))
    wanted = Path("runs") / f"{data}-{model}-{config.method}-seed{config.seed}"
    path, number = wanted, 1
    while _is_run(path) and not resume:
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")
    return path


def register(app: typer.Typer) -> None:
    """Add the commands of this room to the program."""
    blocks = _explain_blocks()
    app.command(epilog=blocks)(train)
    app.command(epilog=blocks)(config)
    app.command()(evaluate)
    app.command("inspect")(inspect_run)
