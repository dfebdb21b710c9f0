"""The coverage ladder: its lowest rung is C_min, its designs are what they promise, and tasks take it."""

import itertools
import math
from collections import Counter

import pytest
from click.testing import CliRunner

from compbench.api.factors import Factor, FactorSpace, Holdout, identifiability, minimum_coverage
from compbench.cli.main import main
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks.coverage import CoverageSettings, Order, permuted, rungs, seen_cells

SIZES = [(4, 10), (10, 10), (2, 2, 2), (3, 8), (5, 4, 3)]
LATTICES = ("shapes3d-heavy", "mpi3d-light", "cmnist-iid", "cmnist-noniid", "bump-center", "dsprites-light", "two-sprites")


@pytest.mark.parametrize("sizes", SIZES)
def test_the_lowest_rung_is_one_line_a_factor_which_is_c_min(sizes: tuple[int, ...]) -> None:
    lowest = rungs(sizes)[0]
    found = seen_cells(sizes, CoverageSettings(coverage=lowest.num_seen / math.prod(sizes)))
    assert set(found) == {
        (0,) * k + (value,) + (0,) * (len(sizes) - k - 1) for k, size in enumerate(sizes) for value in range(size)
    }
    assert identifiability(sizes, found).coverage == minimum_coverage(sizes)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("seed", [0, 3])
def test_every_orthotopic_rung_has_its_size_and_is_identified(sizes: tuple[int, ...], seed: int) -> None:
    for rung in rungs(sizes):
        found = seen_cells(sizes, CoverageSettings(coverage=rung.num_seen / math.prod(sizes), split_seed=seed))
        assert len(set(found)) == rung.num_seen
        assert identifiability(sizes, found).feasible


@pytest.mark.parametrize("sizes", SIZES)
def test_rungs_of_one_kind_are_nested(sizes: tuple[int, ...]) -> None:
    first_kind = [rung for rung in rungs(sizes) if rung.beyond == 1]
    designs = [set(seen_cells(sizes, CoverageSettings(coverage=rung.num_seen / math.prod(sizes)))) for rung in first_kind]
    assert all(small < large for small, large in itertools.pairwise(designs))


def test_of_a_pair_what_is_held_out_is_a_rectangle() -> None:
    seen = set(seen_cells((10, 10), CoverageSettings(coverage=0.51)))
    assert {(a, b) for a in range(10) for b in range(10)} - seen == {(a, b) for a in range(3, 10) for b in range(3, 10)}


@pytest.mark.parametrize("sizes", SIZES)
def test_a_random_design_is_as_large_as_its_rung_and_shows_every_value(sizes: tuple[int, ...]) -> None:
    for rung in rungs(sizes):
        settings = CoverageSettings(coverage=rung.num_seen / math.prod(sizes), design="random", split_seed=5)
        found = seen_cells(sizes, settings)
        assert len(set(found)) == rung.num_seen
        assert identifiability(sizes, found).marginal_coverage == (1.0,) * len(sizes)


def test_a_split_seed_fixes_the_cells_and_another_changes_them() -> None:
    for design in ("orthotopic", "random"):
        one, two = (CoverageSettings(coverage=0.4, design=design, split_seed=seed) for seed in (1, 2))
        assert seen_cells((10, 10), one) == seen_cells((10, 10), one) != seen_cells((10, 10), two)


def test_below_c_min_only_a_random_design_is_left_and_below_one_cell_a_value_none() -> None:
    with pytest.raises(CompbenchError, match=r"lowest orthotopic rung .* 19/100 = 0.190 \(C_min\)"):
        seen_cells((10, 10), CoverageSettings(coverage=0.12))
    found = seen_cells((10, 10), CoverageSettings(coverage=0.12, design="random"))
    assert len(found) == 12
    assert not identifiability((10, 10), found).feasible
    with pytest.raises(CompbenchError, match="use at least 0.100"):
        seen_cells((10, 10), CoverageSettings(coverage=0.09, design="random"))


@pytest.mark.parametrize("name", LATTICES)
def test_a_lattice_task_takes_a_coverage_and_keeps_its_pattern_without(name: str) -> None:
    task = Registry().load("tasks", name)
    assert task.settings.coverage == 0
    assert task.configure(task.settings).holdout == task.holdout
    sizes = task.holdout.pattern_space.sizes
    rung = rungs(sizes)[1]
    changed = task.configure(task.settings.model_copy(update={"coverage": rung.num_seen / math.prod(sizes)}))
    assert len(changed.holdout.seen_cells) == rung.num_seen
    assert changed.holdout.factors == task.holdout.factors
    assert "coverage" in changed.summary


