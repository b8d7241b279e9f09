"""Determinism check: missions run in processes with different environments must give the same messages."""
