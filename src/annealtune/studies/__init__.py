"""Many runs: methods x seeds over one experiment, and what came out of them.

- `plan.py`: which runs a study consists of, checked before the first one starts;
- `run.py`: from a plan to the last run, in one directory, and what a person sees meanwhile;
  `engines/`: who runs them;
- `reproduction.py`: the paper's experiments by name;
- `records.py`: a study read back from disk; `statistics.py`: numbers about it; `report/`: the page.
"""