@pytest.mark.parametrize("name", ["shapes3d-extend", "emoji-extend"])
@pytest.mark.parametrize("asked", [{"coverage": 0.5}, {"design": "permuted"}])
def test_a_task_that_holds_nothing_out_refuses_a_pattern(name: str, asked: dict[str, object]) -> None:
    task = Registry().load("tasks", name)
    with pytest.raises(CompbenchError, match="the task holds nothing out"):
        task.configure(task.settings.model_copy(update=asked))


@pytest.mark.parametrize("name", LATTICES)
def test_a_permuted_design_renames_the_values_of_the_task_s_own_pattern(name: str) -> None:
    task = Registry().load("tasks", name)
    found = [task.configure(task.settings.model_copy(update={"design": "permuted", "split_seed": seed})) for seed in (0, 0, 1)]
    assert found[0].holdout == found[1].holdout != found[2].holdout
    assert found[0].holdout != task.holdout != found[2].holdout
    assert "values permuted" in found[0].summary
    for one in found:
        assert sorted(one.holdout.cells) == list(one.holdout.cells)
        for column in range(len(task.holdout.factors)):  # how often each value is held out, in any order
            own, renamed = (sorted(Counter(cell[column] for cell in each.holdout.cells).values()) for each in (task, one))
            assert own == renamed


@pytest.mark.parametrize(("order", "count"), [("circle", 10), ("line", 2)])
def test_a_permuted_design_keeps_the_neighbours_of_an_ordered_factor(order: Order, count: int) -> None:
    space = FactorSpace([Factor("kind", 1), Factor("place", 5)])
    own = Holdout(space, (0, 1), ((0, 0), (0, 1), (0, 3)))
    found = {permuted(own, seed, {"place": order}).cells for seed in range(300)}
    everything = [[(start + step) % 5 for step in range(5)] for start in range(5 if order == "circle" else 1)]
    everything += [names[::-1] for names in everything]
    wanted = {tuple(sorted((0, names[value]) for _, value in own.cells)) for names in everything}
    assert len(everything) == count
    assert found == wanted - {own.cells}


def test_a_sealed_checkerboard_keeps_both_neighbouring_hues_of_each_held_out_cell_seen() -> None:
    task = Registry().load("tasks", "shapes3d-medium")
    assert task.configure is not None
    patterns = set()
    for seed in range(60):
        holdout = task.configure(task.settings.model_copy(update={"design": "permuted", "split_seed": seed})).holdout
        held = set(holdout.cells)
        assert not any({(shape, (hue - 1) % 10), (shape, (hue + 1) % 10)} & held for shape, hue in held)
        patterns.add(holdout.cells)
    assert len(patterns) == 5  # shapes in two pairs: three ways, and two turns of the hues; the public one is left out


def test_a_pattern_that_every_renaming_keeps_is_refused_in_one_line() -> None:
    space = FactorSpace([Factor("x", 4), Factor("y", 4)])
    own = Holdout.by_rule(space, ("x", "y"), lambda x, y: x in (1, 2) and y in (1, 2))
    with pytest.raises(CompbenchError, match="gives the task's own pattern"):
        permuted(own, 0, {"x": "line", "y": "line"})


def test_a_permuted_design_takes_no_coverage() -> None:
    task = Registry().load("tasks", "shapes3d-heavy")
    with pytest.raises(CompbenchError, match="leave task.coverage out"):
        task.configure(task.settings.model_copy(update={"design": "permuted", "coverage": 0.5}))


def test_info_follows_a_coverage() -> None:
    at = CliRunner().invoke(main, ["info", "cmnist-iid", "--json", "--set", "task.coverage=0.19"])
    below = CliRunner().invoke(
        main, ["info", "cmnist-iid", "--json", "--set", "task.coverage=0.12", "--set", "task.design=random"]
    )
    assert '"coverage": "19/100 = 0.190"' in at.output
    assert '"identified": "yes' in at.output
    assert '"coverage": "12/100 = 0.120"' in below.output
    assert '"identified": "no' in below.output
