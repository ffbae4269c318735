"""What a setting writes: options of the groups and of the loop; which values are allowed."""
