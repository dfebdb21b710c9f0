"""Trajectories: the same bits for a seed wherever they are made, the cache, and files that are none."""

import errno
import os
from pathlib import Path

import numpy
import pytest

from compbench.api.interfaces import Source
from compbench.data import cube_trajectories
from compbench.data.cube_trajectories import ROWS, Trajectories, choose, episode, load, read
from compbench.system.errors import CompbenchError


@pytest.mark.slow
def test_generate_gives_the_same_bits_in_other_processes_and_order(played: Trajectories, monkeypatch) -> None:
    monkeypatch.setattr(cube_trajectories, "ROWS", 400)  # the cube has been put down, and has a new target
    observations, actions = episode((0, 1))  # here, and without the episode before
    assert numpy.array_equal(observations, played.observations[ROWS:][:400])
    assert numpy.array_equal(actions, played.actions[ROWS:][:400])
    assert not numpy.array_equal(played.observations[:ROWS], played.observations[ROWS:])


def test_episodes_end_at_terminals(played: Trajectories) -> None:
    assert [len(observations) for observations, _ in played.episodes(5)] == [ROWS, ROWS]
    assert len(played.episodes(1)) == 1


def test_load_keeps_chunks_goes_on_after_them_and_makes_a_damaged_one_again(tmp_path: Path, monkeypatch) -> None:
    calls = []

    def generate(numbers, seed, **_) -> Trajectories:
        calls.append(numbers)
        size = len(numbers)
        return Trajectories(numpy.full((size, 28), numbers.start, "f4"), numpy.ones((size, 5), "f4"), numpy.ones(size, bool))

    monkeypatch.setattr(cube_trajectories, "generate", generate)
    monkeypatch.setattr(cube_trajectories, "CHUNK", 2)
    source = Source("embedded", "OGBench oracle", "test")
    assert len(load(source, tmp_path, tmp_path, episodes=4, seed=0).terminals) == 4
    found = load(source, tmp_path, tmp_path, episodes=5, seed=0)
    assert calls == [range(0, 2), range(2, 4), range(4, 5)]
    assert found.observations[:, 0].tolist() == [0, 0, 2, 2, 4]
    next(tmp_path.rglob("*-2-4.npz")).write_bytes(b"not a zip")
    again = load(source, tmp_path, tmp_path, episodes=5, seed=0)
    assert calls[3:] == [range(2, 4)]
    assert numpy.array_equal(again.observations, found.observations)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EAGAIN, errno.ENOLCK])
def test_a_chunk_that_the_machine_cannot_read_is_kept(tmp_path: Path, monkeypatch, number: int) -> None:
    made = Trajectories(numpy.ones((2, 28), "f4"), numpy.ones((2, 5), "f4"), numpy.ones(2, bool))
    monkeypatch.setattr(cube_trajectories, "generate", lambda *_, **__: made)
    source = Source("embedded", "OGBench oracle", "test")
    load(source, tmp_path, tmp_path, episodes=2, seed=0)
    (path,) = tmp_path.rglob("*.npz")
    content = path.read_bytes()

    def unreadable(*_, **__) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(numpy, "load", unreadable)
        with pytest.raises(CompbenchError, match="cannot be read as trajectories .*; keep it, and check its rights"):
            load(source, tmp_path, tmp_path, episodes=2, seed=0)
    assert path.read_bytes() == content
    assert numpy.array_equal(load(source, tmp_path, tmp_path, episodes=2, seed=0).actions, made.actions)


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        (None, "cannot be read as trajectories"),
        ({"observations": numpy.zeros((2, 28))}, "cannot be read as trajectories"),
        ({"observations": numpy.zeros((2, 40)), "actions": numpy.zeros((2, 5)), "terminals": [0, 1]}, "must hold observations"),
        ({"observations": numpy.full((2, 28), numpy.nan), "actions": numpy.zeros((2, 5)), "terminals": [0, 1]}, "not finite"),
    ],
)
def test_read_says_in_one_line_what_is_wrong_with_a_file(tmp_path: Path, arrays, what: str) -> None:
    path = tmp_path / "cube-single-play-v0.npz"
    if arrays is None:
        path.write_bytes(b"PK\x03\x04 cut off")
    else:
        numpy.savez(path, **arrays)
    with pytest.raises(CompbenchError, match=what) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator is installed, as far as a look at the file needs it."""
    monkeypatch.setattr(cube_trajectories, "find_spec", lambda name: object())


@pytest.mark.usefixtures("simulator")
def test_choose_takes_the_official_file_where_it_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cube_trajectories, "OFFICIAL_FOLDER", tmp_path / "nowhere")
    assert choose(tmp_path, "auto").kind == "embedded"
    with pytest.raises(CompbenchError, match=r"there is no cube-single-play-v0\.npz"):
        choose(tmp_path, "official")
    (tmp_path / cube_trajectories.FILE).write_bytes(b"")
    assert choose(tmp_path, "auto").kind == "official"
    assert choose(tmp_path, "embedded").kind == "embedded"


def test_choose_names_the_install_line_where_the_simulator_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cube_trajectories, "find_spec", lambda name: None)
    with pytest.raises(CompbenchError, match=r"pip install 'compbench\[planning\]'"):
        choose(tmp_path, "auto")


@pytest.mark.usefixtures("simulator")
def test_the_official_files_fingerprint_is_that_of_its_content_whatever_its_time_and_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cube_trajectories, "OFFICIAL_FOLDER", tmp_path / "nowhere")
    content = {"first": b"trajectories", "copied": b"trajectories", "other": b"trajectoriez"}
    found = {}
    for age, (name, held) in enumerate(content.items()):
        path = tmp_path / name / cube_trajectories.FILE
        path.parent.mkdir()
        path.write_bytes(held)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
        found[name] = choose(path.parent, "official").fingerprint
    assert found["first"] == found["copied"] != found["other"]
    os.utime(tmp_path / "first" / cube_trajectories.FILE, (5, 5))
    assert choose(tmp_path / "first", "official").fingerprint == found["copied"]


@pytest.mark.usefixtures("simulator")
def test_an_official_file_that_is_not_the_one_of_its_first_use_is_named(tmp_path: Path) -> None:
    path = tmp_path / cube_trajectories.FILE
    path.write_bytes(b"trajectories")
    choose(tmp_path, "official")
    path.write_bytes(b"trajectoriez")
    os.utime(path, (5, 5))
    with pytest.raises(CompbenchError, match="first use"):
        choose(tmp_path, "official")
