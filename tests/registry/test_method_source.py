"""Defaults that are read from source are those of the classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compbench.registry.method_source import default_settings_of, settings_class_of, version_of
from compbench.registry.registry import Registry

NAMES = Registry().names("methods")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_from_source_is_what_the_class_says(name: str) -> None:
    registry = Registry()
    loaded = registry.attempt(registry.entry("methods", name))
    if loaded.state != "ok":
        pytest.skip(loaded.reason)
    found, true = default_settings_of(loaded.entry), loaded.value.settings().model_dump()
    assert {key: true[key] for key in found} == found
    assert version_of(loaded.entry) == loaded.value.version


@pytest.mark.parametrize("name", NAMES)
def test_types_and_bounds_that_are_read_from_source_are_those_of_the_class(name: str) -> None:
    registry = Registry()
    loaded = registry.attempt(registry.entry("methods", name))
    read = settings_class_of(loaded.entry) if loaded.state == "ok" else None
    if read is None:
        pytest.skip("its settings class is not found in its source")
    found, true = (kind.model_json_schema() for kind in (read, loaded.value.settings))
    assert found.get("properties", {}).keys() == true.get("properties", {}).keys()
    for key, own in found.get("properties", {}).items():
        assert {part: true["properties"][key].get(part) for part in own} == own or not {"type", "anyOf", "enum"} & own.keys()


def test_most_of_the_shipped_methods_are_read_whole() -> None:
    registry = Registry()
    loaded = [registry.attempt(registry.entry("methods", name)) for name in NAMES]
    sound = [one for one in loaded if one.state == "ok"]
    whole = [one for one in sound if default_settings_of(one.entry).keys() == one.value.settings.model_fields.keys()]
    assert len(whole) >= 0.9 * len(loaded)
    assert sum(settings_class_of(one.entry) is not None for one in sound) >= 0.9 * len(loaded)


def test_a_setting_that_was_just_added_is_read_in_the_same_process(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    assert default_settings_of(Registry((file,)).entry("methods", "broken")) == {"weight": 1.0}
    file.write_text(BROKEN.replace("    weight: float = 1.0\n", "    weight: float = 1.0\n    bias: float = 0.5\n"))
    assert default_settings_of(Registry((file,)).entry("methods", "broken")) == {"weight": 1.0, "bias": 0.5}


LIGHT = """
import json, sys
from compbench.runner import processes
from compbench.cli.main import main
processes.Process.__init__ = lambda *given, **named: sys.exit("a process was started")
for words in json.loads(sys.argv[1]):
    try:
        main(["run", "--task", "gmm-ood", "--preset", "smoke", *words])
    except SystemExit as end:
        print(end.code, "torch" in sys.modules)
"""
BROKEN = """
from compbench import Method, MethodSettings, hookimpl
class Settings(MethodSettings):
    weight: float = 1.0
@hookimpl
def compbench_methods():
    return (Method(name="broken", settings=Settings, fit=3, sample=print),)
"""


def test_each_wrong_setting_or_method_is_one_line_before_torch_is_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(BROKEN)
    said = {
        "--method mono --set num_step=3": "compbench: no setting of method 'mono' named 'num_step'",
        "--method rne --set num_steps=-1": "--set num_steps=-1: it takes 1 <= integer <= 100000 or budget (",
        "--method mono --set budget.train_steps=0": "--set budget.train_steps=0: it takes 0 < integer",
        "--method mono --set task.shots=x": "task.shots",
        f"--method broken --plugin {broken}": "method 'broken' is broken: fit of method 'broken' must be a function, got 3.",
    }
    command = [sys.executable, "-c", LIGHT, json.dumps([words.split() for words in said])]
    environment = {**os.environ, "COMPBENCH_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    for expected, line in zip(said.values(), done.stderr.splitlines(), strict=True):
        assert expected in line
    assert done.stdout == "2 False\n" * len(said)
