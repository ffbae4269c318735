"""The exceptions of annealtune. Wrong arguments are plain ``ValueError`` or ``TypeError``."""


class AnnealtuneError(Exception):
    """Base of every exception that is annealtune's own."""


class NonFiniteLossError(AnnealtuneError, ArithmeticError):
    """The loss at the current point is NaN or infinite: there is nothing to compare a move with."""


class ConfigError(AnnealtuneError, ValueError):
    """A key, flag or value that cannot be used; the program exits with code 2."""


class DataError(AnnealtuneError):
    """A data set that is missing, damaged or of the wrong kind; the program exits with code 1."""


class RunError(AnnealtuneError):
    """A run that cannot start or go on: directory, lock, checkpoint or disk; exit code 1."""


class RunStoppedError(AnnealtuneError):
    """A run that was asked to stop and has saved its state; exit code 128 plus the signal.

    Args:
        signal_number: the signal that asked; 0 if it was the plan and no signal: exit code 0.
        message: where it stopped and how it is continued.
    """

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number
