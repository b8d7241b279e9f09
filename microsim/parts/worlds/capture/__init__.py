"""From a capture to a world: files of training programs, which way is up, ground, mesh and drivable area."""
