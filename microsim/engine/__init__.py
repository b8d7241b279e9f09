"""The deterministic core: numbers in, numbers out. Read `schedule.py` first."""
