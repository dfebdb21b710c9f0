"""The code part of a run's identity: what changes it, and what does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import compbench
from compbench.registry import meaning
from compbench.registry.meaning import Code, code_of, of_definitions
from compbench.registry.registry import Entry, Registry
from compbench.registry.syntax import Module, parse
from compbench.system.errors import CompbenchError

ROOT = Path(compbench.__file__).parents[1]
SOLVING = ("mono", "factored", "slice-cfg", "centralised", "naive-ode", "naive-sde", "fkc", "ddm", "dfd", "dcfm-a", "fedflow")
DECODERS = ("cnn-decoder", "mlp-decoder", "pixel-decoder", "transformer-decoder")
METRICS = ("sw2", "mmd2", "mode_share")


class House:
    """A copy of compbench and of the methods, which tests may change; hashed as if it were installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.registry = folder, Registry()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "compbench", folder / "compbench", ignore=ignored)
        shutil.copytree(
            ROOT / "plugins" / "compbench-methods" / "compbench_methods", folder / "compbench_methods", ignore=ignored
        )

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        file = self.folder / path
        before = file.read_text()
        file.write_text(change(before))
        assert file.read_text() != before

    def entry(self, kind: str, name: str) -> Entry:
        entry = self.registry.entry(kind, name)
        return entry._replace(file=self.folder.joinpath(*entry.module.split(".")).with_suffix(".py"))

    def code(self, method: str = "mono", task: str = "gauss2d-fact-id") -> Code:
        roots = [("method", self.entry("methods", method)), ("task", self.entry("tasks", task))]
        return meaning.meaning(*roots, *(("metrics", self.entry("metrics", name)) for name in METRICS))


@pytest.fixture(scope="module")
def original() -> Code:
    """Of the code that every house is a copy of: `test_a_copy_elsewhere_is_the_same_code`."""
    return code_of(Registry(), method="mono", task="gauss2d-fact-id", metrics=METRICS)


@pytest.fixture(scope="module")
def executed() -> str:
    """Hash of all that a run of the original code executes."""
    return meaning.executed(Registry(), method="mono", task="gmm-id", metrics=METRICS)


@pytest.fixture(scope="module")
def parsed() -> Callable[..., Module]:
    """As `meaning._parse`, but a file that is copied and not changed is parsed once."""
    by_content = lru_cache(maxsize=None)(parse)

    def parsed(file: Path, name: str, *_: int) -> Module:
        return by_content(file.read_text(), name, is_package=file.name == "__init__.py")

    return parsed


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: Callable[..., Module]) -> House:
    found = House(tmp_path)
    monkeypatch.setattr(meaning, "_parse", parsed)
    monkeypatch.setattr(meaning, "compbench", SimpleNamespace(__file__=str(tmp_path / "compbench" / "__init__.py")))
    return found


