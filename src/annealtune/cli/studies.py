"""The command for many runs: study. It imports no torch."""

import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from annealtune.cli.command_line import typed_command
from annealtune.cli.completion import complete_experiment, complete_list, complete_names
from annealtune.cli.flags import Assignments, read_values, with_config_flags
from annealtune.cli.help import GroupedCommand
from annealtune.cli.output import say
from annealtune.errors import ConfigError, RunError, unknown_name
from annealtune.studies.best_seed import KIND, Halving, hunt
from annealtune.studies.directory import cores, stored_threads
from annealtune.studies.display import choose_display
from annealtune.studies.engines import Engine
from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.engines.ray import RayEngine
from annealtune.studies.plan import BUILT_IN, VARIED, Plan, make_plan, parse_methods, parse_seeds
from annealtune.studies.records import FAILURE_FILE, Study
from annealtune.studies.reproduction import experiment_names, find_experiment
from annealtune.studies.run import run_study
from annealtune.training.progress import decimal
from annealtune.training.stopping import stop_on_signals

ENGINES = ("local", "ray")

Experiment = Annotated[
    Path | None,
    typer.Argument(
        metavar="EXPERIMENT",
        help="A TOML file, or the name of one that comes with annealtune: demo.",
        autocompletion=complete_experiment(experiment_names()),
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="Built-in methods, sgd-sa-paper-text, sgd-sa-paper-code, or [methods.NAME] tables of "
        "the file.  [default: those of the file]",
        autocompletion=complete_list(BUILT_IN),
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="0-9", help="Such as 0-9 or 0,3,5-7.  [default: the file's, or 0-9]"),
]
Vary = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help=f"What the seeds are: {', '.join(VARIED)}.  [default: seed]",
        autocompletion=complete_names(VARIED),
    ),
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
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help=f"Who runs them: {', '.join(ENGINES)}.",
        metavar="NAME",
        autocompletion=complete_names(ENGINES),
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray: the head of a cluster that this machine is part of, or auto.  [default: one of "
        "this machine alone]",
    ),
]
Cpus = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Ray: cores of a run.  [default: its threads, or 1]"),
]
Gpus = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="N",
        help="Ray: 1 is a GPU of its own, 0.5 half of one, 0 none.  [default: 1 if there are any]",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Study directory.  [default: studies/NAME]", metavar="DIR")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also try again the runs that failed.")
]
Search = Annotated[
    str | None,
    typer.Option(
        metavar=KIND,
        help="Look for a good seed of one method instead, by successive halving.",
        autocompletion=complete_names((KIND,)),
    ),
]
Reduction = Annotated[
    int | None,
    typer.Option(min=2, metavar="N", help="Search: one seed in this many goes on.  [default: 2]"),
]
FirstRung = Annotated[
    int | None, typer.Option(min=1, metavar="EPOCHS", help="Search: when seeds are first judged.")
]

app = typer.Typer(rich_markup_mode=None)


