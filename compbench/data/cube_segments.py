"""Pick-and-place segments of play trajectories as plans: frames of states and of the absolute targets of the actions.

One frame, 17 numbers in metres and radians (cosines and sines for angles):

    state   effector x y z, cos sin of its yaw, gripper opening, cube x y z, cos sin of 4 x its yaw (for its symmetry)
    target  effector x y z, cos sin of its yaw, gripper opening: the pose at that frame plus the action there

A target has the same information as an action, and is far safer to follow, because errors of relative actions add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from compbench.data.cube_trajectories import Trajectories

EFFECTOR, YAW, OPENING, CUBE, CUBE_YAW = slice(0, 3), slice(3, 5), 5, slice(6, 9), slice(9, 11)
TARGET, TARGET_YAW, TARGET_OPENING = slice(11, 14), slice(14, 16), 16
NUM_CHANNELS, NUM_STATE_CHANNELS = 17, 11

WINDOW = 96
"""Number of control steps of a segment: approach, pick, place, and some rest."""

RISE = 14
"""Control steps from the release of one segment to the start of the next.  Meanwhile the arm rises to where the next approach
begins: 85 % of these starts lie in the box in which the environment's resets put the arm, and no release does."""

CENTRE = (0.425, 0.0)
"""Centre of the table, where the quadrants meet."""

QUADRANTS = ("TL", "TR", "BL", "BR")
"""The quadrants as the front camera shows them: left is y < 0, top is small x."""

REST_HEIGHT, LIFTED_HEIGHT, OPEN = 0.02, 0.035, 0.1
ACTION_SCALE = numpy.array([0.05, 0.05, 0.05, 0.3, 1.0])

_POSITION, _REACH = (0.425, 0.0, 0.12), (0.07, 0.15, 0.09)
OFFSET = numpy.array([*_POSITION, 0, 0, 0.3, 0.425, 0.0, 0.07, 0, 0, *_POSITION, 0, 0, 0.45], numpy.float32)[:, None]
SCALE = numpy.array([*_REACH, 0.7, 0.7, 0.25, 0.07, 0.15, 0.085, 0.7, 0.7, *_REACH, 0.7, 0.7, 0.45], numpy.float32)[:, None]
"""Means and deviations of the channels over play, rounded.  They are fixed, so that silos need not share statistics."""


class Segments(NamedTuple):
    """Plans cut from trajectories.

    Attributes:
        plans: float32 (N, 17, frames).
        cells: source and destination quadrant of each, int64 (N, 2).
    """

    plans: numpy.ndarray
    cells: numpy.ndarray


