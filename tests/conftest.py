"""What all tests share: ROS 2 stays on this machine; hypothesis has no stopwatch, since a first call may compile."""

import os

from hypothesis import HealthCheck, settings

os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"  # before any participant, and for every process we start
os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))  # runs side by side do not meet

settings.register_profile("microsim", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("microsim")
