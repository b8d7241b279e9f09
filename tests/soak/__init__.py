"""`make soak`: what `docs/reliability.md` promises, tried at length. `python -m tests.soak --help` lists the parts."""
