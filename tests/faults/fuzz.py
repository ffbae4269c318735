"""A small fuzzer: real files, damaged at random, and nothing but errors of our own.

    python -m tests.faults.fuzz --target config --seconds 600 --seed 0

Every input follows from the target, the seed and its number alone: ``--only NUMBER`` tries one
again and shows the traceback. An exception that is not an `AnnealtuneError`, a message with a raw
escape or without an end, and an input that takes longer than 20 seconds are findings.
"""

import argparse
import contextlib
import dataclasses
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType

from annealtune.errors import AnnealtuneError, printable

from .seeds import make_seeds
from .targets import TARGETS

HANG_SECONDS = 20
LONGEST_MESSAGE = 11_000
SOURCE = str(Path(__file__).parents[2] / "src")

Target = Callable[[Random, Path, Path], None]


class HangError(BaseException):
    """An input took too long."""


@dataclasses.dataclass
class Finding:
    """What went wrong, for all inputs with which it went wrong at the same place."""

    place: str
    numbers: list[int]
    trace: str


@dataclasses.dataclass
class Outcome:
    """How a number of inputs went."""

    inputs: int = 0
    refused: int = 0
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)

    def note(self, number: int, error: BaseException) -> None:
        """Count a finding by its kind and the last line of ours that it passed through."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if SOURCE in f.filename]
        last = frames[-1] if frames else None
        where = f"{last.filename.removeprefix(SOURCE)}:{last.lineno}" if last else "?"
        place = f"{type(error).__name__} at {where}"
        trace = "".join(traceback.format_exception(error, limit=-8))
        self.findings.setdefault(place, Finding(place, [], trace)).numbers.append(number)


def try_inputs(
    name: str, seeds: Path, seed: int, *, count: int | None = None, seconds: float = 0.0
) -> Outcome:
    """Try so many inputs, or as many as fit into the time."""
    outcome = Outcome()
    started = time.monotonic()
    while outcome.inputs < count if count is not None else time.monotonic() - started < seconds:
        _try(name, seeds, seed, outcome)
    return outcome


def _try(name: str, seeds: Path, seed: int, outcome: Outcome) -> None:
    number = outcome.inputs
    outcome.inputs += 1
    try:
        with _limited(), tempfile.TemporaryDirectory(dir=_memory()) as place:
            try_one(name, seeds, seed, number, Path(place))
    except AnnealtuneError as error:
        outcome.refused += 1
        text = str(error)
        if text != printable(text) or len(text) > LONGEST_MESSAGE:
            outcome.note(number, error)
    except (Exception, HangError) as error:  # noqa: BLE001 - this is what is looked for
        outcome.note(number, error)


def try_one(name: str, seeds: Path, seed: int, number: int, place: Path) -> None:
    """Try one input in an empty place; whatever it raises passes through."""
    TARGETS[name](Random(f"{name} {seed} {number}"), seeds, place)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def give_up(_: int, __: FrameType | None) -> None:
        raise HangError(f"longer than {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """Fuzz a target for a while; the exit code is 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="try this input alone")
    options = parser.parse_args()
    names = list(TARGETS) if options.target == "all" else [options.target]
    has_found = False
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        seeds = make_seeds(Path(folder))
        for name in names:
            if options.only is not None:
                with tempfile.TemporaryDirectory() as place:
                    try_one(name, seeds, options.seed, options.only, Path(place))
                continue
            outcome = try_inputs(name, seeds, options.seed, seconds=options.seconds)
            told = f"{outcome.inputs:,} inputs, {outcome.refused:,} refused"
            print(f"{name}: {told}, {len(outcome.findings)} findings", flush=True)
            for finding in outcome.findings.values():
                numbers = ", ".join(map(str, finding.numbers[:5]))
                print(f"\n{finding.place}, {len(finding.numbers)} inputs ({numbers} ...)")
                print(printable(finding.trace)[-3000:], flush=True)
                has_found = True
    return int(has_found)


if __name__ == "__main__":
    sys.exit(main())
