"""The exceptions of annealtune. Wrong arguments are plain ``ValueError`` or ``TypeError``."""


class AnnealtuneError(Exception):
    """Base of every exception that is annealtune's own."""


class NonFiniteLossError(AnnealtuneError, ArithmeticError):
    """The loss at the current point is NaN or infinite: there is nothing to compare a move with."""


class ConfigError(AnnealtuneError, ValueError):
    """A key, flag or value that cannot be used; the program exits with code 2."""


class DataError(AnnealtuneError):
    """A data set that is missing, damaged or of the wrong kind; the program exits with code 1."""
