"""3D Gaussian splats on the CPU: a tile rasteriser whose bits depend neither on the processor nor on the threads.

What a pixel is, in one place (the GPU back end computes the same, operation by operation):

- A splat whose mean is nearer than the near plane is not drawn. The others are drawn in the order of their float32
  depth, equal ones in the order of the scene (by cell, then as in the file).
- Its footprint is the projection of its covariance, linearised at its mean (at most 15% of the image beyond the edge),
  plus `DILATION_PX2`. At pixel (u, v), centres at integers, its alpha is `opacity * exp(-s)`, s half the squared
  Mahalanobis distance, at most `ALPHA_MAX`; below `ALPHA_MIN` it is not there.
- A fisheye takes the distance from the camera for the depth, and means up to 100 degrees from its axis.
- Colours are blended front to back. The splat that would leave less than `TRANSMITTANCE_MIN` is left out, and the
  pixel is done. What remains shows the background, or the simulated thing at that pixel.
- A splat's surface is where it is densest along a pixel's ray: of a flat one, its plane. It covers a simulated thing
  where both its surface and its mean are nearer.
- A pixel shows the splat that leaves `SURFACE_TRANSMITTANCE` or less of its light, otherwise the thing, otherwise
  nothing. The depth of that surface is the pixel's.

Geometry is float64 (a frame needs it once per splat), pixels are float32; square roots and quotients are exact by
IEEE 754, nothing is fused, and exp is the polynomial of `blending.exp_of_minus`.
"""

NEAR_M = 0.2
DILATION_PX2 = 0.3
ALPHA_MAX = 0.99
ALPHA_MIN = 1.0 / 255.0
TRANSMITTANCE_MIN = 1e-4
SURFACE_TRANSMITTANCE = 0.5
SURFACE_SPREAD = 4.0  # times as far, or as near, as its mean a splat's surface may be: planes have no end
TILE = 16  # [px]
CHUNK = 256  # splats that are culled together
