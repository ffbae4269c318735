"""What is trained: `task` says what a task is, `catalogue` has them by name."""
