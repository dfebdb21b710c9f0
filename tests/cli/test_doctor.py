"""What `compbench doctor` says of machines of every sort, and of this one."""

from __future__ import annotations

import json
import math
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from compbench.cli import doctor
from compbench.cli.main import main
from compbench.diagnose import device_probe
from compbench.registry.declared import is_installed, packages_of
from compbench.system import devices
from compbench.system.home import Home

WELL: dict[str, Any] = {
    **{"torch": "2.15", "cuda_of_torch": "13.2", "cuda_started": True, "sandbox": "landlock", "compiles": True, "works": True},
    **{"device": "cuda:0", "name": "NVIDIA H100", "free_bytes": 70 << 30, "total_bytes": 80 << 30, "count": 1},
}


def findings(home: Path, **changes: Any) -> dict[str, doctor.Finding]:
    found = doctor.examine(Home(home), "auto", try_device=lambda device: {**WELL, **changes})
    return {finding.subject: finding for finding in found}


@pytest.fixture(autouse=True)
def calm_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cores_of_others", lambda: 0.0)


def test_eleven_lines_say_all_that_a_user_needs(tmp_path: Path) -> None:
    found = findings(tmp_path)
    subjects = ["compbench", "device", "others", "driver", "compiler", "sandbox", "caches", "disk", "extras", "data", "plugins"]
    assert list(found) == subjects
    assert "cuda:0 of 1: NVIDIA H100, 70 of 80 GiB free" in found["device"].state
    assert not any(found[subject].advice for subject in ("device", "others", "compiler", "sandbox", "caches", "plugins"))


@pytest.mark.parametrize(
    ("changes", "subject", "advice"),
    [
        ({"error": "RuntimeError: CUDA error 304"}, "device", "--device cpu"),
        ({"error": "ModuleNotFoundError: No module named 'torch'"}, "device", "compbench[run]"),
        ({"works": False}, "device", "another device"),
        ({"compiles": False}, "compiler", "install"),
        ({"sandbox": "off"}, "sandbox", "unset COMPBENCH_SANDBOX"),
        ({"sandbox": "none"}, "sandbox", "Landlock"),
    ],
)
def test_each_thing_that_is_missing_comes_with_what_to_do(
    changes: dict[str, Any], subject: str, advice: str, tmp_path: Path
) -> None:
    assert advice in findings(tmp_path, **changes)[subject].advice


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no locks" not in findings(tmp_path)["caches"].state
    monkeypatch.setattr(doctor, "lock", lambda file, wait: False)
    assert "this file system has no locks, so two runs at the same time may both make" in findings(tmp_path)["caches"].state


def test_a_compiler_without_a_device_to_try_it_on_is_not_called_broken(tmp_path: Path) -> None:
    found = doctor.examine(Home(tmp_path), "cuda", try_device=lambda device: {"error": "there is no CUDA device"})
    compiler = next(finding for finding in found if finding.subject == "compiler")
    assert (compiler.state[:9], compiler.advice) == ("not tried", "")


def test_a_driver_that_does_not_start_is_told_from_a_torch_without_cuda(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Sep  2\nGCC version: 12\n")
    fine = doctor._driver(WELL, version)
    assert (fine.state, fine.advice) == ("NVIDIA 580.159.03, torch built for CUDA 13.2", "")
    assert "newer driver" in doctor._driver({**WELL, "cuda_started": False}, version).advice
    assert "for CPUs" in doctor._driver({**WELL, "cuda_started": False, "cuda_of_torch": None}, version).advice
    assert doctor._driver(WELL, tmp_path / "none").state == "no NVIDIA driver"


def test_extras_say_what_is_here_and_what_lacks_and_none_is_for_a_gpu_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ot" or None)
    extras = doctor._extras(gpu=False)
    assert extras.state.startswith("have transport; lack run, digits, emoji")
    assert "gpu" not in extras.state + extras.advice
    assert "gpu" in doctor._extras(gpu=True).advice
    assert "slurm" in extras.state
    assert extras.advice == "pip install 'compbench[run,digits,emoji,glyphs,planning,fid,features,figures,export]'"


def test_doctor_knows_every_extra_and_the_modules_by_which_it_is_found() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(doctor.EXTRAS) == set(pyproject["project"]["optional-dependencies"])
    assert set(doctor.ON_DEMAND) < set(doctor.EXTRAS)
    here = [name for name in doctor.EXTRAS if all(map(is_installed, packages_of("compbench", name)))]
    assert {module for name in here for module in doctor.EXTRAS[name] if find_spec(module) is None} == set()


def test_the_compiler_is_tried_on_demand_only(tmp_path: Path) -> None:
    asked = []

    def try_device(**options: Any) -> dict[str, Any]:
        asked.append(options)
        return {name: value for name, value in WELL.items() if name != "compiles" or "try_compiler" in options}

    for try_compiler in (False, True):
        list(doctor.examine(Home(tmp_path), "auto", try_compiler=try_compiler, try_device=try_device))
    assert asked == [{"device": "auto"}, {"device": "auto", "try_compiler": True}]


@pytest.mark.parametrize(("busy", "advice"), [(0.2, ""), (1.4, "--threads 3"), (4.0, "--threads 1")])
def test_a_busy_machine_comes_with_how_many_threads_it_has_room_for(
    busy: float, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "num_cores", lambda: 4)
    monkeypatch.setattr(devices, "cores_of_others", lambda: busy)
    found = doctor._others()
    assert f"{busy:.1f} of 4 cores" in found.state
    assert (advice in found.advice, bool(found.advice)) == (True, bool(advice))


def test_a_system_that_does_not_say_how_busy_it_is_is_not_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cores_of_others", lambda: math.nan)
    assert (doctor._others().state[:12], doctor._others().advice) == ("not measured", "")


def test_a_home_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "COMPBENCH_HOME" in findings(tmp_path / "file" / "home")["caches"].advice


def test_the_exit_status_says_whether_runs_will_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    for facts, status in ((WELL, 0), ({"error": "no device"}, 1)):
        monkeypatch.setattr(device_probe, "probe", lambda device, facts=facts: facts)
        done = CliRunner().invoke(main, ["doctor", "--json"])
        assert done.exit_code == status
        assert len(json.loads(done.stdout)) == 11


def test_the_exit_status_is_1_where_no_run_can_be_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def forbidden(*given: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.setattr(device_probe, "probe", lambda device: WELL)
    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", forbidden)
    done = CliRunner().invoke(main, ["doctor"])
    assert (done.exit_code, "! caches" in done.stdout) == (1, True), done.output


def test_this_machine_s_device_is_tried_inside_the_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # compiling takes long and has tests of its own
    found = device_probe.probe(device="cpu")
    assert found["device"] == found["name"] == "cpu"
    assert found["works"]
    assert found["torch"] == torch.__version__
    assert "error" in device_probe.probe(device="cuda:7")
