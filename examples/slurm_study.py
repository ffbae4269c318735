"""A study on Slurm: the small interface of an engine, filled in with submitit.

An engine starts runs and says how they end; plan, resuming, failures and the table are files in the
study directory, which must lie on storage that all machines share.

    pip install 'annealtune[train]' submitit
    python slurm_study.py            # on a login node; here: processes on this machine
"""

import dataclasses
import os
import sys
from pathlib import Path

import submitit
from rich.console import Console

from annealtune.studies.display import Display
from annealtune.studies.engines.processes import run_processes
from annealtune.studies.engines.remote import Site, train
from annealtune.studies.plan import make_plan
from annealtune.studies.run import run_study
from annealtune.training.stopping import stop_on_signals
from annealtune.training.storage.provenance import describe_provenance


@dataclasses.dataclass
class SlurmEngine:
    """Each attempt of a run is one Slurm job."""

    executor: submitit.Executor
    jobs: int  # in the queue or running at a time

    def run(self, tasks, observer, stop):
        run_processes(tasks, observer, stop, start=self._start, most=self.jobs)

    def _start(self, words, log, environment):
        site = Site(str(Path.cwd()), ".", describe_provenance(), None)
        return SlurmRun(self.executor.submit(train, site, words, str(log), environment))


class SlurmRun:
    """What `run_processes` asks of a run."""

    def __init__(self, job):
        self.job = job

    def poll(self):
        """An exit code, or in words how it was lost; None while it waits or runs."""
        if not self.job.done():
            return None
        error = self.job.exception()
        return f"Slurm: {error}" if error else self.job.result()

    def terminate(self):
        self.job.cancel()  # Slurm sends SIGTERM, then waits KillWait seconds

    def wait(self):
        self.job.wait()
