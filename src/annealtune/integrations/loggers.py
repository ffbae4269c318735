"""What a tuner does, told to a logger: every step, every race, every epoch.

A logger is any function ``write(kind, step, values)``. Three are ready: for TensorBoard, Weights &
Biases and MLflow. They are given the writer, run or module that you have made, so that nothing is
imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from annealtune.optim import EmbeddedTuner, SelfTuner

Kind = Literal["step", "race", "epoch"]
Write = Callable[[Kind, int, Mapping[str, Any]], None]


class TunerLog:
    """Tell a logger what a tuner does.

    Args:
        tuner: whose steps are told, whoever calls them.
        write: is called with what happened ("step", "race" or "epoch"), the number of steps so far
            and values by name. Those of a step are what the tuner's ``metrics()`` returns, those
            of a race the fields of its `RaceInfo`, those of an epoch what `epoch` is given.
        every: a step is told if its number is a multiple of this. Races are told always.

    Raises:
        TypeError: if ``write`` is no function.
        ValueError: if ``every`` is below one.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(1, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> opt = EmbeddedTuner(base, model, temperature=0.5)
        >>> seen = []
        >>> log = TunerLog(opt, lambda kind, step, values: seen.append((kind, step)))
        >>> for _ in range(2):
        ...     _ = opt.step(lambda: model.weight.square().sum())
        >>> log.epoch({"accuracy": 0.9})
        >>> seen
        [('step', 1), ('step', 2), ('epoch', 2)]
    """

    def __init__(self, tuner: SelfTuner | EmbeddedTuner, write: Write, *, every: int = 1) -> None:
        if not callable(write):
            raise TypeError(
                f"TunerLog(tuner, write) must be given a function of kind, step and values, such "
                f"as to_tensorboard(writer), got {write!r}"
            )
        if every < 1:
            raise ValueError(f"TunerLog(every=...) must be at least 1, got {every}")
        self._tuner = tuner
        self._write = write
        self._every = every
        self._races = len(getattr(tuner, "races", ()))  # those that were told
        tuner.register_step_post_hook(self._after_step)

    def epoch(self, values: Mapping[str, Any]) -> None:
        """Tell of an epoch: whatever you have measured at its end."""
        self._write("epoch", self._tuner.steps, values)

    def _after_step(self, *_: Any) -> None:
        step = self._tuner.steps
        if step % self._every == 0:
            self._write("step", step, self._tuner.metrics())
        infos = getattr(self._tuner, "races", ())
        for info in infos[self._races :]:
            self._write("race", step, {**info.to_dict(), "text": info.table()})
        self._races = len(infos)


def to_tensorboard(writer: Any) -> Write:
    """Write scalars, and races as text, by a ``SummaryWriter``."""

    def write(kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        for name, value in _numbers(kind, values).items():
            writer.add_scalar(name, value, step)
        if kind == "race":
            writer.add_text("annealtune/race", f"```\n{values['text']}\n```", step)

    return write


def to_wandb(run: Any) -> Write:
    """Write by a run of Weights & Biases, online or offline; races into its summary too.

    The step is a value of its own, ``annealtune/step``: wandb's own counts calls of ``log``.
    """
    races: list[str] = []

    def write(kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        run.log({**_numbers(kind, values), "annealtune/step": step})
        if kind == "race":
            races.append(values["text"])
            run.summary["annealtune/race_tables"] = "\n".join(races)

    return write


def to_mlflow(mlflow: Any) -> Write:
    """Write by ``mlflow``, the module, into its active run, or by a client-like object."""

    def write(kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        mlflow.log_metrics(_numbers(kind, values), step=step)
        if kind == "race":
            mlflow.log_text(values["text"], f"annealtune/race-{step}.txt")

    return write


def _numbers(kind: Kind, values: Mapping[str, Any]) -> dict[str, float]:
    """Return what can be drawn: of a race the rate that it has chosen, its length and its cost."""
    names = ("rate", "minibatches", "extra_steps") if kind == "race" else tuple(values)
    place = {"step": "annealtune", "race": "annealtune/race", "epoch": "epoch"}[kind]
    return {
        f"{place}/{name}": float(values[name])
        for name in names
        if isinstance(values[name], int | float)
    }
