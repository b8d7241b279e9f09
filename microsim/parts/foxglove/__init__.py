"""Live in Foxglove."""
