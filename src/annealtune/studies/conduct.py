"""A study from its plan to its last run, or as far as it gets."""

from __future__ import annotations

from pathlib import Path

from annealtune.studies.directory import opened
from annealtune.studies.display import Display
from annealtune.studies.engines import Engine, Task
from annealtune.studies.plan import Plan
from annealtune.studies.results import FAILURE_FILE, Study, read_study, run_path
from annealtune.training.disk import explained
from annealtune.training.stopping import StopRequest


def conduct(
    plan: Plan,
    path: Path,
    engine: Engine,
    display: Display,
    stop: StopRequest,
    *,
    retry_failed: bool = False,
) -> Study:
    """Run what is missing or incomplete of a study.

    Args:
        plan: which runs.
        path: of the study directory.
        engine: who runs them.
        display: shows what happens.
        stop: asks to save everything and leave.
        retry_failed: also run again what was given up earlier; a failure is mostly not a matter
            of luck, so this must be asked for.

    Returns:
        The study as it is on disk afterwards; runs that failed are part of it.

    Raises:
        ConfigError: if the directory is part of something else or holds another study.
        RunError: if another process holds it, or the disk refuses.
        RunStoppedError: if it was asked to stop; the same call goes on from there.
    """
    with opened(path, plan):
        tasks = tasks_of(plan, path)
        if retry_failed:
            forget_failures(tasks)
        left = [task for task in tasks if not task.is_done() and not task.has_failed()]
        check_data(left, display)
        with display.showing(tasks, len(tasks) - len(left)):
            engine.run(left, display, stop)
    return read_study(path)


def check_data(tasks: list[Task], display: Display) -> None:
    """Look once for data that is published, or fetch it, before many runs do so at once.

    Raises:
        DataError: if it is missing or damaged.
    """
    if not tasks or tasks[0].config.data not in ("cifar10", "fashion-mnist"):
        return
    from annealtune.training import data

    config = tasks[0].config
    with display.downloading() as show:
        data.load(config.data, data_dir=config.data_dir, download=config.download, progress=show)


def tasks_of(plan: Plan, path: Path) -> list[Task]:
    """Return one task a run of the plan, in its order."""
    return [
        Task(run.method, run.seed, run.config, run_path(path, run.method, run.seed))
        for run in plan.runs()
    ]


def forget_failures(tasks: list[Task]) -> None:
    """Let what was given up be tried again, from its last checkpoint."""
    for task in tasks:
        with explained(task.path):
            (task.path / FAILURE_FILE).unlink(missing_ok=True)
