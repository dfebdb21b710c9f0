"""What the probe gives a method is what a run gives it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from compbench.gate.probe import Subject


@dataclass(frozen=True)
class Played:
    """A problem without data."""

    budget: object = None
    federation: object = None
    extension: object = None


@pytest.mark.parametrize(("precision", "given"), [("tf32", "fp32"), ("fp32", "fp32"), ("bf16", "bf16")])
def test_a_method_is_given_the_precision_of_a_context(precision, given) -> None:
    subject = Subject.__new__(Subject)
    subject.device, subject.precision, subject.seed = torch.device("cpu"), precision, 0
    assert subject._context("fit").precision == given


def test_a_method_fits_and_samples_in_the_arithmetic_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []

    @contextlib.contextmanager
    def arithmetic(device: torch.device, precision: str) -> Iterator[None]:
        entered.append(precision)
        yield
        entered.append("left")

    def work(*_: object) -> torch.Tensor:
        entered.append("work")
        return torch.zeros(1)

    monkeypatch.setattr("compbench.system.bf16.arithmetic", arithmetic)
    subject = Subject.__new__(Subject)
    subject.device, subject.precision, subject.seed = torch.device("cpu"), "bf16", 0
    subject.settings, subject.method = None, SimpleNamespace(fit=work, sample=work)
    subject.budget = SimpleNamespace(extend_steps=0, model_copy=lambda update: None)
    subject.problem = Played(federation=SimpleNamespace(unmetered=lambda: None))
    subject.sample(subject.fit(1), None)
    assert entered == ["bf16", "work", "left"] * 2
