"""ROS 2 over Eclipse Cyclone DDS from PyPI, without a ROS 2 installation.

cdr_endpoints.py  encoded messages in and out of Cyclone DDS
domain.py         the domain: ROS_DOMAIN_ID, discovery variables, network interfaces, tuning
graph.py          one participant, one node: endpoints, their quality of service, and their announcement to peers
dds_services.py   servers and clients that rmw_cyclonedds_cpp and rmw_fastrtps_cpp understand
dds_transport.py  the transport
"""

from microsim.ros2.transport.dds.dds_transport import DdsTransport

__all__ = ["DdsTransport"]
