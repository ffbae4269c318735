"""Experiments by name: a TOML file each, and `siren.py`, data and model of one of them."""
