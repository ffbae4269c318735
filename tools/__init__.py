"""Looks at pages as a reader does, and makes the pictures of README; not part of the package."""
