"""Sweeps: one mission with many seeds and settings, and a row of metrics for each run; the determinism check."""
