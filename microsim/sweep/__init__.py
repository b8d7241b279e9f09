"""Sweeps: one mission flown with many seeds and settings, each run boiled down to a row of numbers."""

from microsim.sweep.loading import load_sweep
from microsim.sweep.metrics import METRICS
from microsim.sweep.models import Sweep
from microsim.sweep.plan import Plan, make_plan
from microsim.sweep.processes import LocalCrew
from microsim.sweep.replaying import from_token
from microsim.sweep.sweeping import Finished, Reports, sweep_in_memory, sweep_to_file

__all__ = [
    "METRICS",
    "Finished",
    "LocalCrew",
    "Plan",
    "Reports",
    "Sweep",
    "from_token",
    "load_sweep",
    "make_plan",
    "sweep_in_memory",
    "sweep_to_file",
]
