"""ROS 2 over Eclipse Cyclone DDS from PyPI, without a ROS 2 installation.

library.py      ready CDR bytes in and out of Cyclone DDS
quality.py      quality of service and USER_DATA, as rmw_cyclonedds_cpp announces them
domain.py       the domain: ROS_DOMAIN_ID, discovery variables, tuning
graph.py        one participant, one node: its endpoints, and telling peers about them
other_types.py  who publishes another type than this node takes
services.py     servers and clients that rmw_cyclonedds_cpp understands
transport.py    the transport
"""

from microsim.ros2.transport.dds.transport import DdsTransport

__all__ = ["DdsTransport"]
