"""`make soak`: what `docs/understand/reliability.md` promises, tried at length. `python -m tests.soak --help` lists the parts."""
