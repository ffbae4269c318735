"""Data sets in memory, by name, and the minibatches made of them."""
