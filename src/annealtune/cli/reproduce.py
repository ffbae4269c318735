"""The command that runs the paper's experiments again."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from annealtune.cli.command_line import typed_command
from annealtune.cli.completion import complete_names
from annealtune.cli.flags import Assignments, read_values
from annealtune.cli.output import say
from annealtune.cli.studies import (
    Jobs,
    RetryFailed,
    Seeds,
    share_cores,
    tell_outcome,
)
from annealtune.errors import ConfigError, RunError, unknown_name
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
from annealtune.studies.run import run_study
from annealtune.training.config import DEVICES
from annealtune.training.stopping import stop_on_signals

app = typer.Typer(rich_markup_mode=None)


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Which one; without a name all are listed.",
            autocompletion=complete_names(REPRODUCTIONS),
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            metavar="|".join(SIZES),
            help="small: minutes on a CPU; regime: a night on one; paper: days on a GPU.",
            autocompletion=complete_names(SIZES),
        ),
    ] = "small",
    seeds: Seeds = None,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Where the studies go.", metavar="DIR")] = Path(
        "studies"
    ),
    data_dir: Annotated[Path | None, typer.Option(help="Where the data is.")] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch missing data from its official address.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="auto, cpu, cuda, cuda:N or mps",
            autocompletion=complete_names(DEVICES),
        ),
    ] = None,
    set_: Assignments = None,
    retry_failed: RetryFailed = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start runs that take days.")] = False,
) -> None:
    """Run an experiment of the paper again, or list them."""
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    if name is None:
        _list_reproductions(Console(), jobs or cores())
        return
    chosen = find_reproduction(name)
    given = {"data_dir": data_dir, "download": download, "device": device}
    flags = {key: value for key, value in given.items() if value}
    jobs = jobs or (1 if size == "paper" else cores())
    plans = _plan_parts(chosen, size, flags, set_, seeds)
    runs = sum(len(plan.runs()) for plan in plans)
    duration = _duration(chosen.hours(plans, size, jobs))
    say(f"{name}: {chosen.shows}; {runs} runs, about {duration}")
    if size == "paper":
        _check_means(f"{runs} runs take about {duration}", yes, device)
    failures = []
    display = choose_display(Console(stderr=True))
    with stop_on_signals() as stop:
        for plan in plans:
            path = out / plan.name
            plan, engine = share_cores(plan, path, jobs)
            finished = run_study(plan, path, engine, display, stop, retry_failed=retry_failed)
            try:
                tell_outcome(finished)
            except RunError as failure:  # the other studies go on
                failures.append(str(failure))
    if failures:
        raise RunError("\n".join(failures))


def _plan_parts(
    chosen: Reproduction,
    size: Size,
    flags: dict[str, Any],
    assignments: list[str] | None,
    seeds: str | None,
) -> list[Plan]:
    """Plan all studies of a reproduction, so that a mistake shows before the first one starts."""
    return [
        make_plan(
            read_values(
                find_experiment(Path(part.file)),
                flags,
                [*part.assignments(size), *(assignments or [])],
            ),
            name=part.name(size),
            command=typed_command(),
            methods=part.methods,
            seeds=parse_seeds(part.seeds[size] if seeds is None else seeds),
            vary=part.vary,
            source=part.file,
        )
        for part in chosen.parts
    ]


def _check_means(cost: str, yes: bool, device: str | None) -> None:
    """Refuse to start what takes days, unless it is meant and there is a GPU for it."""
    if not yes:
        raise ConfigError(
            f"size = 'paper': {cost} on one GPU like the paper's; start them with --yes, or use "
            "--size regime"
        )
    if device is None:
        from annealtune.training.runs import best_device

        if best_device() == "cpu":
            raise ConfigError(
                "size = 'paper': needs a GPU and there is none here; use --size regime, or insist "
                "with --device cpu"
            )


def _list_reproductions(console: Console, jobs: int) -> None:
    """Print what there is to reproduce and how long it takes."""
    table = Table("name", "what it shows", *SIZES, box=None)
    for each in REPRODUCTIONS.values():
        costs = []
        for size in SIZES:
            plans = _plan_parts(each, size, {}, None, None)
            runs = sum(len(plan.runs()) for plan in plans)
            hours = each.hours(plans, size, 1 if size == "paper" else jobs)
            costs.append(f"{runs} in {_duration(hours)}")
        table.add_row(each.name, each.shows, *costs)
    console.print(table)
    console.print(
        f"\nRuns and their estimated time: small and regime on {jobs} cores, paper on one GPU.\n"
        "Figures of the same net share their runs with table-1.",
        highlight=False,
    )


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{max(1, round(hours * 60))} min"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.0f} days"
