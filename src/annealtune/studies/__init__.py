"""Many runs: methods x seeds over one experiment, and what came out of them.

- `plan.py`: which runs a study consists of, checked before the first one starts;
- `engines/`: who runs them; `display.py`: what a person sees meanwhile;
- `results.py`: a study read back from disk, for statistics, figures and the report;
- `best_seed.py`: successive halving over the seeds of one method;
- `reproduction.py`: the paper's experiments by name.
"""
