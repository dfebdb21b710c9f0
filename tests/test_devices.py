import os
import re
import shutil
from pathlib import Path

import pytest

from compbench import devices
from compbench.cli import options
from compbench.devices import core_ticks, cores_busy, cores_taken, num_cores


def stat(busy: int, idle: int, cores: int) -> str:
    """A table as Linux keeps it: user nice system idle iowait irq softirq steal guest guest_nice."""
    lines = [f"cpu{core} {busy} 0 0 {idle} 0 0 0 0 0 0" for core in range(cores)]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 12345 0", "ctxt 99"])


def test_busy_ticks_of_own_cores_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "stat"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2}, raising=False)
    looks = []
    for busy, idle in ((100, 500), (130, 510), (130, 510)):
        table.write_text(stat(busy=busy, idle=idle, cores=4))
        looks.append(core_ticks(table))
    assert looks[0] == {0: (100, 500), 2: (100, 500)}
    assert cores_busy(*looks[:2]) == pytest.approx(2 * 30 / 40)
    assert cores_busy(*looks[1:]) == 0
    assert core_ticks(tmp_path / "none") == {}
    assert cores_busy({}, looks[0]) == 0


def test_cores_taken_of_this_machine_is_a_number_of_its_cores() -> None:
    assert 0 <= cores_taken(0.02) <= num_cores()


@pytest.mark.parametrize(
    ("taken", "threads", "slots", "device", "words"),
    [
        (1.0, 0, 1, "cpu", "1.0 of 2 cores busy: speeds will be of a busy machine; threads that wait .* so --threads 1 is safer"),
        (1.0, 1, 1, "auto", ""),
        (1.0, 0, 2, "auto", r"busy machine\.$"),
        (1.8, 1, 1, "auto", r"1.8 of 2 cores busy: speeds will be of a busy machine\.$"),
        (0.2, 0, 1, "auto", ""),
        (2.0, 0, 1, "cuda", ""),
    ],
)
def test_a_busy_machine_is_told_before_a_run(
    taken: float,
    threads: int,
    slots: int,
    device: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(devices, "cores_taken", lambda: taken)
    monkeypatch.setattr(devices, "num_cores", lambda: 2)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    options.warn_if_busy(device, threads=threads, slots=slots, remedy="--threads 1")
    told = capsys.readouterr().err.strip()
    assert re.search(words, told) if words else told == ""


def test_cuda_is_not_loaded_where_no_gpu_has_a_device_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    started = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: started.append(True))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(started))
    (tmp_path / "null").touch()
    assert not devices.start_cuda(tmp_path)
    assert not started
    (tmp_path / "nvidia0").touch()
    assert devices.start_cuda(tmp_path)