def test_a_copy_elsewhere_is_the_same_code(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = house.code()
    monkeypatch.undo()
    assert copied == code_of(Registry(), method="mono", task="gauss2d-fact-id", metrics=METRICS)
    assert set(copied.parts) == {"method", "flow", "task", "data", "metrics", "core"}


def test_comments_docstrings_and_formatting_change_nothing(house: House, original: Code) -> None:
    for path in (
        "compbench_methods/mono.py",
        "compbench/flow/solver.py",
        "compbench/tasks/gaussian.py",
        "compbench/metrics/vector.py",
    ):
        house.edit(path, lambda source: source.replace('"""', '"""Otherwise said. ', 1) + "\n\n# a remark\n")
        house.edit(path, lambda source: source.replace("    return ", "    return  ", 1).replace("\n\n\n", "\n\n\n\n"))
    assert house.code() == original


def test_annotations_words_of_errors_and_descriptions_change_nothing(house: House, original: Code) -> None:
    house.edit("compbench/flow/solver.py", lambda source: source.replace("-> Tensor:", '-> "Tensor":'))
    house.edit("compbench/tasks/gaussian.py", lambda source: source.replace('description="', 'description="that is: '))
    house.edit("compbench/api/factors.py", lambda source: source.replace('CompbenchError(f"', 'CompbenchError(f"sorry: '))
    house.edit("compbench/tasks/gaussian.py", lambda source: source.replace("summary=", 'citation="me", summary='))
    assert house.code() == original


def test_an_edited_solver_changes_every_method_that_solves_and_no_decoder(house: House) -> None:
    before = {name: house.code(name) for name in (*SOLVING, *DECODERS)}
    for path in ("compbench/flow/solver.py", "compbench/flow/path.py"):
        house.edit(path, lambda source: source.replace("for k in range(", "for k in range(1 + ").replace("1 - t", "1.0 - t"))
    after = {name: house.code(name) for name in before}
    assert {name for name in before if after[name].digest != before[name].digest} == set(SOLVING)
    assert all(after[name].parts["method"] == before[name].parts["method"] for name in before)
    assert all(after[name].parts["flow"] != before[name].parts["flow"] for name in SOLVING)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("compbench_methods/mono.py", "method"),
        ("compbench/tasks/gaussian_evaluation.py", "task"),  # imported inside a function only
        ("compbench/data/gaussians.py", "data"),
        ("compbench/metrics/transport.py", "metrics"),  # imported inside a function only
        ("compbench/api/federation.py", "core"),
    ],
)
def test_a_changed_number_changes_the_part_that_it_is_in(house: House, original: Code, path: str, part: str) -> None:
    house.edit(path, lambda source: source.replace("return ", "return 0 or ", 400))
    after = house.code()
    assert after.digest != original.digest
    assert {name for name in original.parts if after.parts[name] != original.parts[name]} == {part}


def test_the_harness_around_changes_nothing(house: House, original: Code) -> None:
    for path in (
        "runner/one_run.py",
        "runner/referee.py",
        "store/records.py",
        "system/profiling.py",
        "system/devices.py",
        "board/build.py",
        "api/interfaces.py",
    ):
        house.edit(f"compbench/{path}", lambda source: source + "\n\nCHANGED = 1\n")
    assert house.code() == original


def test_a_moved_module_and_a_renamed_file_are_the_same_code(house: House, original: Code) -> None:
    for path in [*(house.folder / "compbench").rglob("*.py"), *(house.folder / "compbench_methods").glob("*.py")]:
        text = path.read_text()
        path.write_text(
            text.replace("compbench.flow.solver import", "compbench.flow.integration.ode import")
            .replace("compbench.flow.nets", "compbench.flow.backbones")
            .replace("compbench.data.gaussians", "compbench.tasks.normal")
        )
    (house.folder / "compbench" / "flow" / "integration").mkdir()
    for old, new in (
        ("flow/solver", "flow/integration/ode"),
        ("flow/nets", "flow/backbones"),
        ("data/gaussians", "tasks/normal"),
    ):
        shutil.move(house.folder / "compbench" / f"{old}.py", house.folder / "compbench" / f"{new}.py")
    after = house.code()
    assert after.digest == original.digest
    assert "normal" not in str(original)  # no name of a module is in it


def test_an_alias_is_no_other_code_and_another_function_under_the_alias_is(tmp_path: Path) -> None:
    def code(**files: str) -> str:
        folder = tmp_path / f"house-{len(list(tmp_path.iterdir()))}" / "acme"
        folder.mkdir(parents=True)
        for name, source in files.items():
            (folder / f"{name}.py").write_text(source)
        entry = Entry("methods", "fast", "acme", "1", "acme.fast", folder / "fast.py", "")
        return meaning.meaning(("method", entry)).digest

    parts = "def euler(x):\n    return x + 1\n\n\ndef heun(x):\n    return x + 2\n"
    plain = code(parts=parts, fast="from acme.parts import euler\n\n\ndef fit(x):\n    return euler(x)\n")
    assert code(parts=parts, fast="from .parts import euler as go\n\n\ndef fit(x):\n    return go(x)\n") == plain
    assert code(parts=parts, fast="def fit(x):\n    from acme import parts\n\n    return parts.euler(x)\n") == plain
    assert code(parts=parts, fast="import acme.parts\n\n\ndef fit(x):\n    return acme.parts.euler(x)\n") == plain
    assert code(parts=parts, fast="from acme.parts import heun as euler\n\n\ndef fit(x):\n    return euler(x)\n") != plain
    swapped = "from acme.parts import euler, heun\n\n\ndef fit(x):\n    return {0} (x) - {1}(x)\n"
    assert code(parts=parts, fast=swapped.format("euler", "heun")) != code(parts=parts, fast=swapped.format("heun", "euler"))
    unused = parts + "\n\ndef never(x):\n    return x\n"
    assert code(parts=unused, fast="from acme.parts import euler\n\n\ndef fit(x):\n    return euler(x)\n") == plain


