"""``python -m annealtune``."""

from annealtune.cli import main

main()
