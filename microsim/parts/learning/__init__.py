"""Learning: tasks and environments on batches, a trainer, policies. `gym` registers the environments."""
