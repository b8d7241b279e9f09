"""Rays against the ground, meshes and solids: what LiDARs and cameras over relief are made of."""

import numpy as np

# a point of a cloud: x, y, z [m] in the sensor's frame, intensity 0..255, ring, time [s] since the stamp
POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("time", "<f4")])
