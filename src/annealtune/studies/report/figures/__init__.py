"""The figures of a report. Each function draws into the axes it is given and returns them.

- `style.py`: how everything looks; `looks.py`: one look for each method of a study;
- `panels.py`: a drawing, its words and its files; `hover.py`: the values of its points;
- `score_by_rate.py`, `score_by_method.py`: what a page opens on;
- `rates.py`: the learning rate over the epochs;
- `curves.py`: a number over the epochs, a thin line for each seed and a thick mean;
- `limits.py`: where an axis ends; `end_labels.py`: names at the ends of lines;
- `accept_test.py`: probabilities, temperature and worsening moves;
- `setting_map.py`: which settings were accepted when;
- `score_cost.py`: a score against its cost; `seed_spread.py`: how far the seeds lie apart;
- `gallery.py`: which of these a study has, and which figure of the paper each one is;
- `compact_svg.py`: SVG as small as it can be.
"""
