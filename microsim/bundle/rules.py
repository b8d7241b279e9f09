"""Every rule that a world bundle is held to; a Problem names the one it breaks.

They are those of the GS-ROS2 common conventions 1.0.2, and what reading a file safely adds to them.
"""

from __future__ import annotations

RULES: dict[str, str] = {
    # files
    "entry-point": "`world.yaml` is the entry point of a bundle",
    "required-file": "every file of the minimal bundle is named in `world.yaml` and is there",
    "regular-file": "what is named is a regular file that can be read, of a bounded size",
    "relative-path": "paths are relative to `world.yaml`; absolute ones are refused",
    "inside-bundle": "no path leaves the bundle through `..`",
    "link-inside": "a symbolic link is followed only to a target inside the bundle",
    "forward-slash": "the separator in paths is `/`, on Windows too",
    "file-name": "file names are made of lower-case letters, digits and underscores",
    "file-extension": "every file name has an extension, the one its content calls for",
    # texts
    "parse": "YAML, JSON and GeoJSON can be parsed",
    "version": "every configuration file has a version MAJOR.MINOR.PATCH, with MAJOR 1",
    "unknown-field": "fields have the names of the documentation; from a newer MINOR, unknown ones are left alone",
    "field-value": "every required field is there, of its type and within its bounds",
    "degrees": "angles are radians; in degrees only under a name with the suffix `_deg`",
    # conventions
    "map-frame": "the map frame is ENU: x east, y north, z up, in metres",
    "unit-quaternion": "quaternions are [x, y, z, w] of length 1",
    "camera-convention": "every camera says its `camera_convention`: opencv or ros",
    "sensor-id": "sensor ids have no spaces and no special characters",
    "sensor-id-meaning": "sensor ids say where the sensor is; numbers alone do not",
    "sensor-rate": "no sensor is faster than the simulation's steps",
    "calibration-wins": "`tf_static.json` is derived from `calibration.yaml` and agrees with it",
    "simulated-time": "`use_sim_time` is always true",
    # binaries
    "little-endian-float32": "binary data is little endian IEEE 754, heights are float32",
    "heightmap-size": "the heightmap has as many bytes as its width and height ask for",
    "heightmap-value": "heights are finite, or NaN where there is no ground",
    "splat-format": "Gaussians are a PLY in binary_little_endian 1.0; neither ASCII nor NPZ",
    "splat-name": "the file of the Gaussians is called `background.splat.ply`",
    "splat-properties": "the PLY has exactly the properties of the document, in its order",
    "splat-size": "the PLY has as many bytes as its header declares",
    "splat-value": "every number of a Gaussian is finite",
    "sh-degree": "`sh_degree` is in `render_config.json` and fits the number of `f_rest` properties",
    "mesh-format": "a static mesh is a binary PLY, an OBJ or a GLB that can be read",
    "mesh-value": "a mesh's vertices are finite and its triangles name vertices that exist",
    # drivable area
    "drivable-structure": "the drivable area is a FeatureCollection of Polygons and MultiPolygons",
    "drivable-frame": "its coordinates are of the map frame: `crs` is `map_frame`",
    "drivable-type": "the property `type` of every feature is `drivable`",
    "drivable-priority": "the property `priority` is a number; smaller wins",
    "ring-closed": "the first and the last point of a ring are the same",
    "ring-orientation": "outer rings run counter-clockwise, holes clockwise",
    "ring-simple": "rings do not cross or touch themselves or each other, and holes lie within",
    "drivable-empty": "without any polygon the whole world is off-road",
    # recommended limits
    "limit-bundle-size": "a bundle has at most 2 GB",
    "limit-gaussians": "at most 5 million Gaussians",
    "limit-heightmap": "at most 4096 x 4096 heights",
    "limit-triangles": "at most 10 million triangles in the static mesh",
}

WARNINGS = frozenset({
    "sensor-id-meaning", "drivable-empty", "limit-bundle-size", "limit-gaussians", "limit-heightmap", "limit-triangles",
})  # fmt: skip
