"""Many worlds in arrays, each bit for bit the `Simulation` with its seed; environments for learning on top."""

from microsim.batch.batch_simulation import BatchSimulation, BatchSnapshot

__all__ = ["BatchSimulation", "BatchSnapshot"]
