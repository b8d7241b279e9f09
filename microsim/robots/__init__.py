"""Robot models, one file each; `ROBOT_MODELS` is where they are listed."""

from microsim.engine.components import RobotModel
from microsim.robots import car as bicycle
from microsim.robots import drone, dynamic_rover, rover

ROBOT_MODELS: dict[str, RobotModel] = {
    model.name: model for model in (drone.ROBOT, rover.ROBOT, dynamic_rover.ROBOT, bicycle.ROBOT)
}
