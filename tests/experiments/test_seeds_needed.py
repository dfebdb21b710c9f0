"""Drawn seeds have the means and the covariance of those that there are, and more of them leave fewer ranks open."""

from pathlib import Path

import numpy
from seeds_needed import drawn, families, shares, widths
from support.sample_records import record, score

from compbench.store.records import Store

FOUND = numpy.array([[0.70, 0.74, 0.66], [0.60, 0.66, 0.58], [0.20, 0.22, 0.24]])  # (M, k), far from 0 and 1


def test_drawn_seeds_have_the_means_and_the_covariance_of_those_found() -> None:
    values = drawn(FOUND, 200_000, numpy.random.default_rng(0))
    assert numpy.allclose(values.mean(axis=1), FOUND.mean(axis=1), atol=1e-3)
    assert numpy.allclose(numpy.cov(values), numpy.cov(FOUND), atol=2e-5)


def test_a_drawn_share_stays_a_share() -> None:
    values = drawn(numpy.array([[1.0, 0.6], [0.0, 0.4]]), 1000, numpy.random.default_rng(0))
    assert values.min() == 0
    assert values.max() == 1


def test_more_seeds_leave_fewer_ranks_open_unless_two_methods_are_equal() -> None:
    few, many = (numpy.mean(widths(FOUND, count, repeats=50)) for count in (2, 40))
    assert many == 1 < few
    equal = numpy.vstack([FOUND[0], FOUND[0, ::-1], FOUND[2]])  # one mean, other seeds
    assert numpy.mean(widths(equal, 40, repeats=50)) > 1.9


def test_the_methods_of_a_family_stand_in_the_boards_order_with_their_common_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    for method, values in {"mono": (0.4, 0.41, 0.43), "factored": (0.82, 0.8), "coind": (0.1, 0.12)}.items():
        for seed, value in enumerate(values):
            store.write(record(score(value=value, ceiling=1.0), task="shapes3d-light", method=method, seed=seed))
    (family,) = families(store.folder, "quick")
    names, found = shares(family)
    assert names == ["factored", "mono", "coind"]
    assert found.shape == (3, 2)
    assert numpy.allclose(found[0], [(0.82 - 0.1) / 0.9, (0.8 - 0.1) / 0.9])
