"""Every method keeps the contract: what is cheap here, in the normal suite; all of it in CI (`compbench check --all`)."""

from importlib.metadata import entry_points

import pytest

from compbench.registry.registry import Registry
from compbench.testing import check_method
from compbench.testing.examine import report_on

NAMES = sorted(point.name for point in entry_points(group="compbench.methods") if point.value.startswith("compbench_methods."))
CHEAP = ("settings", "shape", "dtype", "finite", "conditions", "null", "build", "globals")


@pytest.mark.parametrize("name", NAMES)
def test_method_keeps_the_cheap_part_of_the_contract_on_its_cheapest_problem(name) -> None:
    method = Registry().load("methods", name)
    images = "objects" if "objects" in method.needs else "bumps"
    cheapest = "perturbation" if method.oracle or "base" in method.needs else "vector" if "vector" in method.kinds else images
    report = report_on(method, only=CHEAP, problems=(cheapest,), device="cpu")
    assert [finding.message for finding in report.failures] == []
    assert {finding.check for finding in report.findings} == set(CHEAP)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_method_keeps_the_whole_contract(name) -> None:
    assert check_method(name, time_limit=600).ok
