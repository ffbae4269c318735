"""The commands for one run: train, config, evaluate, inspect.

torch is imported once the config is valid.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from annealtune import training
from annealtune.cli.flags import (
    EPILOG,
    Assignments,
    check_has_effect,
    read_values,
    with_config_flags,
)
from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig, from_values
from annealtune.training.stopping import stop_on_signals
from annealtune.training.storage import CONFIG_FILE, is_run, require_run

Experiment = Annotated[
    Path | None,
    typer.Argument(
        metavar="EXPERIMENT", help="A TOML file with any of these keys; flags win over it."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run directory.  [default: runs/DATA-MODEL-METHOD-seedN]", metavar="DIR"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]
ResumeOrStart = Annotated[
    bool,
    typer.Option(
        "--resume-or-start",
        help="Continue the run in --out, or start it: for jobs that are run again.",
    ),
]
StopAfter = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="EPOCHS", help="Save and leave after this many epochs; --resume goes on."
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=EPILOG)
@with_config_flags
def train(
    flags: dict[str, Any],
    experiment: Experiment = None,
    set_: Assignments = None,
    out: Out = None,
    resume: Resume = False,
    resume_or_start: ResumeOrStart = False,
    stop_after: StopAfter = None,
) -> None:
    """Train one model and keep its best weights."""
    goes_on = resume or resume_or_start
    if goes_on and out is not None and experiment is None and is_run(out):
        experiment = out / CONFIG_FILE
    config = _read_config(experiment, flags, set_)
    run_dir = out or _choose_directory(config, goes_on)  # of several processes the first decides
    if resume and not is_run(run_dir):
        raise ConfigError(
            f"--resume: there is no run in {run_dir}; without --resume a new one starts"
        )

    with stop_on_signals(at_once=False) as stop:
        with _waiting("loading torch"):
            from annealtune.training import run
            from annealtune.training.progress import Lines, Live, told_scores

        console = Console(stderr=True)
        progress = Live(console) if console.is_terminal else Lines(Console(file=sys.stderr))
        stop.after_epoch = stop_after
        command = shlex.join(["annealtune", *sys.argv[1:]])
        result = run(config, run_dir, resume=goes_on, progress=progress, stop=stop, command=command)
    if not training.is_first():
        return
    if result["validated_on"] == "test":
        typer.echo(
            "the test set chose the best epoch (validate_on = test): its score is optimistic"
        )
    typer.echo(
        f"{told_scores(result, 'test')}, best epoch {result['best_epoch']} of {result['epochs']}"
    )
    typer.echo(f"weights: {run_dir / 'best.safetensors'}")
    typer.echo(f"see it: {shlex.join(['annealtune', 'report', str(run_dir), '--open'])}")


@app.command(epilog=EPILOG)
@with_config_flags
def config(flags: dict[str, Any], experiment: Experiment = None, set_: Assignments = None) -> None:
    """Print the resolved config as TOML; options of the method that are not set are comments."""
    known = _read_config(experiment, flags, set_)
    typer.echo(known.to_toml(), nl=False)
    for name, field in type(known.options).model_fields.items():
        if getattr(known.options, name) is None:
            typer.echo(f"# {name}: {field.description}")


@app.command()
def evaluate(
    run_path: RunPath,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data is now.")] = None,
) -> None:
    """Score the best weights of a run on validation and test set."""
    require_run(run_path)
    with _waiting("loading torch"):
        from annealtune.training.progress import told_scores
        from annealtune.training.runs import score

        scores = score(run_path, data_dir)
    typer.echo(f"best epoch {scores['epoch']}")
    for part in ("validation", "test"):
        typer.echo(told_scores(scores, part))


@app.command("inspect")
def inspect_run(run_path: RunPath) -> None:
    """Print what a run is and how far it got."""
    require_run(run_path)
    with _waiting("loading torch"):
        from annealtune.training.describe import describe_run

    for name, value in describe_run(run_path):
        typer.echo(f"{name:<14} {value}")


def _waiting(words: str) -> Status:
    """Return what shows on a terminal, while its context lasts, that something slow goes on."""
    return Console(stderr=True, quiet=not training.is_first()).status(f"{words} ...")


def _read_config(
    file: Path | None, flags: dict[str, Any], assignments: list[str] | None
) -> RunConfig:
    config = from_values(read_values(file, flags, assignments), str(file or "flags"))
    for assignment in assignments or []:
        check_has_effect(assignment, config.method)
    return config


def _choose_directory(config: RunConfig, goes_on: bool) -> Path:
    """Return where a run goes that has no --out: a free directory, or the last one to continue."""
    data, model = (name.replace(":", ".") for name in (config.data, config.model))
    first = Path("runs") / f"{data}-{model}-{config.method}-seed{config.seed}"
    path = last = first
    number = 1
    while is_run(path):
        last, number = path, number + 1
        path = first.with_name(f"{first.name}-{number}")
    return last if goes_on else path
