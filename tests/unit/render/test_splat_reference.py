"""The rasteriser against the float64 renderer of `splat_reference`, on every kind of scene."""

import numpy as np
import pytest

from microsim.render.splat.activation import activate
from microsim.render.splat.blending import NOTHING, SPLATS, THING
from microsim.render.splat.projection import view_of
from microsim.render.splat.rasteriser import Rasteriser
from tests.support import COMPILED
from tests.unit.render import splat_reference, splat_scenes

SHOTS = splat_scenes.shots()
QUICK = ("ties in depth", "near plane", "nothing")  # as plain Python, a scene takes minutes
HORIZON = np.array([0.1, 0.2, 0.3])


def rendered(shot, behind, limits, splats=None):
    splats = splats or activate(shot.rows, shot.degree)
    view = view_of(*shot.size, shot.focal, shot.principal, shot.position, shot.rotation, bend=shot.bend)
    return Rasteriser(splats).render(view, behind.astype(np.float32), limits.astype(np.float32))


def expected(shot, behind, limits, splats):
    rank = np.full(len(shot.rows), -1)
    rank[splats.order] = np.arange(len(splats))
    camera = shot.size, shot.focal, shot.principal, shot.position, shot.rotation
    return splat_reference.render(shot.rows, shot.degree, *camera, behind, limits, rank, shot.bend)


def assert_close(found, wanted):
    """The tolerance that both back ends are held to."""
    error = np.abs(found.astype(np.float64) - wanted)
    assert np.isfinite(found).all()
    assert np.quantile(error, 0.9999) < 1e-5
    assert error.max(initial=0.0) < 5e-3
    assert np.mean(error > 1e-3) < 1e-4


def assert_same_surfaces(frame, depths, limits=np.inf):
    """Where it is a tie which splat takes half of the light, the other one's depth is as good: in one pixel of 1000."""
    same = np.isclose(frame.depths, depths, rtol=1e-3)
    assert np.mean(same) > 0.999, np.argwhere(~same)
    seen = np.where(frame.depths == limits, np.where(np.isfinite(limits), THING, NOTHING), SPLATS)
    np.testing.assert_array_equal(frame.owners, seen)


def compare(shot, limits):
    width, height = shot.size
    behind = np.broadcast_to(HORIZON, (height, width, 3))
    splats = activate(shot.rows, shot.degree)
    frame = rendered(shot, behind, limits, splats)
    colours, alphas, depths = expected(shot, behind, limits, splats)
    assert_close(frame.colours, colours)
    assert_close(frame.alphas, alphas)
    assert_same_surfaces(frame, depths, limits)


@pytest.mark.parametrize("name", SHOTS if COMPILED else QUICK)
def test_every_scene_agrees_with_float64(name):
    width, height = SHOTS[name].size
    compare(SHOTS[name], np.full((height, width), np.inf))


@pytest.mark.skipif(not COMPILED, reason="minutes as plain Python; the compiled run covers the same lines")
def test_things_are_covered_by_what_is_before_them_and_by_nothing_else():
    """A wall 6 m away in the left half of the image, at most pixels in the midst of the splats."""
    shot = SHOTS["many"]
    width, height = shot.size
    limits = np.full((height, width), np.inf)
    limits[:, : width // 2] = 6.0
    compare(shot, limits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_large_scenes_agree_with_float64(seed):
    shot = splat_scenes.Shot(
        splat_scenes.yard(20000, seed), size=(160, 120), focal=(95.0, 97.0), principal=(79.5, 59.5), yaw=0.8 * seed
    )
    compare(shot, np.full((120, 160), np.inf))