@app.command(
    cls=GroupedCommand,
    epilog="annealtune train --help --method NAME shows the options of a method.",
)
@with_config_flags
def study(
    flags: dict[str, Any],
    experiment: Experiment = None,
    set_: Assignments = None,
    methods: Methods = None,
    seeds: Seeds = None,
    vary: Vary = None,
    jobs: Jobs = None,
    engine_name: EngineName = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    out: Out = None,
    retry_failed: RetryFailed = False,
    search: Search = None,
    reduction: Reduction = None,
    first_rung: FirstRung = None,
) -> None:
    """Run methods x seeds, each run in its own directory; run it again to go on."""
    if search not in (None, KIND):
        raise unknown_name("search", str(search), (KIND,))
    if search is None and (reduction is not None or first_rung is not None):
        raise ConfigError("reduction, first_rung: belong to --search best-seed")
    file = find_experiment(experiment) if experiment is not None else None
    values = read_values(file, flags, set_)
    name = file.stem if file is not None else "study"
    name = f"{name}-{KIND}" if search else name
    out = out or Path("studies") / name
    plan = make_plan(
        values,
        name=name,
        command=typed_command(),
        methods=None if methods is None else parse_methods(methods),
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
        plan, engine = share_cluster(plan, out, jobs, address, cpus, gpus)
    elif (address, cpus, gpus) != (None, None, None):
        raise ConfigError("address, cpus, gpus: belong to --engine ray")
    else:
        plan, engine = share_cores(plan, out, jobs)
    display = choose_display(Console(stderr=True))
    with stop_on_signals() as stop:
        if search is None:
            finished = run_study(plan, out, engine, display, stop, retry_failed=retry_failed)
        else:
            halving = Halving(reduction or 2, first_rung)
            finished = hunt(
                plan, out, engine, display, stop, halving=halving, retry_failed=retry_failed
            )
        tell_outcome(finished)


def share_cores(plan: Plan, path: Path, jobs: int | None) -> tuple[Plan, Engine]:
    """Settle the number of jobs, and give each run its share of the cores as threads.

    The thread count is part of the config of every run: results depend on it. A study that is
    continued keeps the one it has, whatever the number of jobs now.

    Raises:
        ConfigError: for a ``study.toml`` that cannot be read.
    """
    config = next(iter(plan.configs.values()))
    jobs = min(jobs or _default_jobs(config.device), len(plan.seeds) * len(plan.methods))
    threads = config.threads or stored_threads(path) or max(1, cores() // jobs)
    return plan.with_threads(threads), LocalEngine(jobs)


def share_cluster(
    plan: Plan,
    path: Path,
    jobs: int | None,
    address: str | None,
    cpus: int | None,
    gpus: float | None,
) -> tuple[Plan, Engine]:
    """Settle what a run is given by Ray: as many cores as it has threads, unless told otherwise.

    Raises:
        ConfigError: if Ray is missing, for a device that only Ray can choose, or a ``study.toml``
            that cannot be read.
    """
    config = next(iter(plan.configs.values()))
    if config.device.startswith("cuda:"):
        raise ConfigError(
            f"device = {config.device!r}: Ray chooses the GPU of a run, which then is its only "
            "one; give --device cuda"
        )
    threads = config.threads or stored_threads(path) or cpus or 1
    engine = RayEngine(address, cpus=cpus or threads, gpus=gpus, jobs=jobs)
    return plan.with_threads(threads), engine


def _default_jobs(device: str) -> int:
    """Return one job for each core, or one in all where a GPU does the work; torch is not asked."""
    has_gpu = shutil.which("nvidia-smi") is not None or sys.platform == "darwin"
    on_cpu = device == "cpu" or (device == "auto" and not has_gpu)
    return cores() if on_cpu else 1


def tell_outcome(study: Study) -> None:
    """Print what became of the runs and what to do next.

    Raises:
        RunError: if runs have failed.
    """
    counts = Counter(run.status for run in study.runs)
    told = ", ".join(f"{counts[status]} {status}" for status in counts)
    say(f"{study.path}: {told}")
    winner = (study.search or {}).get("winner")
    if winner is not None:
        quantity = "accuracy" if "test_accuracy" in winner else "loss"
        chosen_by, reached = (
            f"{winner[key]:.2%}" if quantity == "accuracy" else decimal(winner[key])
            for key in (f"validation_{quantity}", f"test_{quantity}")
        )
        say(
            f"best {study.vary}: {winner['seed']}, chosen by its validation {quantity} "
            f"{chosen_by} (epoch {winner['best_epoch']})"
        )
        say(f"on the test set, which chose nothing: {reached}")
    say(f"next: {shlex.join(['annealtune', 'report', str(study.path)])}")
    failed = [run for run in study.runs if run.status == "failed"]
    if failed:
        lines = [f"{run.method} seed {run.seed}: {run.reason}" for run in failed[:10]]
        more = ["..."] if len(failed) > len(lines) else []
        # What is damaged is not tried again: its line says what to do.
        was_tried = any((run.path / FAILURE_FILE).exists() for run in failed)
        again = "; try again with --retry-failed" if was_tried else ""
        raise RunError(
            f"{len(failed)} of {len(study.runs)} runs failed{again}\n" + "\n".join([*lines, *more])
        )
