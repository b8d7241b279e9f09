"""`make soak` tries at length what `docs/understand/reliability.md` promises: `python -m tests.soak --help`."""
