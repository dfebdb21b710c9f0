"""Compiled code is kept for later seeds of the same run, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compbench.api.schemas import Plugin, Record, RunRequest
from compbench.runner import attempt
from compbench.runner.compiled_code import CODE_FILE, KeptCode, take_up
from compbench.runner.one_run import run
from compbench.system.plugin_folder import PluginFolder, lent_to


def smoke(home: Path, method: str = "stripes", **more: object) -> Record:
    request = RunRequest(method=method, task="bump-scaling", preset="smoke", device="cpu", threads=1, home=str(home), **more)
    record = run(request, in_process=True).record
    assert record.status == "ok", record.reason
    return record


def test_what_a_run_compiled_is_lent_to_other_seeds_of_it_and_to_no_other_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent: list[bytes] = []
    publish = attempt.Attempt._publish

    def looked_at(own: attempt.Attempt) -> None:
        place = lent_to(own.pair.contestant_folder) / CODE_FILE
        lent.append(place.read_bytes() if place.exists() else b"")
        (own.pair.contestant_folder / "run" / CODE_FILE).write_bytes(lent[-1] + b"more")
        publish(own)

    monkeypatch.setattr(attempt.Attempt, "_publish", looked_at)
    smoke(home, seed=3)
    smoke(home, seed=4)
    assert lent == [b"", b""]  # nothing compiles on a CPU: what a method leaves there is of its own making
    lent.clear()
    monkeypatch.setattr(attempt.Attempt, "_compiles", True)
    smoke(home)
    smoke(home, seed=1)
    smoke(home, seed=2)
    smoke(home, overrides={"budget.batch_size": 5})
    smoke(home, method="low-rank", overrides={"budget.train_steps": 2})
    assert lent == [b"", b"more", b"moremore", b"", b""]


def test_code_is_kept_by_method_file_and_machine(home: Path) -> None:
    spec, cache = smoke(home).spec, home / "cache"
    place = KeptCode(cache, spec, Plugin(distribution="d", file_sha256="1")).path
    assert KeptCode(cache, spec.model_copy(update={"seed": 7}), Plugin(distribution="d", file_sha256="1")).path == place
    others = [
        KeptCode(cache, spec, Plugin(distribution="d", file_sha256="2")),
        KeptCode(cache, spec, Plugin(distribution="e", file_sha256="1")),
        KeptCode(cache, spec.model_copy(update={"device_class": "another"}), Plugin(distribution="d", file_sha256="1")),
        KeptCode(cache, spec.model_copy(update={"code": "0" * 64}), Plugin(distribution="d", file_sha256="1")),
    ]
    assert len({place, *(other.path for other in others)}) == 5


def test_a_link_is_not_kept_and_damaged_code_is_compiled_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptCode(home / "cache", smoke(home).spec, Plugin())
    (tmp_path / "secret").write_bytes(b"of another run")
    (tmp_path / CODE_FILE).symlink_to(tmp_path / "secret")
    kept.keep(PluginFolder(tmp_path))
    assert not kept.path.exists()
    (tmp_path / CODE_FILE).unlink()
    assert not take_up(tmp_path)
    (tmp_path / CODE_FILE).write_bytes(b"damaged")
    assert not take_up(tmp_path)  # torch says why in its log

    if not hasattr(torch.compiler, "load_cache_artifacts"):  # before torch 2.7 there is nothing to keep
        return

    def fails(content: bytes) -> None:
        raise RuntimeError("of another driver")

    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", fails)
    with pytest.warns(UserWarning, match="cannot be loaded: of another driver"):
        assert not take_up(tmp_path)


SCRIPT = """
import sys, pathlib, torch
from torch._dynamo.utils import counters
from compbench.runner import compiled_code
folder = pathlib.Path(sys.argv[1])
found = compiled_code.take_up(folder)
torch.compile(lambda x: (x.sin() + x.cos()).square())(torch.ones(8))
compiled_code.leave(folder)
print(found, counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


@pytest.mark.slow
def test_another_process_with_empty_caches_compiles_nothing_again(tmp_path: Path, compiler: None) -> None:
    said = []
    for number in range(2):
        own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"cache{number}"), "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], env={**os.environ, **own}, capture_output=True, text=True, check=True
        )
        said.append(done.stdout.split())
    assert said == [["False", "0", "1"], ["True", "1", "0"]]
