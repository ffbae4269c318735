"""An interrupt at any line of our own code, as Ctrl-C can come."""

import sys
from pathlib import Path

import annealtune

OURS = str(Path(annealtune.__file__).parent)


class Interrupter:
    """Raises KeyboardInterrupt before the line of our code with a certain number is run."""

    def __init__(self, number=None):
        self.number = number
        self.seen = []

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.seen.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.seen) == self.number:
                raise KeyboardInterrupt
        return self

    @property
    def where(self):
        return "interrupted at {}, line {}".format(*self.seen[-1])

    def run(self, function):
        """Return whether the function was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            function()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False
