"""The nets, by name."""
