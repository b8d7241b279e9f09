"""Worlds without a scenario: a world is a batch of one, and what is saved is all that it is."""

from typing import Any

import numpy as np

from microsim.engine.components import Airflow
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.geodesy import tangent_plane
from microsim.engine.world import World
from microsim.engine.world_arrays import HERE
from microsim.engine.worlds import Fleet, OneWorld, Worlds, scene_of
from microsim.robots.rover import Rover

DT, FLAT, PLANE = (
    0.02,
    World(1.0, np.zeros((40, 40)), np.zeros((40, 40), np.uint8), (), ()),
    tangent_plane(0.0, 0.0, 0.0),
)
ROVER = Rover()
MODEL = ROVER.engine_model


def rovers(names: tuple[str, ...], columns: int, scene: Any = None) -> Fleet:
    numbers = np.tile(np.array(MODEL.numbers(ROVER, Airflow(), DT))[:, None], (1, columns))
    return Fleet(MODEL, names, np.zeros((MODEL.rows, columns)), numbers, np.zeros(columns, np.int64), scene)


def many(n: int) -> Worlds:
    scene = scene_of(FLAT, DT, PLANE)
    fleets = [rovers((name,), n, scene) for name in ("one", "two")]
    movers = [Mover(fleet.names[0], MODEL, fleet.state) for fleet in fleets]
    contacts = Contacts(movers, {}, FLAT, scene, stops_all=False, worlds=n)
    return Worlds(fleets, {fleet.names[0]: (fleet, 0) for fleet in fleets}, contacts, n, HERE)


def single() -> OneWorld:
    return OneWorld(FLAT, DT, [rovers(("one", "two"), 2)], PLANE)


def fill(worlds: Worlds, seed: int) -> None:
    dice = np.random.default_rng(seed)
    for array, _ in worlds.arrays.values():
        array[...] = dice.random(array.shape)
    worlds.contacts.touched[...] = dice.integers(0, 5, worlds.contacts.touched.shape)


def facts(worlds: Worlds, world: int) -> Any:
    arrays = {name: array.take(world, axis).tolist() for name, (array, axis) in worlds.arrays.items()}
    return arrays, worlds.contacts.touched[:, :, world].tolist()


def test_worlds_are_restored_and_the_others_stay_as_they_are() -> None:
    worlds, chosen = many(5), np.array([3, 1])
    fill(worlds, 1)
    before = [facts(worlds, world) for world in range(5)]
    saved = worlds.save(lambda array: chosen)
    fill(worlds, 2)
    after = [facts(worlds, world) for world in range(5)]
    worlds.load(saved, lambda array: chosen)
    assert [facts(worlds, world) for world in range(5)] == [after[0], before[1], after[2], before[3], after[4]]


def test_what_a_single_world_was_can_be_loaded_into_one_of_many() -> None:
    alone, worlds = single(), many(4)
    fill(alone, 3)
    worlds.load(alone.save(), lambda array: np.array([2]))
    assert facts(worlds, 2) == facts(alone, 0)
    assert worlds.distance("one", "two", 2) == alone.distance("one", "two")


def test_a_copy_is_not_changed_by_what_happens_later() -> None:
    alone = single()
    fill(alone, 4)
    saved, before = alone.save(), facts(alone, 0)
    alone.command("one", (1.0, 0.5))
    alone.move(0, 10)
    alone.load(saved)
    assert facts(alone, 0) == before
