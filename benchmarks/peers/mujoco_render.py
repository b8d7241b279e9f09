"""Frames per second of MuJoCo's renderer: a plane and solids, no shadows, no reflections. CPU time, all threads."""

import ctypes
import json
import math
import sys

import mujoco
import numpy as np

from benchmarks.harness import cpu_seconds

WIDTH, HEIGHT, SCENE = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])


def geom(solid: dict) -> str:
    length, width, height = solid["size"]
    place = f'pos="{solid["x"]} {solid["y"]} {height / 2}" euler="0 0 {solid["yaw"]}" rgba=".3 .7 .4 1"'
    if solid["kind"] == "circle":
        return f'<geom type="cylinder" size="{length / 2} {height / 2}" {place}/>'
    return f'<geom type="box" size="{length / 2} {width / 2} {height / 2}" {place}/>'


def world() -> str:
    x, y, z, rotation = SCENE["view"]
    right = " ".join(str(row[0]) for row in rotation)
    up = " ".join(str(-row[1]) for row in rotation)
    fovy = math.degrees(2 * math.atan(math.tan(SCENE["fovx"] / 2) * HEIGHT / WIDTH))
    half = SCENE["map_m"] / 2
    return f"""<mujoco><compiler angle="radian"/><visual><global offwidth="{WIDTH}" offheight="{HEIGHT}"/></visual>
    <worldbody><light pos="{half} {half} 90"/>
    <geom type="plane" size="{half} {half} 1" pos="{half} {half} 0" rgba=".8 .8 .8 1"/>
    <camera name="camera" pos="{x} {y} {z}" xyaxes="{right} {up}" fovy="{fovy}"/>
    {"".join(map(geom, SCENE["solids"]))}</worldbody></mujoco>"""


def gl_renderer() -> str:
    """What draws, as OpenGL names it: llvmpipe is software."""
    for library in ("libGL.so.1", "libOpenGL.so.0", "libOSMesa.so.8"):
        try:
            get_string = ctypes.CDLL(library).glGetString
        except (OSError, AttributeError):
            continue
        get_string.restype = ctypes.c_char_p
        name = get_string(0x1F01)
        if name:
            return name.decode().split("(")[0].strip()
    return "unknown renderer"


def main() -> None:
    model = mujoco.MjModel.from_xml_string(world())
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:

        def frame() -> np.ndarray:
            renderer.update_scene(data, camera="camera")
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
            return renderer.render()

        assert frame().std() > 0, "nothing was drawn"
        best = cpu_seconds(lambda: [frame() for _ in range(10)], 5)
        name = gl_renderer()
    print(json.dumps({"version": mujoco.__version__, "renderer": name, "frames_per_s": 10 / best}))


main()
