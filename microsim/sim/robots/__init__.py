"""Robot models, one file each; `ROBOT_MODELS` is where they are listed."""

from microsim.sim.components import RobotModel
from microsim.sim.robots import bicycle, drone, dynamic_rover, rover

ROBOT_MODELS: dict[str, RobotModel] = {
    model.name: model for model in (drone.ROBOT, rover.ROBOT, dynamic_rover.ROBOT, bicycle.ROBOT)
}