def test_a_method_in_a_file_counts_whole_and_other_peoples_libraries_by_name(tmp_path: Path) -> None:
    def code(source: str, name: str = "one.py") -> str:
        (tmp_path / name).write_text(source)
        registry = Registry((tmp_path / name,))
        return code_of(registry, method=Path(name).stem.replace("_", "-"), task="blobs-iid", metrics=()).digest

    plain = code("import math\n\n\ndef fit(x):\n    return math.sin(x)\n")
    assert code("import math\n\n\ndef fit(x):\n    return math.sin(x)\n", "another_name.py") == plain
    assert code("import cmath as math\n\n\ndef fit(x):\n    return math.sin(x)\n") != plain
    assert code("from math import sin\n\n\ndef fit(x):\n    return sin(x)\n") == plain
    assert code("import math\n\n\ndef fit(x):\n    return math.cos(x)\n") != plain
    assert code("import math\n\nWEIGHT = 2\n\n\ndef fit(x):\n    return math.sin(x)\n") != plain


def test_what_is_changed_after_its_definition_counts(tmp_path: Path) -> None:
    one = parse("TABLE = {}\nTABLE['a'] = 1\n", "m").local("TABLE")[0]
    assert one != parse("TABLE = {}\nTABLE['a'] = 2\n", "m").local("TABLE")[0]
    assert one == parse("TABLE: dict = {}\nTABLE['a']  =  1  # one\n".replace(": dict", ""), "m").local("TABLE")[0]


def test_a_way_for_gpus_is_no_part_of_a_cpus_record(house: House, original: Code) -> None:
    def code(device_class: str) -> Code:
        registry = SimpleNamespace(entry=house.entry, names=lambda kind: METRICS)
        return code_of(registry, method="mono", task="gauss2d-fact-id", metrics=METRICS, device_class=device_class)

    before = code("NVIDIA H100 80GB HBM3")
    way = "from compbench.system.devices import on_gpu\n\n    if on_gpu(x.device):\n        return 0.0\n    total = 0.0\n"
    house.edit("compbench/metrics/transport.py", lambda source: source.replace("total = 0.0\n", way))
    assert code("cpu") == original
    after = code("NVIDIA H100 80GB HBM3")
    assert {name for name in before.parts if after.parts[name] != before.parts[name]} == {"metrics"}
    assert after.digest != before.digest


@pytest.mark.parametrize("home", ["compbench", "compbench.system.condition_counts"])
def test_to_say_what_a_loss_regresses_on_is_no_part_of_the_code_and_to_use_it_is(home: str) -> None:
    bare = parse(f"from {home} import regressed\ndef loss(batch): return batch.x1", "m").local("loss")

    def with_line(line: str) -> object:
        return parse(f"from {home} import regressed\ndef loss(batch):\n    {line}\n    return batch.x1", "m").local("loss")

    assert with_line("regressed(batch.condition)") == bare
    assert with_line("regressed(batch.pop())") != bare
    assert with_line("batch = regressed(batch)") != bare
    assert with_line("others(batch.condition)") != bare


def test_to_say_what_experts_regress_on_is_no_part_of_the_code_either() -> None:
    head = "from compbench.system.condition_counts import experts_regressed\ndef loss(batch, base):\n"
    bare = parse(f"{head}    return batch.x1", "m").local("loss")
    assert parse(f"{head}    experts_regressed(batch.condition, base)\n    return batch.x1", "m").local("loss") == bare