def segments(trajectories: Trajectories, *, stride: int, episodes: int) -> Segments:
    """Every complete pick and place, sampled each `stride` steps.

    Args:
        trajectories: any number of episodes.
        stride: control steps between frames; divides 96.
        episodes: largest number of episodes to take.
    """
    found = [
        frames(observations[first : first + WINDOW : stride], actions[first : first + WINDOW : stride])
        for observations, actions in trajectories.episodes(episodes)
        for first in windows(observations, last=WINDOW - stride)
    ]
    plans = numpy.stack(found) if found else numpy.zeros((0, NUM_CHANNELS, WINDOW // stride), numpy.float32)
    return Segments(plans, cells_of(plans))


def windows(observations: numpy.ndarray, *, last: int = WINDOW - 1) -> list[int]:
    """First steps of an episode's windows in which the cube is lifted, put down and let go.

    A window begins with the episode, or `RISE` steps after the previous release, so that the arm is raised over the table as
    after a reset.  A grasp that fails lifts nothing, and a cube that rises again before it is let go is still on its way.

    Args:
        observations: one episode, (T, 28).
        last: the step of a window by which the cube must have been let go.
    """
    position = _cube(observations)
    height, opening = position[:, 2], observations[:, 17] / 3.0
    moved = numpy.linalg.norm(numpy.diff(position, axis=0, prepend=position[:1]), axis=1)
    still = (numpy.abs(height - REST_HEIGHT) < 0.003) & (moved < 0.001)
    at_rest = still & numpy.roll(still, 1) & numpy.roll(still, 2)
    at_rest[:2] = still[:2]
    found, start = [], 0
    while (release := _release(height > LIFTED_HEIGHT, at_rest, opening < OPEN, start)) is not None:
        if release - start <= last and start + WINDOW <= len(observations):
            found.append(start)
        start = release + RISE
    return found


def _release(lifted: numpy.ndarray, at_rest: numpy.ndarray, is_open: numpy.ndarray, start: int) -> int | None:
    """The first step after `start` at which a lifted cube lies still and is released; None if the episode ends before."""
    lift = _first(lifted, start)
    while lift is not None:
        landing = _first(at_rest, lift)
        if landing is None:
            return None
        release = _first(is_open, landing)
        if release is None:
            return None
        again = _first(lifted[:release], landing)
        if again is None:
            return release
        lift = again
    return None


def frames(observations: numpy.ndarray, actions: numpy.ndarray) -> numpy.ndarray:
    """Rows of a trajectory as a plan: (T, 28) and (T, 5) -> float32 (17, T)."""
    raw = observations.astype(numpy.float64)
    effector = raw[:, 12:15] / 10 + (*CENTRE, 0.0)
    yaw, opening = numpy.arctan2(raw[:, 16], raw[:, 15]), raw[:, 17] / 3
    cube_yaw = 4 * numpy.arctan2(raw[:, 27], raw[:, 26])
    delta = actions.astype(numpy.float64) * ACTION_SCALE
    target_yaw, target_opening = yaw + delta[:, 3], numpy.clip(opening + delta[:, 4], 0, 1)
    columns = [
        *(effector, _circle(yaw), opening[:, None], _cube(raw), _circle(cube_yaw)),
        *(effector + delta[:, :3], _circle(target_yaw), target_opening[:, None]),
    ]
    return numpy.concatenate(columns, axis=1).T.astype(numpy.float32)


def normalised(plans: numpy.ndarray) -> numpy.ndarray:
    """Plans as networks see them: states and targets about 0 with deviation 1, (..., 17, frames)."""
    return (plans - OFFSET) / SCALE


def in_metres(normal: numpy.ndarray) -> numpy.ndarray:
    """Plans in metres: the inverse of `normalised`."""
    return normal * SCALE + OFFSET


def quadrants(positions: numpy.ndarray) -> numpy.ndarray:
    """Indices into `QUADRANTS` of positions on the table, (..., 2 or 3) -> int64 (...)."""
    bottom, right = positions[..., 0] >= CENTRE[0], positions[..., 1] >= CENTRE[1]
    return 2 * bottom.astype(numpy.int64) + right


def cells_of(plans: numpy.ndarray) -> numpy.ndarray:
    """(source, destination) of plans (N, 17, frames): quadrants of the cube at the first and the last frame, (N, 2)."""
    return numpy.stack([quadrants(plans[:, CUBE, 0]), quadrants(plans[:, CUBE, -1])], axis=1)


def feasible(plans: numpy.ndarray, cells: numpy.ndarray, *, tolerance: float) -> numpy.ndarray:
    """Whether the cube lies on the floor at both ends, in the requested quadrants, bool (N,).

    Args:
        plans: (N, 17, frames).
        cells: requested sources and destinations, (N, 2).
        tolerance: largest distance in metres from the height at which the cube lies on the floor.
    """
    heights = plans[:, CUBE.start + 2][:, [0, -1]]
    on_floor = (numpy.abs(heights - REST_HEIGHT) <= tolerance).all(axis=1)
    return on_floor & (cells_of(plans) == cells).all(axis=1)


def counts(cells: numpy.ndarray) -> Sequence[Sequence[int]]:
    """Segments of each (source, destination), 4 rows of 4."""
    return numpy.bincount(4 * cells[:, 0] + cells[:, 1], minlength=16).reshape(4, 4).tolist()


def _cube(observations: numpy.ndarray) -> numpy.ndarray:
    """Positions of the cube in metres, (T, 3)."""
    return observations[:, 19:22].astype(numpy.float64) / 10 + (*CENTRE, 0.0)


def _circle(angle: numpy.ndarray) -> numpy.ndarray:
    return numpy.stack([numpy.cos(angle), numpy.sin(angle)], axis=1)


def _first(flags: numpy.ndarray, start: int) -> int | None:
    """The first index from `start` on at which a flag is true."""
    up = numpy.flatnonzero(flags[start:])
    return start + int(up[0]) if len(up) else None
