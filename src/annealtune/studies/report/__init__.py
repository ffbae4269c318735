"""Reports as pages.

- `shell.py`: what every page shares, from `templates/`; `citation.py`: how to cite;
- `writing.py`: all files about a study; `page.py`: its page; `several.py`: one of several studies;
- `hero.py`: the figure and the sentence that a page opens on;
- `findings.py`: what came out, in sentences;
- `table_1.py`: Table 1 of the paper, `table_files.py`: the same as CSV and LaTeX,
  `joint_table.py`: both nets side by side, with the paper's own numbers;
- `method_tables.py`: the methods side by side;
- `figures/`: every figure of the paper, and others.
"""
