"""Sweeps: one mission with many seeds and settings, and a row of metrics for each run."""

from microsim.parts.sweep.metrics import METRICS, Metric
from microsim.parts.sweep.plan import Plan, Sweep, load_sweep, make_plan
from microsim.parts.sweep.results import Finished
from microsim.parts.sweep.run_all import Reports, sweep_in_memory, sweep_to_file
from microsim.parts.sweep.run_one import from_token
from microsim.parts.sweep.worker_pool import LocalWorkers

LocalCrew = LocalWorkers  # its documented name

__all__ = [
    "METRICS", "Finished", "LocalCrew", "LocalWorkers", "Metric", "Plan", "Reports", "Sweep", "from_token",
    "load_sweep", "make_plan", "sweep_in_memory", "sweep_to_file",
]  # fmt: skip
