"""Segmentation on trajectories made by hand, and what plans keep of them."""

import numpy
import pytest

from compbench.data import cube_segments
from compbench.data.cube_segments import (
    CUBE,
    EFFECTOR,
    RISE,
    TARGET,
    TARGET_OPENING,
    WINDOW,
    feasible,
    frames,
    in_metres,
    normalised,
    windows,
)
from compbench.data.cube_trajectories import Trajectories

ROW = numpy.zeros(28)
ROW[[15, 22, 26]] = 1.0


def place(*stages: tuple[int, float, float, float]) -> numpy.ndarray:
    """Observations of stages (steps, y, height, opening), the cube moving linearly to each."""
    rows = [[0.0, 0.02, 0.0]]
    for steps, y, height, opening in stages:
        start = rows[-1]
        rows += [
            [start[k] + (goal - start[k]) * (i + 1) / steps for k, goal in enumerate((y, height))] + [opening]
            for i in range(steps)
        ]
    found = numpy.tile(ROW, (len(rows), 1))
    y, height, opening = numpy.array(rows).T
    found[:, 20], found[:, 21], found[:, 17] = 10 * y, 10 * height, 3 * opening
    return found


PICK = ((20, 0.0, 0.02, 0.0), (5, 0.0, 0.02, 0.56), (10, 0.0, 0.2, 0.56), (15, 0.2, 0.2, 0.56), (10, 0.2, 0.02, 0.56))
REST = ((5, 0.2, 0.02, 0.56), (40, 0.2, 0.02, 0.0))


def test_windows_begin_at_the_start_and_once_the_arm_has_risen_after_each_release() -> None:
    once = place(*PICK, *REST)
    twice = numpy.concatenate([once, once, numpy.tile(once[-1:], (WINDOW, 1))])
    release = 20 + 5 + 10 + 15 + 10 + 5 + 1
    assert windows(twice) == [0, release + RISE]  # the second is let go 106 - 14 steps after its start
    assert windows(twice, last=90) == [0]
    assert windows(twice[release:]) == []


def test_windows_wait_for_the_last_release_where_a_cube_is_grasped_again() -> None:
    again = place(*PICK, (4, 0.2, 0.02, 0.56), (5, 0.2, 0.1, 0.56), (5, 0.2, 0.02, 0.56), *REST, (WINDOW, 0.2, 0.02, 0.0))
    first = 20 + 5 + 10 + 15 + 10 + 4 + 5 + 5 + 5 + 1
    assert windows(again, last=first) == [0]
    assert windows(again, last=first - 1) == []


@pytest.mark.parametrize(
    "stages",
    [
        ((20, 0.0, 0.02, 0.0), (20, 0.0, 0.02, 0.56), (100, 0.0, 0.02, 0.0)),  # a failed grasp
        (*PICK, (100, 0.2, 0.02, 0.56)),  # never let go
        (*PICK[:-1], (100, 0.2, 0.2, 0.56)),  # never put down
    ],
)
def test_windows_leave_out_what_is_no_pick_and_place(stages) -> None:
    assert windows(place(*stages)) == []


def test_frames_keep_positions_and_turn_actions_into_targets() -> None:
    observation = ROW.copy()
    observation[12:15], observation[17] = (0.5, -1.0, 2.0), 1.5
    observation[19:22] = (1.0, 2.0, 0.2)
    plan = frames(observation[None], numpy.array([[1.0, 0.0, -1.0, 0.5, 0.2]]))[:, 0]
    assert plan[CUBE] == pytest.approx((0.525, 0.2, 0.02))
    assert plan[TARGET] == pytest.approx((0.475 + 0.05, -0.1, 0.2 - 0.05))
    assert numpy.arctan2(plan[15], plan[14]) == pytest.approx(0.15)
    assert plan[TARGET_OPENING] == pytest.approx(0.7)


def test_normalised_is_undone_and_of_order_one(played: Trajectories) -> None:
    plans = cube_segments.segments(played, stride=4, episodes=9).plans
    assert numpy.allclose(in_metres(normalised(plans)), plans, atol=1e-6)
    deviation = normalised(plans).std(axis=(0, 2))
    assert (deviation > 0.3).all()  # yaws of so few segments lie close together
    assert (deviation < 2).all()


def test_segments_of_play_are_feasible_for_their_own_cells_only(played: Trajectories) -> None:
    found = cube_segments.segments(played, stride=4, episodes=9)
    assert found.plans.shape[1:] == (17, 24)
    assert len(found.plans) >= 15  # about 11 an episode
    assert feasible(found.plans, found.cells, tolerance=0.01).all()
    assert not feasible(found.plans, (found.cells + 1) % 4, tolerance=0.01).any()
    lifted = found.plans.copy()
    lifted[:, CUBE.start + 2, -1] = 0.05
    assert not feasible(lifted, found.cells, tolerance=0.01).any()


def test_segments_begin_with_the_arm_raised_as_after_a_reset(played: Trajectories) -> None:
    height = cube_segments.segments(played, stride=4, episodes=2).plans[:, EFFECTOR.stop - 1, 0]
    assert (height > 0.15).mean() > 0.9
    assert height.min() > 0.1
