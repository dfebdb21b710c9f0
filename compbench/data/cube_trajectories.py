"""Trajectories of OGBench's `cube-single-play`: the official file if present, otherwise play by its oracle in MuJoCo.

An episode is 1001 rows of play: an arm carries one cube to random places, one after another (Park et al. 2025).  Episode k
of a seed has the same bits in every process and after any other episode, because the environment and the oracle, which draws
from numpy's global generator, are both seeded at its start.
"""

from __future__ import annotations

import hashlib
import os
import warnings
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from compbench.api.interfaces import Source
from compbench.data.process_pool import Failed, Workers
from compbench.data.sources import SourceFile, recorded_sha256
from compbench.system.errors import CompbenchError, blames_the_content, remedy
from compbench.system.files import held
from compbench.system.home import FROM_DATA

FILE = "cube-single-play-v0.npz"
OFFICIAL = SourceFile(FILE, ())
"""The official file.  No hash of it is published; the first use records the file's hash."""

OFFICIAL_FOLDER = Path("~/.ogbench/data")
"""The folder in which OGBench's own loader stores its files."""

ROWS = 1001
"""Number of rows of one episode, as in the official files."""

CHUNK = 20
"""Number of episodes per cached file.  A run that was killed continues after the last file, and longer play reuses the files of
shorter play."""

GENERATOR_VERSION = 1
"""Version of the generator; raise it when generated trajectories change."""

NUM_STATES, NUM_ACTIONS = 28, 5


class Trajectories(NamedTuple):
    """Rows of all episodes, one after the other.

    Attributes:
        observations: the state before the step, float32 (N, 28).
        actions: float32 (N, 5).
        terminals: whether a row is its episode's last, bool (N,).
    """

    observations: numpy.ndarray
    actions: numpy.ndarray
    terminals: numpy.ndarray

    def episodes(self, most: int) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
        """(observations, actions) of each episode, at most `most` of them."""
        ends = numpy.flatnonzero(self.terminals)[:most] + 1
        starts = [0, *ends[:-1]]
        return [
            (self.observations[first:last], self.actions[first:last]) for first, last in zip(starts, ends.tolist(), strict=True)
        ]


def official_file(folder: Path) -> Path | None:
    """The official file: in the data folder, or where OGBench's loader puts it."""
    return next((path for path in (folder / FILE, OFFICIAL_FOLDER.expanduser() / FILE) if path.is_file()), None)


def check_installed() -> None:
    """Raises CompbenchError with the install line if the simulator is not there."""
    if find_spec("ogbench") is None or find_spec("mujoco") is None:
        raise CompbenchError("planning needs packages that are not installed: pip install 'compbench[planning]'")


def choose(folder: Path, asked: str) -> Source:
    """The official file if it is present, else the oracle.

    The fingerprint of a file depends only on its content, so a copy on another machine counts as the same data.

    Raises:
        CompbenchError: the official file is requested but missing, or is not the file of its first use, or the simulator
            is not installed.
    """
    check_installed()
    found = official_file(folder) if asked != "embedded" else None
    if found is not None:
        return Source("official", found.name, recorded_sha256(found, OFFICIAL)[:32])
    if asked == "official":
        raise CompbenchError(
            f"there is no {FILE} in {folder} or {OFFICIAL_FOLDER}; put it there, or use --source embedded (OGBench's oracle)."
        )
    return Source("embedded", "OGBench oracle", fingerprint())


def fingerprint() -> str:
    """The fingerprint of generated trajectories; it has the simulator's version, because the physics changes with it."""
    return f"oracle-{GENERATOR_VERSION} ogbench-{_version('ogbench')} mujoco-{_version('mujoco')}"


