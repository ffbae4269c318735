"""A study from its plan to its last run, or as far as it gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from annealtune.studies.directory import opened
from annealtune.studies.display import Display
from annealtune.studies.engines import Engine, Task
from annealtune.studies.plan import Plan
from annealtune.studies.records import FAILURE_FILE, Study, read_study, run_path
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import explained


def run_study(
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
    with opened_tasks(plan, path, display, retry_failed=retry_failed) as tasks:
        run_tasks(tasks, engine, display, stop)
    return read_study(path)


@contextmanager
def opened_tasks(
    plan: Plan,
    path: Path,
    display: Display,
    *,
    retry_failed: bool = False,
    search: dict[str, Any] | None = None,
) -> Iterator[list[Task]]:
    """Hold the directory of a study and yield its tasks, once their data is there.

    Raises:
        ConfigError: if the directory is part of something else or holds another study.
        DataError: if published data is missing or damaged.
        RunError: if another process holds it, or the disk refuses.
    """
    with opened(path, plan, search):
        tasks = tasks_of(plan, path)
        for task in tasks if retry_failed else []:
            with explained(task.path):
                (task.path / FAILURE_FILE).unlink(missing_ok=True)
        _check_data(plan, [task for task in tasks if task.is_left()], display)
        yield tasks


def run_tasks(
    tasks: list[Task], engine: Engine, display: Display, stop: StopRequest, title: str = ""
) -> None:
    """Run the tasks that are neither done nor given up."""
    left = [task for task in tasks if task.is_left()]
    with display.showing(tasks, len(tasks) - len(left), title):
        engine.run(left, display, stop)


def _check_data(plan: Plan, left: list[Task], display: Display) -> None:
    """Look once for data that is published, or fetch it, before many runs do so at once."""
    config = next(iter(plan.configs.values()))
    if not left or config.data not in ("cifar10", "fashion-mnist"):
        return
    from annealtune.training import data

    with display.downloading() as show:
        data.load(config.data, data_dir=config.data_dir, download=config.download, progress=show)


def tasks_of(plan: Plan, path: Path) -> list[Task]:
    """Return one task a run of the plan, in its order."""
    return [
        Task(run.method, run.seed, run.config, run_path(path, run.method, run.seed))
        for run in plan.runs()
    ]
