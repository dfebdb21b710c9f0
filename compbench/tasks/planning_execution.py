"""Execution of plans in the simulator: the task's controller, from the plan's own start or after an ordinary reset.

    command at step t = clip((target pose of the plan at t - measured pose at t) / action scale)

So the controller follows absolute targets, interpolated linearly between frames, and errors do not add up.  A trial runs in a
worker process with one thread; if the simulator fails or dies, only that trial is lost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy

from compbench.data.cube_segments import (
    ACTION_SCALE,
    CUBE,
    CUBE_YAW,
    EFFECTOR,
    LIFTED_HEIGHT,
    REST_HEIGHT,
    TARGET,
    TARGET_OPENING,
    TARGET_YAW,
    YAW,
    frames,
)
from compbench.data.cube_trajectories import cube_environment

THRESHOLD = 0.04
"""Largest distance between cube and goal that counts as success, in metres; the environment's own value."""

HOLD_FIRST, HOLD_LAST = 15, 5
"""Control steps for which the first target is held if the arm starts elsewhere, and the last target with the gripper open."""

TRACE = 4
"""Control steps between recorded points of the cube's path."""


class Trial(NamedTuple):
    """One plan to execute.

    Attributes:
        plan: (17, frames), in metres; None requests only the state after the reset.
        goal: where the cube should lie at the end, (3,).
        start: the cube's position before the environment adds its jitter, (3,).
        seed: seed of the environment's reset; None puts the arm and the cube where the plan begins.
        stride: control steps between frames.
    """

    plan: numpy.ndarray | None
    goal: numpy.ndarray
    start: numpy.ndarray
    seed: int | None
    stride: int


class Outcome(NamedTuple):
    """The outcome of a trial.

    Attributes:
        distance: metres between cube and goal, five steps after the gripper opened.
        ever: whether the environment reported success at any step, even in mid-air.
        lifted: whether the cube was ever lifted.
        path: the cube's positions, (points, 3).
    """

    distance: float
    ever: bool
    lifted: bool
    path: numpy.ndarray

    @property
    def succeeded(self) -> bool:
        return self.distance <= THRESHOLD


def start_state(trial: Trial) -> numpy.ndarray:
    """The state (11,) that a trial's reset leads to."""
    observation, _ = _reset(trial)
    return frames(observation[None], numpy.zeros((1, 5)))[:11, 0]


def carry_out(trial: Trial) -> Outcome | numpy.ndarray:
    """A trial's outcome, or its state after the reset if it has no plan; worker processes call this function."""
    if trial.plan is None:
        return start_state(trial)
    _, info = _reset(trial)
    env = cube_environment("task")
    commands = targets(trial.plan, trial.stride)
    held = numpy.concatenate([commands[-1, :5], [0.0]])
    first = [commands[0]] * (HOLD_FIRST if trial.seed is not None else 0)
    path, ever = [info["privileged/block_0_pos"]], False
    for step, command in enumerate([*first, *commands, *[held] * HOLD_LAST]):
        _, _, _, _, info = env.step(action(command, info))
        ever |= bool(info["success"])
        if step % TRACE == 0:
            path.append(info["privileged/block_0_pos"])
    path.append(info["privileged/block_0_pos"])
    places = numpy.stack(path)
    if not numpy.isfinite(places).all() or _diverged(env):
        raise FloatingPointError("the simulation diverged")
    distance = float(numpy.linalg.norm(places[-1] - trial.goal))
    return Outcome(distance, ever, bool((places[:, 2] > LIFTED_HEIGHT).any()), places.astype(numpy.float32))


def targets(plan: numpy.ndarray, stride: int) -> numpy.ndarray:
    """Absolute commands for each control step, linear between frames: (17, frames) -> (steps, 6): x y z, cos sin, opening."""
    knots = plan[[*range(TARGET.start, TARGET_YAW.stop), TARGET_OPENING]].T.astype(numpy.float64)  # (frames, 6)
    steps = numpy.arange((len(knots) - 1) * stride + 1)
    return numpy.stack([numpy.interp(steps, steps[::stride], column) for column in knots.T], axis=1)


def action(command: numpy.ndarray, info: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """The relative action (5,) in [-1, 1] that leads from the measured pose to a command (6,)."""
    turn = math.atan2(command[4], command[3]) - float(info["proprio/effector_yaw"][0])
    turn = (turn + math.pi) % (2 * math.pi) - math.pi
    opening = min(max(command[5], 0.0), 1.0) - float(info["proprio/gripper_opening"][0])
    delta = numpy.array([*(command[:3] - info["proprio/effector_pos"]), turn, opening])
    return numpy.clip(delta / ACTION_SCALE, -1, 1)


def _reset(trial: Trial) -> tuple[numpy.ndarray, dict[str, numpy.ndarray]]:
    """Reset the environment with the trial's goal; without a seed, then put arm and cube where the plan begins."""
    env = cube_environment("task")
    place = {"task_name": "plan", "init_xyzs": _on_floor(trial.start), "goal_xyzs": _on_floor(trial.goal)}
    env.reset(seed=0 if trial.seed is None else trial.seed, options={"task_info": place})
    env.data.qacc_warmstart[:] = 0  # the reset's own steps leave values here
    qpos = env.data.qpos.copy()
    if trial.seed is None:
        assert trial.plan is not None
        qpos = _beginning(env, trial.plan[:, 0].astype(numpy.float64), qpos)
    env.set_state(qpos, numpy.zeros(env.model.nv))
    return env.compute_observation(), env.compute_ob_info()


def _beginning(env: Any, state: numpy.ndarray, qpos: numpy.ndarray) -> numpy.ndarray:
    """Joint positions for a plan's first state: the arm by the environment's inverse kinematics, the gripper open."""
    from ogbench.manipspace import lie

    down = env._effector_down_rotation
    pose = lie.SE3.from_rotation_and_translation(lie.SO3.from_z_radians(_angle(state[YAW])) @ down, state[EFFECTOR])
    wrist = pose @ env._T_pa
    arm = env._ik.solve(pos=wrist.translation(), quat=wrist.rotation().wxyz, curr_qpos=env._home_qpos)
    cube = int(env.model.joint("object_joint_0").qposadr[0])
    qpos = qpos.copy()
    qpos[env._arm_joint_ids] = arm
    qpos[cube : cube + 7] = [*state[CUBE][:2], REST_HEIGHT, *lie.SO3.from_z_radians(_angle(state[CUBE_YAW]) / 4).wxyz]
    return qpos


def _diverged(env: Any) -> bool:
    """Whether MuJoCo met a state that is not finite or too large: MuJoCo then resets the state and only warns."""
    import mujoco

    kinds = ("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")
    return any(env.data.warning[getattr(mujoco.mjtWarning, f"mjWARN_{kind}")].number for kind in kinds)


def _angle(circle: numpy.ndarray) -> float:
    return math.atan2(circle[1], circle[0])


def _on_floor(place: numpy.ndarray) -> numpy.ndarray:
    """The position on the floor in the form that OGBench's tasks expect, (1, 3)."""
    return numpy.array([[place[0], place[1], REST_HEIGHT]])
