"""The figures of a report. Each function draws into the axes it is given and returns them.

- `style.py`: how everything looks; `panels.py`: a drawing, its words and its files;
- `curves.py`: a number over the epochs, a thin line for each seed and a thick mean;
- `accept_test.py`: probabilities, temperature and worsening moves;
- `setting_map.py`: which settings were accepted when;
- `accuracy_cost.py`: accuracy against cost; `seed_spread.py`: how far the seeds lie apart;
- `gallery.py`: which of these a study has, and which figure of the paper each one is;
- `compact_svg.py`: SVG as small as it can be.
"""
