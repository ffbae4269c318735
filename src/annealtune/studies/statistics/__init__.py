"""Numbers about a study.

- `measures.py`: what a finished run is judged by;
- `summaries.py`: what each method reached;
- `comparisons.py`: how two methods differ seed by seed, and whether by chance;
- `costs.py`: what a run spends.
"""
