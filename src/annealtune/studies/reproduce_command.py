"""The command that runs the paper's experiments again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from annealtune.errors import ConfigError, RunError
from annealtune.studies.commands import (
    Jobs,
    RetryFailed,
    Seeds,
    share_cores,
    tell_outcome,
    typed_command,
)
from annealtune.studies.conduct import conduct
from annealtune.studies.directory import cores
from annealtune.studies.display import choose_display
from annealtune.studies.plan import Plan, make_plan, parse_seeds
from annealtune.studies.reproduction import (
    REPRODUCTIONS,
    SIZES,
    Reproduction,
    Size,
    find_experiment,
    find_reproduction,
)
from annealtune.training.commands import Assignments, read_values
from annealtune.training.stopping import stop_on_signals


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which one; without it they are listed.")
    ] = None,
    size: Annotated[str, typer.Option(help="small: for a CPU; paper: for a GPU.")] = "small",
    seeds: Seeds = None,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Where the studies go.", metavar="DIR")] = Path(
        "studies"
    ),
    data_dir: Annotated[Path | None, typer.Option(help="Where the data is.")] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch missing data from its official address.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps")] = None,
    set_: Assignments = None,
    retry_failed: RetryFailed = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start what takes days.")] = False,
) -> None:
    """Run an experiment of the paper again, or list them."""
    if size not in SIZES:
        raise ConfigError(f"size = {size!r}: must be {' or '.join(SIZES)}")
    if name is None:
        list_reproductions(Console(), jobs or cores())
        return
    chosen = find_reproduction(name)
    flags = {"data_dir": data_dir, "download": download or None, "device": device}
    flags = {key: value for key, value in flags.items() if value is not None}
    jobs = jobs or (cores() if size == "small" else 1)
    plans = plan_parts(chosen, size, flags, set_, seeds)
    runs = sum(len(plan.runs()) for plan in plans)
    share = runs / chosen.count()
    duration = _duration(share * chosen.hours(size, jobs))
    typer.echo(f"{name}: {chosen.shows}; {runs} runs, {duration}")
    if size == "paper":
        check_means(f"{runs} runs take {duration}", yes, device)
    failures = []
    display = choose_display(Console(stderr=True))
    with stop_on_signals() as stop:
        for plan in plans:
            path = out / plan.name
            plan, engine = share_cores(plan, path, jobs)
            finished = conduct(plan, path, engine, display, stop, retry_failed=retry_failed)
            try:
                tell_outcome(finished)
            except RunError as failure:  # the other studies do not suffer from it
                failures.append(str(failure))
    if failures:
        raise RunError("\n".join(failures))


def plan_parts(
    chosen: Reproduction,
    size: Size,
    flags: dict[str, Any],
    assignments: list[str] | None,
    seeds: str | None,
) -> list[Plan]:
    """Plan all studies of a reproduction, so that a mistake shows before the first one starts.

    Raises:
        ConfigError: for whatever is wrong with flags, assignments or seeds.
    """
    return [
        make_plan(
            read_values(find_experiment(Path(part.experiments[size])), flags, assignments),
            name=part.name(size),
            command=typed_command(),
            methods=part.methods,
            seeds=parse_seeds(part.seeds if seeds is None else seeds),
            vary=part.vary,
            source=part.experiments[size],
        )
        for part in chosen.parts
    ]


def check_means(cost: str, yes: bool, device: str | None) -> None:
    """Refuse to start what takes days, unless it is meant and there is a GPU for it.

    Raises:
        ConfigError: if one of the two is missing.
    """
    if not yes:
        raise ConfigError(
            f"size = 'paper': {cost} on one GPU like the paper's; start them with --yes, or take "
            "--size small"
        )
    if device is None:
        from annealtune.training.environment import best_device

        if best_device() == "cpu":
            raise ConfigError(
                "size = 'paper': needs a GPU and there is none here; take --size small, or insist "
                "with --device cpu"
            )


def list_reproductions(console: Console, jobs: int) -> None:
    """Print what there is to reproduce and how long it takes."""
    table = Table(
        "name", "what it shows", "runs", f"small, {jobs} cores", "paper, one GPU", box=None
    )
    for each in REPRODUCTIONS.values():
        table.add_row(
            each.name,
            each.shows,
            str(each.count()),
            _duration(each.hours("small", jobs)),
            _duration(each.hours("paper", 1)),
        )
    console.print(table)
    console.print("\nFigures of the same net share their runs with table-1.", highlight=False)


def _duration(hours: float) -> str:
    if hours < 1:
        return f"about {max(1, round(hours * 60))} minutes"
    return f"about {hours:.1f} hours" if hours < 48 else f"about {hours / 24:.0f} days"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(reproduce)
