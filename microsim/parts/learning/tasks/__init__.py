"""The shipped tasks, one in each file."""
