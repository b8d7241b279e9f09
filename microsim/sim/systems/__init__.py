"""What happens in a tick, in this order: physics, sensors, radio, tf."""
