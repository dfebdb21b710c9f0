"""Tables of several tasks side by side: what a row and a cell hold, and that the README has the figures of the records."""

from __future__ import annotations

import re

import pytest
import results_tables
from results_tables import Quantity, Table, each, means, score
from support.sample_records import record
from support.sample_records import score as scored

from compbench.board.scale import scales

HELD_OUT = score("heldout_accuracy")


def runs(method: str, *values: float, task: str = "shapes3d-heavy", settings: dict[str, object] | None = None) -> list:
    return [
        record(scored(value=value, primary=True), method=method, task=task, seed=seed, preset="standard", settings=settings or {})
        for seed, value in enumerate(values)
    ]


def table(**facts) -> Table:
    return Table(("held out",), ((Quantity("shapes3d-heavy", HELD_OUT, ".2f"),),), **facts)


def test_rows_are_the_methods_that_ran_every_task_best_first_and_say_where_seeds_are_fewer() -> None:
    both = table()._replace(
        heads=("heavy", "light"), cells=tuple((Quantity(f"shapes3d-{name}", HELD_OUT, ".2f"),) for name in ("heavy", "light"))
    )
    records = runs("mono", 0.2, 0.4) + runs("mono", 0.8, 0.9, task="shapes3d-light")
    records += runs("factored", 0.5) + runs("factored", 0.7, 0.9, task="shapes3d-light") + runs("alone", 0.9)
    assert results_tables.written(both, records).splitlines()[2:] == [
        "| `factored` (one seed) | 0.50 | 0.80 |",
        "| `mono` | 0.30 | 0.85 |",
    ]


def test_a_row_with_more_seeds_than_most_says_so_too() -> None:
    records = runs("mono", 0.2, 0.4) + runs("factored", 0.5, 0.7, 0.6) + runs("low-rank", 0.1, 0.3)
    rows = results_tables.written(table(), records).splitlines()[2:]
    assert rows == ["| `factored` (three seeds) | 0.60 |", "| `mono` | 0.30 |", "| `low-rank` | 0.20 |"]


def test_an_ablation_is_a_row_of_its_own_and_not_a_part_of_the_default() -> None:
    from claims import Side

    records = runs("fedflow", 0.4, 0.6, settings={"rounds": 20}) + runs("fedflow", 0.1, settings={"rounds": 4})
    assert results_tables.written(table(), records).splitlines()[2:] == ["| `fedflow` | 0.50 |"]
    own = results_tables.written(table(rows=(Side("fedflow", {"rounds": 4}),)), records)
    assert own.splitlines()[2:] == ["| `fedflow`, 4 rounds | 0.10 |"]


def test_a_row_of_an_older_version_says_so() -> None:
    own = results_tables.written(table(), runs("mono", 0.2, 0.4), {"mono": 3})
    assert own.splitlines()[2:] == ["| `mono` (version 1, now 3) | 0.30 |"]


@pytest.mark.parametrize(("show", "said"), [(each, "0.10, 0.20, 0.30"), (means, "0.20")])
def test_a_cell_is_a_value_a_seed_or_a_mean(show, said: str) -> None:
    assert show([0.1, 0.2, 0.3], ".2f") == said


def test_twins_are_runs_of_one_spec_on_two_kinds_of_devices() -> None:
    on_cpu, other = runs("mono", 0.2, 0.4)
    on_gpu = record(scored(value=0.3, primary=True), method="mono", preset="standard", settings={}, device_class="cuda")
    assert results_tables.twins([on_gpu, on_cpu, other]) == [(on_cpu, on_gpu)]


def test_the_readme_has_the_figures_of_the_published_records() -> None:
    shown = results_tables.written(results_tables.tables()["images"], results_tables.published(results_tables.RECORDS))
    readme = (results_tables.ROOT / "README.md").read_text("utf-8")
    said = re.findall(r"\| `([a-z-]+)`[^|]* \| (\d\.\d\d) \| (\d\.\d\d) \| (\d\.\d\d) \|", readme)
    assert len(said) == 5
    for method, *figures in said:
        [line] = [line for line in shown.splitlines() if line.startswith(f"| `{method}`")]
        assert re.findall(r"\| (\d\.\d\d),", line) == figures
    (chance,) = re.findall(r"a constant answer\s+gets\s+([\d., and]+);", readme)
    tasks = [f"shapes3d-{part}" for part in ("light", "medium", "heavy")]
    assert re.findall(r"\d\.\d\d", chance) == [f"{scales()[task]['zero']:.2f}" for task in tasks]
