"""How to cite the software and the paper whose method it implements."""

import annealtune

_SOFTWARE = """\
@software{{annealtune,
  title = {{annealtune}},
  author = {{{{The annealtune authors}}}},
  version = {{{version}}},
  url = {{https://github.com/annealtune/annealtune}}
}}"""
_PAPER = """\
@article{fischetti2019embedded,
  title = {Embedded hyper-parameter tuning by Simulated Annealing},
  author = {Fischetti, Matteo and Stringher, Matteo},
  year = {2019},
  eprint = {1906.01504},
  archivePrefix = {arXiv}
}"""


def citation() -> str:
    """Return both as BibTeX."""
    return f"{_SOFTWARE.format(version=annealtune.__version__)}\n\n{_PAPER}"
