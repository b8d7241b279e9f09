"""Recordings that are evidence: rosbag2 folders from which a run can be made again, and compared byte for byte."""
