"""A study on Slurm: the small interface of an engine, filled in with submitit.

An engine starts runs and says how they end; plan, resuming, failures and the table are files in the
study directory, on storage that all machines share. Run it again and it goes on.

    python slurm_study.py    # on a login node; without Slurm each job is a process on this machine
"""

from pathlib import Path

import submitit
from rich.console import Console

from annealtune.studies.engines.local import run_processes
from annealtune.studies.engines.ray import held_site, train
from annealtune.studies.plan import make_plan
from annealtune.studies.run import Display, run_study
from annealtune.training.stopping import stop_on_signals


class SlurmEngine:
    """Every attempt of a run is a job; at most so many wait or run at a time."""

    def __init__(self, executor, jobs):
        self.executor, self.jobs = executor, jobs

    def run(self, tasks, observer, stop):
        if not tasks:
            return
        with held_site(tasks[0].path.parent) as site:

            def start(words, log, environment):
                return SlurmRun(self.executor.submit(train, site, words, str(log), environment))

            run_processes(tasks, observer, stop, start=start, most=self.jobs)


class SlurmRun:
    def __init__(self, job):
        self.job = job

    def poll(self):
        """Its exit code, or in words how it was lost; None while it waits or runs."""
        if not self.job.done():
            return None
        error = self.job.exception()
        return f"Slurm: {error}" if error else self.job.result()

    def terminate(self):
        self.job.cancel()  # Slurm sends SIGTERM and gives KillWait seconds: the run saves itself

    def wait(self):
        self.job.wait()


if __name__ == "__main__":
    executor = submitit.AutoExecutor("slurm-jobs")
    executor.update_parameters(timeout_min=60, cpus_per_task=1)  # on GPUs also gpus_per_node=1
    values = {"data": "digits", "model": "mlp-w32", "epochs": 5, "threads": 1}
    plan = make_plan(values, name="slurm", methods=["self-tuned"], seeds=range(2))
    with stop_on_signals() as stop:
        engine = SlurmEngine(executor, jobs=2)
        study = run_study(plan, Path("studies/slurm"), engine, Display(Console(stderr=True)), stop)
    print(", ".join(f"seed {run.seed} {run.status}" for run in study.runs))
