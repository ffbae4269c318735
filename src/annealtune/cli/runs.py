"""The commands for one run: train, config, evaluate, inspect.

torch is imported once the config is valid.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from annealtune.annealing import STRATEGIES
from annealtune.cli.command_line import typed_command
from annealtune.cli.completion import complete_experiment, complete_names, complete_run
from annealtune.cli.flags import (
    Assignments,
    check_has_effect,
    read_values,
    with_config_flags,
    write_short_forms,
)
from annealtune.cli.help import MethodCommand
from annealtune.cli.output import say
from annealtune.cli.waiting import waiting
from annealtune.errors import ConfigError, printable_toml
from annealtune.training import is_first
from annealtune.training.config import RunConfig, from_values
from annealtune.training.stopping import stop_once_begun
from annealtune.training.storage import CONFIG_FILE, is_run, nearest_run, require_run

if TYPE_CHECKING:
    from annealtune.cli.live_page import LivePage
    from annealtune.training.progress import Progress

Experiment = Annotated[
    Path | None,
    typer.Argument(
        metavar="EXPERIMENT",
        help="A TOML file with any of these keys; flags win over it.",
        autocompletion=complete_experiment(),
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
StrategyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Short for the method's key strategy: {', '.join(STRATEGIES)}, or "
        "package.module:Class.",
        autocompletion=complete_names(STRATEGIES),
    ),
]
AcceptOn = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="Short for the method's key accept_on: loss, error or package.module:function.",
        autocompletion=complete_names(("loss", "error")),
    ),
]
AcceptBatch = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Short for the method's key accept_batch: same, next or held-out.",
        autocompletion=complete_names(("same", "next", "held-out")),
    ),
]
Report = Annotated[
    bool, typer.Option("--report", help="Write the run's page at its start and as it goes on.")
]
Open = Annotated[
    bool, typer.Option("--open", help="The same, and open the page in the browser at the start.")
]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run directory.", autocompletion=complete_run)
]

app = typer.Typer(rich_markup_mode=None)


@app.command(cls=MethodCommand)
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
    resume_or_start: ResumeOrStart = False,
    stop_after: StopAfter = None,
    report: Report = False,
    open_: Open = False,
) -> None:
    """Train one model and keep its best weights."""
    goes_on = resume or resume_or_start
    if resume and out is not None:
        _require_begun(out)
    if goes_on and out is not None and experiment is None and is_run(out):
        experiment = out / CONFIG_FILE
    short = {"strategy": strategy, "accept_on": accept_on, "accept_batch": accept_batch}
    config = _read_config(experiment, flags, set_, short)
    if not is_first():
        _follow(config, stop_after)
        return
    run_dir = out or _choose_directory(config, goes_on)
    if resume:
        _require_begun(run_dir)

    with waiting(f"loading torch and {config.data}") as line, stop_once_begun() as stop:
        from annealtune.training import run
        from annealtune.training.progress import Lines, Live, told_scores

        console = Console(stderr=True)
        progress = Live(console) if console.is_terminal else Lines(Console(file=sys.stderr))
        stop.after_epoch = stop_after
        stop.when_begun.append(line.erase)
        page = _live_page(progress, run_dir, open_) if report or open_ else None
        result = run(
            config,
            run_dir,
            resume=goes_on,
            progress=page or progress,
            stop=stop,
            command=typed_command(),
        )
        line.erase()
        if page is not None:
            page.finish()
        if result["validated_on"] == "test":
            say("the test set chose the best epoch (validate_on = test): its score is optimistic")
        say(
            f"{told_scores(result, 'test')}, "
            f"best epoch {result['best_epoch']} of {result['epochs']}"
        )
        say(f"weights: {run_dir / 'best.safetensors'}")
        if page is not None and page.page is not None:
            say(f"page: {page.page}")
        else:
            say(f"see it: {shlex.join(['annealtune', 'report', str(run_dir), '--open'])}")


def _follow(config: RunConfig, stop_after: int | None) -> None:
    """Train with the first process of several, which knows the directory and says what happens."""
    with stop_once_begun() as stop:
        from annealtune.training import run

        stop.after_epoch = stop_after
        run(config, Path(), stop=stop)


@app.command(cls=MethodCommand)
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
    short = {"strategy": strategy, "accept_on": accept_on, "accept_batch": accept_batch}
    typer.echo(printable_toml(_read_config(experiment, flags, set_, short).to_toml()), nl=False)


@app.command()
def evaluate(
    run_path: RunPath,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data is now.")] = None,
) -> None:
    """Score the best weights of a run on its validation set and on the test set."""
    require_run(run_path)
    with waiting("loading torch"):
        from annealtune.training.progress import told_scores
        from annealtune.training.runs import score

        scores = score(run_path, data_dir)
    say(f"best epoch {scores['epoch']}")
    for part in ("validation", "test"):
        say(told_scores(scores, part))


@app.command("inspect")
def inspect_run(run_path: RunPath) -> None:
    """Print what a run is and how far it got."""
    require_run(run_path)
    with waiting("loading torch"):
        from annealtune.training.describe import describe_run

    for name, value in describe_run(run_path):
        say(f"{name:<14} {value}")


def _read_config(
    file: Path | None,
    flags: dict[str, Any],
    assignments: list[str] | None,
    short_forms: dict[str, str | None],
) -> RunConfig:
    values = read_values(file, flags, assignments)
    write_short_forms(values, **short_forms)
    config = from_values(values, str(file or "flags"))
    for assignment in assignments or []:
        check_has_effect(assignment, config.method)
    return config


def _require_begun(path: Path) -> None:
    """Check that there is a run to continue.

    Raises:
        ConfigError: if there is none, with the nearest one beside it.
    """
    if is_run(path):
        return
    raise ConfigError(
        f"--resume: there is no run in {path}{nearest_run(path) or ';'} "
        "annealtune list shows the runs, without --resume a new one starts"
    )


def _live_page(progress: "Progress", run_dir: Path, is_shown: bool) -> "LivePage":
    from annealtune.cli.live_page import LivePage
    from annealtune.cli.report import show

    return LivePage(progress, run_dir, show if is_shown else None)


def _choose_directory(config: RunConfig, goes_on: bool) -> Path:
    """Return where a run goes that has no --out: a free directory, or that of the run to continue.

    Of several with the same name the last one is continued that is not finished.
    """
    data, model = (name.replace(":", ".") for name in (config.data, config.model))
    first = Path("runs") / f"{data}-{model}-{config.method}-seed{config.seed}"
    path, number = first, 1
    runs = []
    while is_run(path):
        runs.append(path)
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    if not goes_on or not runs:
        return path
    unfinished = [run for run in runs if not (run / "result.json").exists()]
    return (unfinished or runs)[-1]
