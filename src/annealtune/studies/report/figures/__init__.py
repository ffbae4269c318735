"""The figures of a report, drawn by matplotlib.

- `panels.py`: a drawing, its files and its form on a page; `style.py`: how everything looks;
- `curves.py`: numbers over the epochs; `scores.py`: what each method reached;
- `settings.py`: which settings of H were accepted when; `runs.py`: one run and its races.

Each function draws into the axes that it is given and returns them.
"""