def load(
    source: Source,
    folder: Path,
    cache: Path,
    *,
    episodes: int,
    seed: int,
    num_workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Trajectories:
    """The official trajectories, or generated ones: from the cache if they were generated before.

    Args:
        source: the result of `choose`.
        folder: folder of official files.
        cache: folder of generated files.
        episodes, seed: how many to generate, and from which seed.
        num_workers: processes that generate.
        progress: called as progress(done, total) while generating.

    Raises:
        CompbenchError: the official file is damaged, or the simulator failed.
    """
    if source.kind == "official":
        path = official_file(folder)
        if path is None:
            raise CompbenchError(f"{FILE} is gone from {folder}; put it back, or use --source embedded.")
        return read(path)
    kind = hashlib.sha256(f"{source.fingerprint} seed-{seed}".encode()).hexdigest()[:16]
    parts = []
    for first in range(0, episodes, CHUNK):
        numbers = range(first, min(first + CHUNK, episodes))
        path = cache / FROM_DATA / f"cube-single-{kind}-{numbers.start}-{numbers.stop}.npz"
        with held(path):
            parts.append(_kept(path) or _made(path, numbers, seed, num_workers, _counted_from(first, episodes, progress)))
    return Trajectories(*(numpy.concatenate(part) for part in zip(*parts, strict=True)))


def _counted_from(first: int, total: int, progress: Callable[[int, int], None]) -> Callable[[int], None]:
    """The progress of a chunk as progress over all episodes."""
    return lambda done: progress(first + done, total)


def _kept(path: Path) -> Trajectories | None:
    """A chunk that was generated before; None if it is missing or damaged, and then it is generated again.

    Raises:
        CompbenchError: the machine could not read the chunk, which may be whole and is kept.
    """
    if path.is_file():
        try:
            return read(path)
        except CompbenchError as error:
            if isinstance(error.__cause__, Exception) and not blames_the_content(error.__cause__):
                raise
            path.unlink()
    return None


def _made(path: Path, numbers: range, seed: int, num_workers: int, progress: Callable[[int], None]) -> Trajectories:
    made = generate(numbers, seed, num_workers=num_workers, progress=lambda done, total: progress(done))
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        numpy.savez(file, **made._asdict())
    os.replace(part, path)
    return made


def read(path: Path) -> Trajectories:
    """Read observations, actions and terminals from an .npz; other arrays in it are ignored.

    Raises:
        CompbenchError: the file cannot be read, or its arrays are not trajectories of this task.
    """
    try:
        with numpy.load(path, allow_pickle=False) as file:
            found = Trajectories(
                file["observations"].astype(numpy.float32),
                file["actions"].astype(numpy.float32),
                file["terminals"].astype(bool),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        detail = " ".join(str(error).split())
        raise CompbenchError(
            f"{path} cannot be read as trajectories ({detail}); {remedy(error, 'delete it or fetch it again')}."
        ) from error
    rows = len(found.terminals)
    shapes = (found.observations.shape, found.actions.shape, found.terminals.shape)
    if shapes != ((rows, NUM_STATES), (rows, NUM_ACTIONS), (rows,)) or not found.terminals.any():
        raise CompbenchError(
            f"{path} must hold observations (N, {NUM_STATES}), actions (N, {NUM_ACTIONS}) and terminals (N,), found "
            f"{', '.join(map(str, shapes))}; delete it or fetch it again."
        )
    if not (numpy.isfinite(found.observations).all() and numpy.isfinite(found.actions).all()):
        raise CompbenchError(f"{path} holds values that are not finite; delete it or fetch it again.")
    return found


def generate(
    numbers: range, seed: int, *, num_workers: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> Trajectories:
    """Some episodes of a seed by the plan oracle, as `cube-single-play-v0` was made: noise 0.1, smoothing 0.5, no random actions.

    Raises:
        CompbenchError: an episode failed in the simulator; the message names it.
    """
    check_installed()
    with Workers(episode, min(num_workers, len(numbers))) as workers:
        found = workers.map([(seed, number) for number in numbers], progress=progress)
    for number, one in zip(numbers, found, strict=True):
        if isinstance(one, Failed):
            raise CompbenchError(f"episode {number} of seed {seed} could not be generated: {one.reason}.")
    terminals = numpy.zeros(len(numbers) * ROWS, bool)
    terminals[ROWS - 1 :: ROWS] = True
    observations, actions = (numpy.concatenate(part) for part in zip(*found, strict=True))
    return Trajectories(observations, actions, terminals)


def episode(which: tuple[int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """One episode in this process: (seed, number) -> observations (1001, 28) and actions (1001, 5), float32."""
    env = cube_environment("data_collection")
    from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

    entropy = numpy.random.SeedSequence(which).generate_state(2)
    before = numpy.random.get_state()
    numpy.random.seed(int(entropy[0]))  # the oracle draws from numpy's global generator
    try:
        observation, info = env.reset(seed=int(entropy[1]))
        oracle = CubePlanOracle(env=env, noise=0.1, noise_smoothing=0.5)
        oracle.reset(observation, info)
        observations = numpy.empty((ROWS, NUM_STATES), numpy.float32)
        actions = numpy.empty((ROWS, NUM_ACTIONS), numpy.float32)
        for row in range(ROWS):
            action = numpy.clip(oracle.select_action(observation, info), -1, 1)
            observations[row], actions[row] = observation, action
            observation, _, _, _, info = env.step(action)
            if oracle.done:
                oracle.reset(*env.set_new_target())
        return observations, actions
    finally:
        numpy.random.set_state(before)


_ENVIRONMENTS: dict[str, Any] = {}


def cube_environment(mode: str) -> Any:
    """This process's `cube-single` environment of a mode ("data_collection" or "task"); compiling both models takes a second."""
    if mode not in _ENVIRONMENTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unused viewer warns that it has no display
            import gymnasium
            from ogbench.manipspace.envs.cube_env import CubeEnv

        gymnasium.logger.min_level = gymnasium.logger.ERROR  # each reset warns twice about the precision of a Box
        _ENVIRONMENTS[mode] = CubeEnv("single", mode=mode, terminate_at_goal=False, visualize_info=False)
    return _ENVIRONMENTS[mode]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
