"""A plain float64 renderer of 3D Gaussian splats: one splat after another over the whole image.

Written from the published equations alone, to be read and believed, not to be quick. It shares no code with
`microsim.render.splat`, and takes the rows of a file as they stand.
"""

import numpy as np

NEAR, DILATION, ALPHA_MAX, ALPHA_MIN, TRANSMITTANCE_MIN, HALF, SPREAD = 0.2, 0.3, 0.99, 1.0 / 255.0, 1e-4, 0.5, 4.0


def render(rows, degree, size, focal, principal, position, rotation, behind, limits=np.inf, rank=None, bend=None):
    """(colours, alphas, depths) of the file's rows (n, 14 or more), seen by a pinhole camera, or a fisheye with `bend`.

    `rotation` turns the optical frame (x right, y down, z ahead) into the map frame; `rank` orders splats of the same
    depth, otherwise they are taken as in the file. Depths are of the surface that is seen: where the splat that takes
    the middle of the light is densest along the ray, otherwise the `limits`.
    """
    (width, height), (fx, fy), (cx, cy) = size, focal, principal
    rows = rows.astype(np.float64)
    to_camera = np.asarray(rotation, np.float64).T
    offset = rows[:, 0:3] - np.asarray(position, np.float64)
    places = offset @ to_camera.T
    u, v = np.arange(width)[None, :], np.arange(height)[:, None]
    colours, transmittance = np.zeros((height, width, 3)), np.ones((height, width))
    depths, is_open = np.broadcast_to(limits, (height, width)).copy(), np.ones((height, width), bool)
    far = places[:, 2] if bend is None else np.linalg.norm(places, axis=1)
    nearest_first = np.lexsort((np.arange(len(rows)) if rank is None else rank, far.astype(np.float32)))
    for i in nearest_first:
        x, y, z = places[i]
        opacity = 1.0 / (1.0 + np.exp(-rows[i, 10]))
        if (
            far[i] < NEAR
            or opacity < ALPHA_MIN
            or (bend is not None and np.arctan2(np.hypot(x, y), z) > np.radians(100))
        ):
            continue
        axes = rotation_matrix(rows[i, 6:10]) * np.exp(rows[i, 3:6])
        if bend is None:
            slope_x = np.clip(x / z, (-0.15 * width - cx) / fx, (1.15 * width - cx) / fx)
            slope_y = np.clip(y / z, (-0.15 * height - cy) / fy, (1.15 * height - cy) / fy)
            jacobian = np.array([[fx / z, 0.0, -fx * slope_x / z], [0.0, fy / z, -fy * slope_y / z]])
            centre = np.array([fx * x / z, fy * y / z])
        else:
            centre, jacobian = fisheye((fx, fy), places[i], bend)
        footprint = jacobian @ to_camera @ axes
        covariance = footprint @ footprint.T + DILATION * np.eye(2)
        conic = np.linalg.inv(covariance)
        du, dv = u - (centre[0] + cx), v - (centre[1] + cy)
        away = np.array([0.0, 0.0, 1.0]) if bend is None else places[i] / far[i]
        slope = np.linalg.solve(covariance, footprint @ (away @ to_camera @ axes))  # of the expected depth
        surface = 1.0 / far[i] - (slope[0] * du + slope[1] * dv) / far[i] ** 2  # one over it: linear, as of a plane
        power = 0.5 * (conic[0, 0] * du * du + conic[1, 1] * dv * dv) + conic[0, 1] * du * dv
        alpha = np.minimum(opacity * np.exp(-power), ALPHA_MAX)
        takes = is_open & (opacity * np.exp(-power) >= ALPHA_MIN) & (far[i] < limits)
        takes &= surface > np.where(np.isfinite(limits), 1.0 / limits, -np.inf)
        is_last = takes & (transmittance * (1.0 - alpha) <= TRANSMITTANCE_MIN)
        is_open &= ~is_last
        weight = np.where(takes & ~is_last, alpha * transmittance, 0.0)
        colours += weight[..., None] * colour(rows[i], degree, offset[i])
        is_half = (transmittance > HALF) & (transmittance - weight <= HALF)
        depths = np.where(is_half, 1.0 / np.clip(surface, 1.0 / (SPREAD * far[i]), SPREAD / far[i]), depths)
        transmittance -= weight
    alphas = 1.0 - transmittance
    return colours + transmittance[..., None] * behind, alphas, depths


def fisheye(focal, place, k):
    """Where the lens of Kannala and Brandt shows a place, from its centre; the Jacobian, by complex steps."""

    def at(x, y, z):
        aside = np.sqrt(x * x + y * y)
        ratio = aside / (np.sqrt(aside * aside + z * z) + z)  # the tangent of half the angle
        angle = 2.0 * np.arctan(ratio)
        radius = angle * (1.0 + k[0] * angle**2 + k[1] * angle**4 + k[2] * angle**6 + k[3] * angle**8)
        return np.array([focal[0] * x, focal[1] * y]) * (radius / aside)

    steps = np.eye(3) * 1e-30j
    return at(*place), np.stack([at(*(place + step)).imag / 1e-30 for step in steps], axis=1)


def rotation_matrix(quaternion):
    x, y, z, w = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def colour(row, degree, direction):
    """Real spherical harmonics with the signs of 3DGS, of the direction from camera to splat."""
    x, y, z = direction / np.linalg.norm(direction)
    basis = [0.28209479177387814, -0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x]
    basis += [
        1.0925484305920792 * x * y,
        -1.0925484305920792 * y * z,
        0.31539156525252005 * (2 * z * z - x * x - y * y),
        -1.0925484305920792 * x * z,
        0.5462742152960396 * (x * x - y * y),
        -0.5900435899266435 * y * (3 * x * x - y * y),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (4 * z * z - x * x - y * y),
        0.3731763325901154 * z * (2 * z * z - 3 * x * x - 3 * y * y),
        -0.4570457994644658 * x * (4 * z * z - x * x - y * y),
        1.445305721320277 * z * (x * x - y * y),
        -0.5900435899266435 * x * (x * x - 3 * y * y),
    ]
    rest = (row.size - 14) // 3
    coefficients = np.stack([np.append(row[11 + c], row[14 + c * rest : 14 + (c + 1) * rest]) for c in range(3)], 1)
    used = (degree + 1) ** 2
    return np.maximum(np.array(basis[:used]) @ coefficients[:used] + 0.5, 0.0)
