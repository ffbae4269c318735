"""The scripts by name, and one run of any of them."""

from __future__ import annotations

import time
from importlib import import_module
from typing import NamedTuple

import torch

from annealtune.errors import DataError
from benchmarks.quality.records import Record, provenance
from benchmarks.quality.tasks.task import Sources

from .common import Script

# Module and class: those of frameworks are imported when they are run.
SCRIPTS = {
    "nanogpt": "NanoGPT",
    "makemore": "Makemore",
    "resnet": "ResNet",
    "lstm": "LSTM",
    "vae": "VAE",
    "gcn": "GCN",
    "huggingface": "TinyGPT2",
    "autoencoder": "LitAutoencoder",
}


class Key(NamedTuple):
    """What tells runs apart."""

    script: str
    method: str
    seed: int


def script_of(name: str) -> type[Script]:
    return getattr(import_module(f"{__package__}.{name}"), SCRIPTS[name])


def run(key: Key, sources: Sources, steps: int | None = None) -> Record:
    """Make one run; one that raises is a record too."""
    torch.set_num_threads(1)
    script = script_of(key.script)(sources, key.seed, steps)
    started = time.process_time()  # of one thread: other programs do not disturb it
    try:
        record = script.train(key.method)
    except (DataError, ImportError):
        raise  # something to install or to fetch, and then to start again
    except Exception as error:  # noqa: BLE001  (nothing is lost: the table shows it)
        record = {"failure": f"{type(error).__name__}: {error}"}
    seconds = round(time.process_time() - started, 2)
    return {**key._asdict(), **record, "seconds": seconds, **provenance()}
