"""The commands for many runs: study, and reproduce for those of the paper. They import no torch."""

import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from annealtune.cli.flags import EPILOG, Assignments, read_values, with_config_flags
from annealtune.errors import ConfigError, RunError, unknown_name
from annealtune.studies.engines import Engine
from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.plan import VARIED, Plan, make_plan, parse_seeds
from annealtune.studies.records import Study
from annealtune.studies.reproduction import (
    REPRODUCTIONS,
    SIZES,
    Reproduction,
    Size,
    find_experiment,
)
from annealtune.studies.run import Display, cores, run_study, stored_threads
from annealtune.training.stopping import stop_on_signals

ENGINES = ("local", "ray")

Seeds = Annotated[
    str | None,
    typer.Option(metavar="0-9", help="Such as 0-9 or 0,3,5-7.  [default: the file's, or 0-9]"),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Runs at a time; they share the cores.  [default: one per core, 1 on a GPU; with "
        "Ray as many as there is room for]",
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also try again the runs that failed.")
]

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog=EPILOG)
@with_config_flags
def study(
    flags: dict[str, Any],
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="A TOML file, or the name of one that comes with annealtune, such as demo.",
        ),
    ] = None,
    set_: Assignments = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Built-in methods, sgd-sa-paper-text, sgd-sa-paper-code, or [methods.NAME] "
            "tables of the file.  [default: those of the file]",
        ),
    ] = None,
    seeds: Seeds = None,
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help=f"What the seeds are: {', '.join(VARIED)}.  [default: seed]"
        ),
    ] = None,
    jobs: Jobs = None,
    engine_name: Annotated[
        str,
        typer.Option("--engine", help=f"Who runs them: {', '.join(ENGINES)}.", metavar="NAME"),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ray: the head of a cluster that this machine is part of, or auto.  [default: "
            "one of this machine alone]",
        ),
    ] = None,
    cpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Ray: cores of a run.  [default: its threads, or 1]"),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="N",
            help="Ray: 1 is a GPU of its own, 0.5 half of one, 0 none.  [default: 1 if "
            "there are any, 0 with device=cpu]",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Study directory.  [default: studies/NAME]", metavar="DIR")
    ] = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Run methods x seeds; run it again to go on."""
    file = find_experiment(experiment) if experiment is not None else None
    name = file.stem if file is not None else "study"
    out = out or Path("studies") / name
    plan = make_plan(
        read_values(file, flags, set_),
        name=name,
        command=_typed_command(),
        methods=None if methods is None else [name.strip() for name in methods.split(",")],
        seeds=None if seeds is None else parse_seeds(seeds),
        vary=vary,
        source=str(file or "flags"),
    )
    if plan.vary in flags:
        raise ConfigError(f"{plan.vary} = {flags[plan.vary]}: a study varies it; give --seeds")
    if engine_name not in ENGINES:
        raise unknown_name("engine", engine_name, ENGINES)
    engine: Engine
    if engine_name == "ray":
        from annealtune.studies.engines.ray import RayEngine

        config = next(iter(plan.configs.values()))
        if config.device.startswith("cuda:"):
            raise ConfigError(
                f"device = {config.device!r}: Ray chooses the GPU of a run, which then is its "
                "only one; give --device cuda"
            )
        threads = config.threads or stored_threads(out) or cpus or 1
        plan = plan.with_threads(threads)
        engine = RayEngine(address, cpus=cpus or threads, gpus=gpus, jobs=jobs)
    elif (address, cpus, gpus) != (None, None, None):
        raise ConfigError("address, cpus, gpus: belong to --engine ray")
    else:
        plan, engine = _share_cores(plan, out, jobs)
    with stop_on_signals() as stop:
        display = Display(Console(stderr=True))
        finished = run_study(plan, out, engine, display, stop, retry_failed=retry_failed)
    _tell_outcome(finished)


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which one; without a name all are listed."),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            metavar="|".join(SIZES),
            help="small: minutes on a CPU; regime: a night on one; paper: days on a GPU.",
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
        str | None, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:N or mps")
    ] = None,
    set_: Assignments = None,
    retry_failed: RetryFailed = False,
) -> None:
    """Run an experiment of the paper again, or list them."""
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    if name is None:
        _list_reproductions(jobs or cores())
        return
    if name not in REPRODUCTIONS:
        raise unknown_name("reproduce", name, REPRODUCTIONS)
    chosen = REPRODUCTIONS[name]
    given = {"data_dir": data_dir, "download": download, "device": device}
    flags = {key: value for key, value in given.items() if value}
    jobs = jobs or (1 if size == "paper" else cores())
    plans = _plan_parts(chosen, size, flags, set_, seeds)
    runs = sum(len(plan.tasks(out)) for plan in plans)
    duration = _duration(chosen.hours(plans, size, jobs))
    typer.echo(f"{name}: {chosen.shows}; {runs} runs, about {duration}")
    failures = []
    with stop_on_signals() as stop:
        display = Display(Console(stderr=True))
        for plan in plans:
            path = out / plan.name
            plan, engine = _share_cores(plan, path, jobs)
            finished = run_study(plan, path, engine, display, stop, retry_failed=retry_failed)
            try:
                _tell_outcome(finished)
            except RunError as failure:  # the other studies go on
                failures.append(str(failure))
    if failures:
        raise RunError("\n".join(failures))


def _typed_command() -> str:
    return shlex.join(["annealtune", *sys.argv[1:]])


def _share_cores(plan: Plan, path: Path, jobs: int | None) -> tuple[Plan, Engine]:
    """Settle the number of jobs, and give each run its share of the cores as threads.

    The thread count is part of the config of every run: results depend on it. A study that is
    continued keeps the one it has, whatever the number of jobs now.
    """
    config = next(iter(plan.configs.values()))
    # One job for each core, or one in all where a GPU does the work; torch is not asked.
    has_gpu = shutil.which("nvidia-smi") is not None or sys.platform == "darwin"
    on_cpu = config.device == "cpu" or (config.device == "auto" and not has_gpu)
    jobs = min(jobs or (cores() if on_cpu else 1), len(plan.tasks(path)))
    threads = config.threads or stored_threads(path) or max(1, cores() // jobs)
    return plan.with_threads(threads), LocalEngine(jobs)


def _tell_outcome(study: Study) -> None:
    """Print what became of the runs and what to do next.

    Raises:
        RunError: if runs have failed.
    """
    counts = Counter(run.status for run in study.runs)
    told = ", ".join(f"{counts[status]} {status}" for status in counts)
    typer.echo(f"{study.path}: {told}")
    typer.echo(f"next: {shlex.join(['annealtune', 'report', str(study.path)])}")
    failed = [run for run in study.runs if run.status == "failed"]
    if failed:
        lines = [f"{run.method} seed {run.seed}: {run.reason}" for run in failed[:10]]
        more = ["..."] if len(failed) > len(lines) else []
        told = f"{len(failed)} of {len(study.runs)} runs failed; try again with --retry-failed"
        raise RunError("\n".join([told, *lines, *more]))


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
            command=_typed_command(),
            methods=part.methods,
            seeds=parse_seeds(part.seeds[size] if seeds is None else seeds),
            vary=part.vary,
            source=part.file,
        )
        for part in chosen.parts
    ]


def _list_reproductions(jobs: int) -> None:
    """Print what there is to reproduce and how long it takes."""
    for name, each in REPRODUCTIONS.items():
        typer.echo(f"{name}: {each.shows}")
        for size in SIZES:
            plans = _plan_parts(each, size, {}, None, None)
            runs = sum(len(plan.configs) * len(plan.seeds) for plan in plans)
            hours = each.hours(plans, size, 1 if size == "paper" else jobs)
            typer.echo(f"  {size:<6} {runs:4} runs, about {_duration(hours)}")
    typer.echo(f"\nEstimates are for {jobs} cores, those of paper for one GPU.")
    typer.echo("Figures of the same net share their runs with table-1.")


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{max(1, round(hours * 60))} min"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.0f} days"
