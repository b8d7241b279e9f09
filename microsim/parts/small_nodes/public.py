"""Public names of this part: each is an attribute of `microsim`, too, and imported when first used."""

PUBLIC = {
    "robot_maps": ("read_obstacles",),
    "robot_simulator_node": (
        "PlanarPose",
        "RobotSimulator",
    ),
    "robot_simulator_settings": ("RobotSimulatorSettings",),
    "rover_node": (
        "RoverCore",
        "RoverSettings",
    ),
}
