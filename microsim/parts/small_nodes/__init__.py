"""The two small nodes: `robot_simulator` and `sim_rover`."""
