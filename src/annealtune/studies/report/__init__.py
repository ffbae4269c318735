"""The report of a study.

- `writing.py`: all files of it; `page.py`: the page, from `templates/`;
- `findings.py`: what came out, in sentences;
- `table_1.py`: Table 1 of the paper, `table_files.py`: the same as CSV and LaTeX;
- `method_tables.py`: the methods side by side;
- `figures/`: every figure of the paper, and others.
"""
