"""What the probe gives a method is what a run gives it."""

import pytest
import torch

from compbench.gate.probe import Subject


@pytest.mark.parametrize(("precision", "given"), [("tf32", "fp32"), ("fp32", "fp32"), ("bf16", "bf16")])
def test_a_method_is_given_the_precision_of_a_context(precision, given) -> None:
    subject = Subject.__new__(Subject)
    subject.device, subject.precision, subject.seed = torch.device("cpu"), precision, 0
    assert subject._context("fit").precision == given
