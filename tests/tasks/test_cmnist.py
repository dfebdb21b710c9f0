"""Coloured digits: which pairs are seen, who has what, and that the referee's images are right by its own judge."""

import struct

import pytest
import torch
from torch import Generator

from compbench.api.factors import identifiability
from compbench.api.interfaces import Source, TaskContext
from compbench.data.coloured_digits import FILES
from compbench.metrics import image
from compbench.system.errors import CompbenchError
from compbench.tasks.cmnist import (
    BUDGETS,
    NUM_VALUES,
    SPACE,
    OpenDigits,
    Settings,
    _ColouredDigits,
    choose,
    holdout_of,
    make_task,
)


@pytest.fixture
def ctx(tmp_path) -> TaskContext:
    metrics = {metric.name: metric for metric in image.compbench_metrics()}
    source = Source("embedded", "scikit-learn digits", "digits-coloured-1")
    return TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, source, "smoke", metrics=metrics)


def test_half_of_the_pairs_are_seen_and_every_value_has_five() -> None:
    holdout = holdout_of(Settings())
    seen = torch.tensor(holdout.seen_cells)
    assert len(seen) == len(holdout.cells) == 50
    for k in range(2):
        assert torch.bincount(seen[:, k]).tolist() == [5] * NUM_VALUES


def test_the_band_connects_the_seen_pairs_and_parity_splits_them() -> None:
    parts = {rule: identifiability([10, 10], holdout_of(Settings(rule=rule)).seen_cells) for rule in ("band", "parity")}
    assert {rule: part.num_components for rule, part in parts.items()} == {"band": 1, "parity": 2}


@pytest.mark.parametrize(("split", "spread"), [("iid", (0.9, 1.1)), ("noniid", (0.0, 1e9))])
def test_ten_silos_share_the_seen_pairs_once_each_image(split, spread, ctx) -> None:
    problem = make_task(split).open(ctx).problem(BUDGETS["smoke"])
    silos = problem.federation._silos
    sizes = torch.tensor([silo.size for silo in silos]).float()
    assert len(silos) == 10
    assert int(sizes.sum()) == 6500  # 1,300 digits, five images of each
    holdout = set(problem.holdout.cells)
    cells = [set(map(tuple, silo.condition.tolist())) for silo in silos]
    assert not holdout & set().union(*cells)
    if split == "iid":
        assert sizes.max() / sizes.min() < 1.3
        assert min(map(len, cells)) >= 45
    else:
        assert sizes.max() / sizes.min() > 2
        assert max(map(len, cells)) < 35  # 31 by torch 2.6's draws


def test_a_silos_pixels_have_the_colour_of_their_condition(ctx) -> None:
    batch = make_task("noniid").open(ctx).problem(BUDGETS["smoke"]).federation._silos[0].batch(64, Generator().manual_seed(0))
    assert batch.x1.shape == (64, 3, 28, 28)
    assert (batch.x1.min(), batch.x1.max()) == (-1, 1)
    palette = torch.tensor([[255, 40, 40], [255, 140, 0], [255, 240, 40], [130, 255, 60], [0, 150, 70],
                            [40, 230, 255], [40, 80, 255], [140, 70, 200], [255, 60, 200], [255, 255, 255]])  # fmt: skip
    brightest = (batch.x1.flatten(2) + 1).mul(127.5).amax(2)
    ratio = brightest / brightest.amax(1, keepdim=True)
    expected = palette[batch.condition[:, 1]].float()
    assert (ratio - expected / expected.amax(1, keepdim=True)).abs().max() < 0.02


def test_real_images_have_what_was_asked_and_no_one_trained_on_them(ctx) -> None:
    family = OpenDigits("iid", Settings(), holdout_of(Settings()), ctx)
    real = _ColouredDigits(family.train, family.reference, family.holdout, ctx.device)
    conditions = torch.tensor(family.holdout.cells).repeat(2, 1)
    images = real.of(conditions, Generator().manual_seed(0))
    known = {bytes(grey.flatten().tolist()): int(k) for grey, k in zip(*family.reference, strict=True)}
    white = conditions[:, 1] == 9  # a white digit is its grey one, so it can be looked up
    assert white.any()
    assert [known[bytes(rgb[0].flatten().tolist())] for rgb in images[white]] == conditions[white, 0].tolist()
    _, seen = real.labelled(500, Generator().manual_seed(1), seen_only=True)
    assert set(map(tuple, seen.tolist())) <= set(family.holdout.seen_cells)
    _, every = real.labelled(2000, Generator().manual_seed(1), seen_only=False)
    assert set(map(tuple, every.tolist())) & set(family.holdout.cells)


def test_official_files_are_taken_where_they_are_and_asking_for_them_elsewhere_is_refused(tmp_path) -> None:
    assert choose(tmp_path, "auto").kind == "embedded"
    with pytest.raises(CompbenchError, match="not all of"):
        choose(tmp_path, "official")
    shapes = [(3, 28, 28), (3,), (2, 28, 28), (2,)]
    for name, shape in zip(FILES, shapes, strict=True):
        header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        (tmp_path / name).write_bytes(header + bytes(int(torch.tensor(shape).prod())))
    assert choose(tmp_path, "auto").kind == choose(tmp_path, "official").kind == "official"
    assert choose(tmp_path, "embedded").kind == "embedded"


def test_damaged_files_are_one_line_before_any_run(tmp_path) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(b"hello")
    with pytest.raises(CompbenchError, match="is not an IDX file of MNIST") as error:
        choose(tmp_path, "auto")
    assert "\n" not in str(error.value)


def test_a_value_that_no_silo_has_is_named(tmp_path, ctx) -> None:
    shapes = [(3, 28, 28), (3,), (2, 28, 28), (2,)]
    for name, shape in zip(FILES, shapes, strict=True):
        header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        (ctx.data / name).write_bytes(header + bytes(int(torch.tensor(shape).prod())))
    task = make_task("iid", Settings(silos=1))
    official = TaskContext(ctx.device, "fp32", 0, ctx.data, ctx.data, choose(ctx.data, "official"))
    with pytest.raises(CompbenchError, match="no silo has 'digit' = 1"):
        task.open(official).problem(BUDGETS["smoke"])


def test_space_names_its_colours() -> None:
    assert SPACE.factors[1].values[5] == "cyan"
