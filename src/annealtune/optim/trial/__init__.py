"""Steps and stretches that can be taken back: the tentative step, the race and its arms."""
