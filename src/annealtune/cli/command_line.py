"""The command line of this process."""

import shlex
import sys


def typed_command() -> str:
    """Return the command line as it was typed."""
    return shlex.join(["annealtune", *sys.argv[1:]])
