from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.api.context import PRESETS
from compbench.api.interfaces import Budget
from compbench.cli.main import main
from compbench.registry.registry import Registry
from compbench.registry.resolve import configured
from compbench.sweep.existing import Known
from compbench.sweep.grid import Grid, default_preset, grids, read, shipped
from compbench.sweep.parse import names, parse_seeds
from compbench.system.errors import CompbenchError


def test_a_grid_is_every_combination_of_its_settings() -> None:
    grid = Grid(methods="fkc", tasks="gmm-id", set={"a": [1, 2], "b": "x", "c": [[3, 4]]})
    assert grid.overrides() == [{"a": 1, "b": "x", "c": [3, 4]}, {"a": 2, "b": "x", "c": [3, 4]}]
    assert Grid(methods="fkc", tasks="gmm-id").overrides() == [{}]


def test_a_file_is_run_at_the_one_preset_that_it_has(tmp_path: Path) -> None:
    grid = '[[{}]]\nmethods = "fkc"\ntasks = "gmm-id"\n'
    for presets, expected in {
        ("smoke", "standard"): "standard",
        ("quick", "paper"): "quick",
        ("standard", "paper"): "quick",
    }.items():
        path = tmp_path / f"{'-'.join(presets)}.toml"
        path.write_text("".join(map(grid.format, presets)))
        assert default_preset(str(path)) == expected
    assert default_preset("core") == "standard"


SHIPPED = [(name, preset) for name in shipped() for preset in PRESETS if getattr(read(name), preset)]


@pytest.mark.parametrize("name", ["core", "extended"])
def test_a_suite_of_one_board_leaves_its_precision_to_no_machine(name: str) -> None:
    assert {grid.precision for own, preset in SHIPPED if own == name for grid in grids(name, preset)} == {"bf16"}


def test_every_shipped_file_has_a_smoke_grid() -> None:
    assert {name for name, preset in SHIPPED if preset == "smoke"} == set(shipped())


@pytest.mark.parametrize(("name", "preset"), SHIPPED)
def test_shipped_files_name_what_there_is(name: str, preset: str) -> None:
    registry = Registry()
    for grid in grids(name, preset):
        tasks = [registry.load("tasks", task) for task in names("tasks", grid.tasks, ())]
        methods = [registry.load("methods", method) for method in names("methods", grid.methods, ())]
        assert parse_seeds(grid.seeds)
        for overrides in grid.overrides():
            own = {key: value for key, value in overrides.items() if "." not in key}
            assert all(method.settings(**own) for method in methods)
            changed = {key: value for key, value in overrides.items() if key.startswith("task.")}
            assert all(configured(task, changed).budgets for task in tasks)
            for kind, name in (key.split(".") for key in overrides if "." in key):
                fields = [Budget.model_fields] if kind == "budget" else [type(task.settings).model_fields for task in tasks]
                assert all(name in known for known in fields)


def test_the_papers_tables_have_its_grid() -> None:
    """Four (table 1) and two (table 2) tasks, N in 100, 1000, 10000 and the oracle, five K, 30 runs."""
    for name, tasks in (("weighted-table1", 4), ("weighted-table2", 2)):
        oracle, *_, learned = grids(name, "paper")
        assert len(names("tasks", learned.tasks, ())) == tasks
        assert len(learned.overrides()) == 15
        assert len(oracle.overrides()) == 5
        assert len(parse_seeds(learned.seeds)) == 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[quick]\n", "is not TOML"),
        ("[[quick]]\nmethods = 'fkc'\n", r"quick\.0\.tasks: Field required"),
        ("[[quick]]\nmethods = 'fkc'\ntasks = 'a'\nseed = 1\n", r"quick\.0: no key named 'seed'. Did you mean 'seeds'"),
        ("grids = 1\n", r"mine.toml: no key named 'grids'. Known: paper, quick, smoke, standard, title\.$"),
        ("[[quick]]\nmethods = 'fkc'\ntasks = 'a'\nset = {b = []}\n", r"quick\.0\.set: .*b = \[\] has no value"),
        ("[[quick]]\nmethods = 'fkc'\ntasks = 'a'\nset = {b = [2024-01-01]}\n", r"quick\.0\.set: .*b has a date"),
        (
            f"[[quick]]\nmethods = 'fkc'\ntasks = 'a'\nset = {{b = {'[' * 99}{']' * 99}}}\n",
            r"b is nested more than 16 levels deep",
        ),
    ],
)
def test_a_wrong_file_is_told_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CompbenchError, match=message):
        read(str(path))


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_grid_of_pairs_that_cannot_work_is_not_one_of_which_nothing_is_missing(words, tmp_path: Path, monkeypatch) -> None:
    not_on = {"soup": {"gmm-id": "the task has one silo"}}
    monkeypatch.setattr("compbench.sweep.matrix.RunFacts.matrix", lambda own, plugins: not_on)
    path = tmp_path / "mine.toml"
    path.write_text("[[quick]]\nmethods = 'soup'\ntasks = 'gmm-id'\napplicable = true\n")
    done = CliRunner().invoke(main, ["sweep", "--file", str(path), *words], env={"COMPBENCH_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert "no pair of these methods and tasks can work together; `compbench list --matrix` says why" in done.output


@pytest.mark.parametrize(
    ("tasks", "words", "left", "note"),
    [
        ("emoji-light,glyph-light,gmm-id", (), "0 of 1 runs", "not installed: emoji-light, glyph-light. To run them too: {}"),
        ("gmm-id,emoji-light", ("--task", "emoji-*,gmm-id"), "0 of 1 runs", "pip install 'compbench[emoji]'"),
        ("gmm-id,emoji-light", ("--task", "emoji-light"), "0 of 1 runs", ""),  # named in full: it fails when it runs
        ("emoji-*", (), "", "all these tasks need packages that are not installed"),
    ],
)
def test_tasks_whose_packages_are_missing_are_left_out_of_a_file_with_one_note(
    tasks: str, words: tuple[str, ...], left: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compbench.registry.declared.is_installed", lambda package: package not in ("fonttools", "matplotlib"))
    monkeypatch.setattr("compbench.cli.sweep.known", lambda asked, *given, every: [Known() for _ in asked])
    path = tmp_path / "mine.toml"
    path.write_text(f"[[quick]]\nmethods = 'mono'\ntasks = '{tasks}'\n")
    done = CliRunner().invoke(
        main, ["sweep", "--file", str(path), "--dry-run", *words], env={"COMPBENCH_HOME": str(tmp_path / "home")}
    )
    assert done.exit_code == (0 if left else 2), done.output
    assert left in done.output
    assert note.format("pip install 'compbench[emoji]' 'compbench[glyphs]'") in done.output
    assert done.output.count("pip install") == bool(note)


def test_an_unknown_name_or_preset_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="weighted-table1"):
        read("weighted-tabel1")
    with pytest.raises(CompbenchError, match="no such file"):
        read(str(tmp_path / "none.toml"))
    path = tmp_path / "mine.toml"
    path.write_text("[[paper]]\nmethods = 'fkc'\ntasks = 'gmm-id'\n")
    with pytest.raises(CompbenchError, match="no grid for --preset quick; it has paper"):
        grids(str(path), "quick")
