"""fourier-decoder and equivariant-decoder: places that were never seen, where they work, and that one is a reference."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from compbench_methods import equivariant_decoder, fourier_decoder
from test_decoder_methods import images_of, problem, silo

from compbench.api.factors import Factor, FactorSpace
from compbench.api.federation import Federation
from compbench.api.schemas import RunRequest
from compbench.data.bumps import bumps
from compbench.metrics.localisation import localise
from compbench.registry.registry import Registry
from compbench.runner.contestant import Contestant
from compbench.system.errors import Refused

PLACES = torch.cartesian_prod(torch.arange(8), torch.arange(8))


def test_what_was_learnt_at_some_places_holds_at_all_others() -> None:
    near = (PLACES >= 4).any(1)
    asked = replace(problem(600), federation=Federation([silo(PLACES[near])]))
    made, truth = images_of(equivariant_decoder, equivariant_decoder.Settings(), asked, PLACES[~near]), PLACES[~near]
    assert localise(made, truth).strict.all()
    assert (made - bumps(truth, size=8, sigma=1.0)).square().mean() < 1e-3


@pytest.mark.slow
def test_fourier_features_put_each_bump_in_its_place() -> None:
    made = images_of(fourier_decoder, fourier_decoder.Settings(scale=2.0), problem(600), PLACES)
    assert localise(made, PLACES).both.float().mean() > 0.95


def test_equivariant_decoder_works_where_factors_shift_or_turn_an_image() -> None:
    registry = Registry()
    method = registry.load("methods", "equivariant-decoder")
    works = {name for name in registry.names("tasks") if not any(map(registry.load("tasks", name).lacks, method.needs))}
    assert works == {"bump-center", "bump-corner", "bump-scaling", "rotation"}


def test_factors_that_do_neither_are_refused() -> None:
    other = replace(problem(), space=FactorSpace([Factor("a", 8), Factor("b", 8)]))
    with pytest.raises(Refused, match="neither shift an image by whole pixels nor turn it"):
        equivariant_decoder.build(equivariant_decoder.Settings(), other)


@pytest.mark.parametrize(("name", "given"), [("equivariant-decoder", True), ("fourier-decoder", False)])
def test_who_is_given_the_symmetry_is_recorded_as_an_oracle_which_boards_do_not_rank(
    name: str, given: bool, tmp_path: Path
) -> None:
    request = RunRequest(method=name, task="bump-center", preset="smoke", home=str(tmp_path))
    assert Contestant(request, tmp_path).describe().oracle is given
