"""Numbers about a study: `measures.py` of each run, `summaries.py` of each method and each pair."""
