"""The figures of a report. Each function draws into the axes it is given and returns them.

- `style.py`: how everything looks; `panels.py`: a drawing with its name and its caption;
- `curves.py`: a number over the epochs, one thin line a seed and a thick mean;
- `annealing.py`: probabilities, temperature and worsening moves;
- `settings.py`: which settings were accepted when;
- `costs.py`: accuracy against cost; `spread.py`: how far the seeds lie apart;
- `gallery.py`: which of these a study has, and which figure of the paper each one is;
- `saving.py`: small SVG and PDF, the same bytes every time.
"""
