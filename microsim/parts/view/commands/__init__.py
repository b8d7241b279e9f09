"""A command per file; see `microsim/cli/command.py`."""
