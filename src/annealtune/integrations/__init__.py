"""Tuners inside other people's training loops: one file a framework, imported by its name."""
