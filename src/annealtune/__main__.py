"""The program, as ``annealtune`` and as ``python -m annealtune``."""

import signal

# Until `main` answers in words Ctrl-C ends the process without Python's traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from annealtune.cli import main

if __name__ == "__main__":
    main()