def test_a_statement_that_only_takes_a_lock_is_no_code() -> None:
    head = "import fcntl\nfrom compbench.system.files import lock as take\ndef unpack(file):\n"

    def with_line(line: str) -> object:
        return parse(f"{head}    {line}\n    return file.read()", "m").local("unpack")

    assert with_line("fcntl.flock(file, fcntl.LOCK_EX)") == with_line("take(file, wait=True)") == with_line("pass")
    for counts in ("fcntl.flock(file.pop(), fcntl.LOCK_EX)", "file = take(file, wait=True)", "take(file, wait=file)"):
        assert with_line(counts) != with_line("pass")


def test_a_text_that_a_lambda_returns_is_no_docstring() -> None:
    one, other = (parse(f"f = lambda: '{text}'", "m").local("f")[0] for text in ("seen", "heldout"))
    assert one != other
    assert parse("def f(): 'seen'", "m").local("f") == parse("def f(): 'heldout'", "m").local("f")


def test_a_local_name_is_no_reference(tmp_path: Path) -> None:
    source = "def path():\n    return 1\n\n\ndef f(path):\n    return path\n\n\ndef g():\n    return path\n"
    module = parse(source, "m")
    assert module.local("f")[1] == ()
    assert module.local("g")[1] == (("m", ("path",)),)


def test_a_cache_is_named_by_the_code_that_made_what_is_in_it(house: House) -> None:
    from compbench.metrics.judge import train_judge

    before = of_definitions(train_judge)
    house.edit("compbench/metrics/transport.py", lambda source: source.replace("return ", "return 0 or "))
    house.edit("compbench/metrics/judge.py", lambda source: source.replace('"""', '"""Said otherwise. ', 1))
    assert of_definitions(train_judge) == before
    house.edit("compbench/metrics/judge.py", lambda source: source.replace("return ", "return 0 or "))
    assert of_definitions(train_judge) != before
    assert of_definitions(Path) == of_definitions(Path) != of_definitions(SimpleNamespace)  # other people's: by name


def test_a_file_that_does_not_parse_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("def fit(:\n")
    entry = Entry("methods", "half", "here", "file", str(tmp_path / "half.py"), tmp_path / "half.py", "")
    with pytest.raises(CompbenchError, match=r"half\.py cannot be read as Python: "):
        meaning.meaning(("method", entry))


def all_of(house: House) -> str:
    """Hash of all that a run executes in the copy."""
    return meaning.executed(SimpleNamespace(entry=house.entry), method="mono", task="gmm-id", metrics=METRICS)


def test_the_hash_of_what_a_run_executes_ignores_comments_and_what_no_run_executes(house: House, executed: str) -> None:
    house.edit("compbench_methods/mono.py", lambda source: f"# a remark\n{source}")
    house.edit("compbench/gate/speed.py", lambda source: source.replace("return ", "return 0 or "))
    house.edit("compbench_methods/factored.py", lambda source: source.replace("return ", "return 0 or "))
    assert all_of(house) == executed


@pytest.mark.parametrize(
    "path",
    [
        "compbench_methods/mono.py",
        "compbench/flow/solver.py",
        "compbench/runner/referee.py",
        "compbench/runner/worker.py",
        "compbench/api/federation.py",
        "compbench/api/context.py",
        "compbench/metrics/transport.py",
    ],
)
def test_the_hash_of_what_a_run_executes_has_the_harness_in_it(house: House, executed: str, path: str) -> None:
    house.edit(path, lambda source: source.replace("return ", "return 0 or ", 400))
    assert all_of(house) != executed


def test_the_hash_of_what_a_run_executes_has_the_packages_in_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_of(house)
    newer = SimpleNamespace(metadata={"Name": "torch"}, version="99")
    monkeypatch.setattr(meaning.metadata, "distributions", lambda: [newer])
    assert all_of(house) != before
