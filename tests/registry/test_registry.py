import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from compbench.api.interfaces import Method, MethodSettings
from compbench.registry import registry
from compbench.registry.registry import CLASSES, Registry, _check_classes
from compbench.system.errors import CompbenchError


def registry_of(path: Path) -> Registry:
    return Registry((path,))


def test_list_and_help_import_no_torch_numpy_or_pandas() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom compbench.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(main, ['list']).exit_code == 0\n"
        "print([name for name in ('torch', 'numpy', 'pandas', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tasks_and_metrics_are_loaded_without_torch_or_numpy() -> None:
    """The parent of runs, the board and `info` load them in a process that needs neither."""
    code = (
        "import sys\nfrom compbench.registry.registry import Registry\nregistry = Registry()\n"
        "print([registry.load(kind, name).name for kind in ('tasks', 'metrics') for name in registry.names(kind)"
        " if {'torch', 'numpy', 'scipy'} & sys.modules.keys()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_hold_the_first_party_methods_tasks_and_metrics() -> None:
    registry = Registry()
    assert {"mono", "factored", "slice-cfg"} <= set(registry.names("methods"))
    assert {"shapes3d-heavy", "mpi3d-extend"} <= set(registry.names("tasks"))
    assert {"accuracy", "fid", "fd_judge", "kid", "precision", "recall"} <= set(registry.names("metrics"))


def test_every_entry_has_a_summary_of_its_own() -> None:
    registry = Registry()
    for kind in ("methods", "tasks", "metrics"):
        summaries = [entry.summary for entry in registry.entries(kind)]
        assert all(summaries)
        assert len(set(summaries)) == len(summaries)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(CompbenchError, match="no method named 'slice_cfg'. Did you mean 'slice-cfg'"):
        Registry().entry("methods", "slice_cfg")


def test_a_good_file_is_ok(plugin) -> None:
    registry = registry_of(plugin())
    assert registry.attempt(registry.entry("methods", "naughty")).state == "ok"


@pytest.mark.parametrize(
    ("head", "state", "reason"),
    [
        ("raise ValueError('no luck')", "broken", "ValueError: no luck"),
        ("import sys; sys.exit(3)", "broken", "SystemExit"),
        ("import a_package_that_no_one_has", "incompatible", "by `pip install a_package_that_no_one_has`"),
        ("import json.nothing", "broken", "imports 'json.nothing', and the installed 'json' has no such module"),
        ("import compbench.flow.netz", "broken", "imports 'compbench.flow.netz', and the installed 'compbench' has no such"),
        ("raise ModuleNotFoundError('no luck')", "broken", "ModuleNotFoundError: no luck"),
        ("COMPBENCH_API = 99", "incompatible", "COMPBENCH_API 99"),
        ("@hookimpl\ndef compbench_method():\n    return ()", "broken", "misspelt hook"),
    ],
)
def test_a_bad_file_is_reported_with_its_reason(plugin, head: str, state: str, reason: str) -> None:
    registry = registry_of(plugin(head=head))
    loaded = registry.attempt(registry.entry("methods", "naughty"))
    assert loaded.state == state
    assert reason in loaded.reason


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("Method('naughty', Settings, fit, sample)", "Method"),
        ("'naughty'", "str"),
        ("(type('Like', (), {'name': 'naughty'})(),)", "a tuple with Like in it"),
        ("[Method('naughty', Settings, fit, sample), 3]", "a list with int in it"),
    ],
)
def test_a_hook_that_returns_something_else_is_broken(plugin, returned: str, found: str) -> None:
    path = plugin()
    path.write_text(path.read_text().partition("    return (Method(")[0] + f"    return {returned}\n")
    loaded = registry_of(path).attempt(registry_of(path).entry("methods", "naughty"))
    assert (loaded.state, loaded.reason) == ("broken", f"compbench_methods() must return a tuple of Method, got {found}.")


def test_the_classes_that_hooks_return_are_the_installed_ones() -> None:
    assert [pkgutil.resolve_name(name).__name__ for name in CLASSES.values()] == ["Method", "Task", "Metric", "Executor"]
    registry = Registry()
    states = {registry.attempt(entry).state for kind in CLASSES for entry in registry.entries(kind) if kind != "methods"}
    assert states <= {"ok", "incompatible"}


def test_a_file_that_does_not_parse_is_broken_before_it_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "naughty.py"
    path.write_text("def (:\n")
    assert "SyntaxError" in registry_of(path).entry("methods", "naughty").problem


def test_two_plugins_of_one_name_are_an_error_that_names_both(tmp_path: Path, plugin) -> None:
    other = tmp_path / "other" / "naughty.py"
    other.parent.mkdir()
    other.write_text(plugin().read_text())
    entry = Registry((plugin(), other)).entry("methods", "naughty")
    assert str(other) in entry.problem
    assert "uninstall one" in entry.problem


def test_the_hash_follows_the_file(plugin) -> None:
    one = registry_of(plugin()).entry("methods", "naughty").sha256
    two = registry_of(plugin(fit="return 1")).entry("methods", "naughty").sha256
    assert one != two


@pytest.mark.parametrize("field", ["fit", "sample", "build", "extend", "evaluations", "shared_fit"])
def test_a_field_of_a_method_that_is_no_function_is_one_line(field: str) -> None:
    own = {"fit": print, "sample": print, field: 3}
    with pytest.raises(CompbenchError, match=f"^{field} of method 'odd' must be a function, got 3.$"):
        _check_classes((Method(name="odd", settings=MethodSettings, **own),), "methods")


def test_a_plugin_that_is_installed_meanwhile_is_seen_and_others_are_not_located_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    before = Registry().names("tasks")
    located = []
    monkeypatch.setattr("compbench.registry.registry._locate", lambda module: located.append(module))
    assert Registry().names("tasks") == before
    assert located == []
    described = tmp_path / "late-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[compbench.tasks]\ncomes-late = late\n")
    assert set(Registry().names("tasks")) == {*before, "comes-late"}
    assert "late" in located


def test_a_registry_loads_a_sound_plugin_once_and_a_file_each_time(plugin) -> None:
    registry = Registry((file := plugin(),))
    assert registry.load("tasks", "gmm-id") is registry.load("tasks", "gmm-id")
    name = file.stem.replace("_", "-")
    assert registry.load("methods", name) is not registry.load("methods", name)


def test_the_hook_of_a_module_with_several_tasks_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    offered = registry._offered
    monkeypatch.setattr(registry, "_offered", lambda module, entry: called.append(entry.name) or offered(module, entry))
    known = Registry()
    several = [entry for entry in known.entries("tasks") if entry.module == "compbench.tasks.constraints"]
    assert [known.attempt(entry).value.name for entry in several] == [entry.name for entry in several]
    assert (len(several) > 2, len(called)) == (True, 1)
