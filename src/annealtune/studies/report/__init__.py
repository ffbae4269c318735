"""Reports as pages that load nothing from outside.

- `study_page.py`: all files about a study, and one page of several; `run_page.py`: about a run;
- `shell.py`: what a page is made of and how it is written, by `templates/`;
- `tables.py`: tables for a page; `table_1.py`: Table 1 of the paper, also as CSV and LaTeX;
- `figures/`: every figure of the paper, and others.
"""
