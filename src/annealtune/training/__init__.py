"""One run: from a config to the best weights on the validation set."""
