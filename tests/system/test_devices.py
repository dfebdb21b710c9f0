import math
import os
import time
from pathlib import Path

import pytest
import torch

from compbench.data.process_pool import Workers
from compbench.gate.sides import Side
from compbench.runner.processes import environment
from compbench.system import devices
from compbench.system.devices import core_ticks, cores_busy, num_cores
from compbench.system.errors import CompbenchError


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


def test_cores_busy_on_this_machine_is_a_number_of_its_cores() -> None:
    before = core_ticks()
    time.sleep(0.05)
    assert 0 <= cores_busy(before, core_ticks()) <= num_cores()


def test_cores_of_others_are_not_a_number_where_no_table_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= devices.cores_of_others(0.05) <= num_cores()
    monkeypatch.setattr(devices, "core_ticks", dict)
    assert math.isnan(devices.cores_of_others(0.0))


@pytest.mark.parametrize(
    ("policy", "asked", "threads"), [("", 0, 1), ("ACTIVE", 0, 1), ("passive", 0, 2), ("", 2, 2), ("PASSIVE", 1, 1)]
)
def test_work_in_a_user_s_process_takes_threads_that_do_not_spin_and_gives_them_back(
    policy: str, asked: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    before, seen = torch.get_num_threads(), []

    @devices.own_threads(asked)
    def fails() -> None:
        seen.append(torch.get_num_threads())
        raise ZeroDivisionError

    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            fails()
        assert (seen, torch.get_num_threads()) == ([threads], 2)
    finally:
        torch.set_num_threads(before)


def variable(name: str) -> str:
    return os.environ.get(name, "")


def test_every_kind_of_child_has_its_threads_and_lets_them_sleep_while_they_wait(tmp_path: Path) -> None:
    side = Side("head", Path("python"), tmp_path).environment(2)
    run = environment(2)
    for name, value in devices.thread_variables(2).items():
        assert side[name] == run[name] == value
    with Workers(variable, 1) as workers:
        assert workers.map(["OMP_WAIT_POLICY", "OMP_NUM_THREADS"]) == ["PASSIVE", "1"]
    assert (run["OMP_WAIT_POLICY"], run["OMP_NUM_THREADS"]) == ("PASSIVE", "2")
    assert run["TORCHINDUCTOR_COMPILE_THREADS"] == "2"


@pytest.mark.parametrize(("busy", "threads", "calm"), [(0.0, 2, True), (0.9, 2, False), (0.9, 1, True), (math.nan, 1, False)])
def test_children_spin_for_a_moment_only_where_cores_are_left_for_their_threads(
    monkeypatch: pytest.MonkeyPatch, busy: float, threads: int, calm: bool
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setattr(devices, "cores_of_others", lambda seconds: busy)
    monkeypatch.setattr(devices, "num_cores", lambda: 2)
    assert devices.is_calm(threads) is calm
    assert environment(2, calm=True)["GOMP_SPINCOUNT"] == "10000"
    assert "GOMP_SPINCOUNT" not in {**environment(2), **environment(1, calm=True)}
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert environment(2, calm=True)["GOMP_SPINCOUNT"] == "7"


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


def test_a_cpu_has_no_tf32() -> None:
    import torch

    with pytest.raises(CompbenchError, match="use fp32 or bf16"):
        devices.precision("tf32", torch.device("cpu"))
    assert devices.precision("tf32", torch.device("cuda")) == "tf32"


@pytest.mark.parametrize(
    ("vendor", "flags", "fast"),
    [
        ("GenuineIntel", "avx2 avx512f", False),
        ("GenuineIntel", "avx512f avx512_bf16", False),  # AMX is hidden by the virtual machine, or not there
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16", True),
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx2", False),
    ],
)
def test_a_cpu_computes_in_bf16_where_that_is_faster(
    vendor: str, flags: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"vendor_id": vendor, "flags": flags}
    monkeypatch.setattr(devices, "_cpuinfo", lambda key: facts.get(key, ""))
    assert devices.has_fast_bf16(torch.device("cpu")) == fast
    assert devices.precision("auto", torch.device("cpu")) == ("bf16" if fast else "fp32")


def test_products_are_unrounded_inside_the_context_alone() -> None:
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [flag.allow_tf32 for flag in flags]
    try:
        for rounded in (True, False):
            for flag in flags:
                flag.allow_tf32 = rounded
            with devices.unrounded_products():
                assert not any(flag.allow_tf32 for flag in flags)
            assert all(flag.allow_tf32 == rounded for flag in flags)
    finally:
        for flag, was in zip(flags, before, strict=True):
            flag.allow_tf32 = was
