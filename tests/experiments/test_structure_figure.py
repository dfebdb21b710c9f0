"""Structure against share: which runs count, correlations of known orders, seeds that stay together, and too few records."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from structure import FEWEST, Run, correlation, figure, points, runs
from support.sample_records import record, score

from compbench.api.schemas import Structure
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


def found(shares: list[float], *, sign: float = 1.0, seeds: int = 2) -> list[Run]:
    return [
        Run("dsprites-light", f"method {number}", seed, share + 0.001 * seed, sign * share + 0.0005 * seed, 1 - share, "quick")
        for number, share in enumerate(shares)
        for seed in range(seeds)
    ]


def r2(run: Run) -> float | None:
    return run.r2


def test_equal_orders_correlate_at_one_and_opposite_ones_at_minus_one() -> None:
    shares = [0.1 * k for k in range(FEWEST)]
    one = correlation(points(found(shares), r2))
    assert (one.value, one.low, one.high) == (pytest.approx(1), pytest.approx(1), pytest.approx(1))
    assert (one.num_runs, one.num_pairs) == (2 * FEWEST, FEWEST)
    assert correlation(points(found(shares, sign=-1.0, seeds=1), r2)).value == pytest.approx(-1)


def test_the_interval_is_of_methods_and_not_of_their_seeds() -> None:
    shares = [0.3, 0.9, 0.1, 0.7, 0.5, 0.2, 0.8, 0.4, 0.6, 0.35]
    runs_of = [run._replace(r2=0.1 * (int(run.method.split()[1]) % 10)) for run in found(shares, seeds=1)]
    few = correlation(points(runs_of, r2))
    many = correlation(points([run._replace(seed=seed) for run in runs_of for seed in range(20)], r2))
    assert few.low < 0 < few.high
    assert many.high - many.low == pytest.approx(few.high - few.low, abs=0.1)


def test_within_tasks_a_difference_between_tasks_does_not_count() -> None:
    easy = [
        run._replace(task="easy", share=run.share + 5, r2=(run.r2 or 0) + 5)
        for run in found([0.1 * k for k in range(10)], sign=-1)
    ]
    hard = found([0.1 * k for k in range(10)], sign=-1)
    assert correlation(points([*easy, *hard], r2)).value > 0
    assert correlation(points([*easy, *hard], r2, within=True)).value < -0.9


def test_too_few_records_are_said_in_one_line() -> None:
    with pytest.raises(
        CompbenchError, match=f"9 pairs of method and task have a structure and a share, but a correlation needs {FEWEST}"
    ):
        correlation(points(found([0.1 * k for k in range(9)]), r2))
    with pytest.raises(CompbenchError, match="no correlation"):
        correlation(points([run._replace(r2=1.0) for run in found([0.1 * k for k in range(10)])], r2))


def test_only_runs_with_a_structure_and_a_scale_count_and_the_picture_is_written(tmp_path: Path) -> None:
    store, known = Store(tmp_path / "records"), {"layer": "leave", "num_cells": 10, "num_units": 5, "num_effects": 3}
    own = {"structure": Structure(r2=0.9, cosine=0.2, **known)}
    good = score(value=0.5, ceiling=1.0)
    store.write(record(good, seed=1, more=own))
    store.write(record(good, seed=2))
    store.write(record(good, seed=3, more=own, task_settings={"shots": 4}))
    store.write(record(status="failed", seed=4, more=own))
    (one,) = runs(store.folder)
    assert (one.task, one.method, one.seed, one.r2, one.cosine) == ("shapes3d-heavy", "factored", 1, 0.9, 0.2)
    assert one.share == pytest.approx((0.5 - 1 / 30) / (1 - 1 / 30), abs=1e-5)
    with pytest.raises(CompbenchError, match="there are no records"):
        runs(tmp_path / "none")
    drawn = figure(found([0.1, 0.2]), ["a", "b"])
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert drawn.count("<circle") == 2 * 4 + 1  # two plots of two methods with two seeds, and the legend's
