"""The best weights of a run, which always fit its last checkpoint.

New ones lie beside the old ones until a checkpoint knows them, and take their place only then: a
kill in between leaves the weights that the last checkpoint knows, under one name or the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from annealtune.errors import RunError

from .files import explained, force_to_disk, json_text, read_json, replacing, write_json
from .forms import check_best
from .records import RecordFile
from .seal import BEST_FILE, NEW_WEIGHTS, WEIGHTS, DamageError, digest, read_bytes, weights_of


class BestWeights:
    """``best.safetensors`` and what is known of it, ``best.json``.

    Attributes:
        facts: of the best weights so far, with their digest; None before the first epoch has ended.
        loaded_from: the file that was loaded last.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.file = run / WEIGHTS
        self.new_file = run / NEW_WEIGHTS
        self.facts_file = run / BEST_FILE
        self.facts: dict[str, Any] | None = None
        self.loaded_from = self.file

    def add(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Write weights that did better than all before, beside these.

        Raises:
            RunError: if the disk refuses.
        """
        with replacing(self.new_file) as scratch:
            try:
                safetensors.torch.save_model(model, str(scratch))
            except safetensors.SafetensorError as error:
                raise _as_os_error(error) from error
            found = digest(scratch)[1]
        self.facts = {**facts, "sha256": found}

    def commit(self) -> None:
        """Give new weights their place, once a checkpoint knows them.

        Raises:
            RunError: if the disk refuses.
        """
        if not self.new_file.exists():
            return
        with explained(self.file):
            self.new_file.replace(self.file)
            force_to_disk(self._run)
        self._write_facts()

    def settle(self, warn: Callable[[str], None]) -> bool:
        """Finish what a kill has interrupted; tell whether the weights are there.

        Raises:
            RunError: if the disk refuses, or something cannot be read.
        """
        if self.facts is None:
            return True
        found = weights_of(self._run, self.facts)
        if found == self.new_file:
            self.commit()
        elif found is not None and not self._are_facts_written():
            # A kill leaves the old facts beside the new weights for a moment.
            warn(f"{self.facts_file}: is missing, old or damaged; written again")
            self._write_facts()
        return found is not None

    def load(self, model: nn.Module, sealed: Mapping[str, Any] | None) -> dict[str, Any]:
        """Load the best weights into a model and return what is known of them.

        Args:
            model: of the run.
            sealed: what the seal knows of them; None for a run of an earlier version.

        Raises:
            RunError: if there are none, or they are not those that were saved.
        """
        if sealed is None and not (self.facts_file.exists() and self.file.exists()):
            raise RunError(f"{self._run}: has no best weights yet: its first epoch has not ended")
        facts = dict(sealed or read_json(self.facts_file, partial(check_best, whole=True)))
        path = weights_of(self._run, {"sha256": None, **facts})
        if path is None:
            raise RunError(
                f"{self.file}: is damaged: its digest is not the one that was noted when it was "
                "written; restore it from a backup"
            )
        self.loaded_from = path
        try:
            safetensors.torch.load_model(model, str(path))
        except (
            Exception
        ) as error:  # the digest is right but the file not ours: whatever it provokes
            raise RunError(
                f"{self.file}: does not fit the model of config.toml: "
                f"{' '.join(str(error).split())}"
            ) from error
        return facts

    def is_later(self, epoch: int, records: RecordFile) -> bool:
        """Tell whether the weights on disk are those that this run had after a later epoch.

        Weights of another run may be whole too, but its scores do not stand in these records.
        """
        try:
            facts = read_json(self.facts_file, partial(check_best, whole=True))
            lines = records.read()
        except RunError:
            return False
        scores = {name: value for name, value in facts.items() if name != "sha256"}
        is_own = any(all(line.get(key) == scores[key] for key in scores) for line in lines)
        return facts["epoch"] > epoch and is_own and weights_of(self._run, facts) is not None

    def _are_facts_written(self) -> bool:
        try:
            return read_bytes(self.facts_file) == json_text(self.facts or {})
        except DamageError:
            return False

    def _write_facts(self) -> None:
        write_json(self.facts_file, self.facts or {})


def _as_os_error(error: Exception) -> OSError:
    """Return what the disk said to a library that hands it on as text alone."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))
