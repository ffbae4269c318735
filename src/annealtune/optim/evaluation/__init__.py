"""The loss of a minibatch, once more: how it is computed again, and what must not change by it."""
