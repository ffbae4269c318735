"""A hook of the docs site: what every command of the program says about itself, onto its page.

The text is the one that `annealtune COMMAND --help` prints, taken from the program while the site
is built, so the page cannot fall behind.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from annealtune.cli import COMMANDS

PLACE = "<!-- every command -->"
WIDTH = 88  # of the help, in characters
PROGRAM = "import sys; sys.argv[0] = 'annealtune'; from annealtune.cli import main; main()"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help of all commands where the page asks for it."""
    if PLACE not in markdown:
        return markdown
    with ThreadPoolExecutor(2) as pool:
        return markdown.replace(PLACE, "\n\n".join(pool.map(section, COMMANDS)))


def section(command: str) -> str:
    """Return a heading and the help of one command as Markdown."""
    return f"## annealtune {command}\n\n```text\n{help_of(command)}\n```"


def help_of(command: str) -> str:
    """Return what `annealtune COMMAND --help` prints, on a terminal of a known width."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, "--help"],
        env=os.environ | {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()
