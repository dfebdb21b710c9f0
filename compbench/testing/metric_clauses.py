"""The contract of a metric, on samples of known quality: real samples, and the same samples corrupted to increasing degrees.

A corruption adds noise, shifts all samples, shrinks them to their mean, or replaces some by noise.  A metric need not detect all
of these corruptions; it must detect at least one at every level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor

from compbench.api.interfaces import Metric, SamplePair, Value
from compbench.registry.resolve import with_its_features
from compbench.testing.verdicts import Finding, failed
from compbench.testing.watched import Broken

ROWS = 256
"""Number of samples in each set."""

LEVELS = (0.0, 0.15, 0.4, 1.0)
"""Strengths of the corruptions."""

FEATURES = 24
"""Number of random features of an image, which replace a network's features."""

Corruption = Callable[[Tensor, Tensor, float], Tensor]

CORRUPTIONS: dict[str, Corruption] = {
    "noise": lambda x, noise, level: x + level * noise,
    "a shift": lambda x, noise, level: x + level,
    "collapse": lambda x, noise, level: x + level * (x.mean(0) - x),
    "noise in some places": lambda x, noise, level: torch.where(_first(x, level), 2 * noise, x),
}


def of_metric(metric: Metric, *, only: Sequence[str] = ()) -> Iterator[Finding]:
    """The findings about a metric of real and generated samples, by the checks in `only`; () means all."""
    if metric.compute is None:
        yield Finding("monotone", "", "skipped", "a task computes it: check the task")
        return
    for kind in metric.kinds:
        subject = MetricSubject(metric, kind)
        for check, act in ((check, act) for check, act in CHECKS.items() if not only or check in only):
            try:
                yield Finding(check, kind, "ok", act(subject) or "")
            except Broken as broken:
                yield failed(check, kind, broken.found, fix=broken.fix)
            except Exception as error:
                if type(error).__name__ == "MetricUnavailable":  # found by its name, so that nothing is imported for it
                    yield Finding(check, kind, "skipped", f"it is unavailable here: {error}")
                else:
                    yield failed(check, kind, f"{type(error).__name__}: {error}")
                break


class MetricSubject:
    """A metric and the samples that it is tested on."""

    def __init__(self, metric: Metric, kind: str) -> None:
        generator = Generator().manual_seed(5)
        self.metric = metric
        shape = {"vector": (2,), "image": (3, 16, 16), "trajectory": (2, 8)}[kind]
        self.image, self.shape = kind == "image", shape
        self.modes = dict[str, Tensor]()
        self.real, self.other, self.third = (self._real(generator, which) for which in ("real", "generated", "floor"))
        self.noise = torch.randn(ROWS, *shape, generator=generator)
        self.weights = torch.randn(3 * 16 * 16, FEATURES, generator=generator)

    def _real(self, generator: Generator, which: str) -> Tensor:
        """Vectors with two modes, or images of two colours with shades.  The mode is the condition for a joint metric."""
        side = (torch.randint(2, (ROWS, *[1] * len(self.shape)), generator=generator) * 2 - 1).float()
        self.modes[which] = (side.flatten(1).long() + 1) // 2
        return 0.5 * side + 0.1 * torch.randn(ROWS, *self.shape, generator=generator)

    def value(self, generated: Tensor, *, seed: int = 0) -> Value:
        """The metric of some samples against the real ones."""
        import numpy

        sets = {"real": self.real, "generated": generated, "floor": self.third}
        shown = {name: _as_bytes(x) if self.image else x for name, x in sets.items()}

        def features(extractor: str, which: str) -> numpy.ndarray:
            return (shown[which].flatten(1).float() / 128 @ self.weights / 16).relu().double().numpy()

        compute = with_its_features(self.metric).compute
        assert compute is not None
        return compute(SamplePair(**shown, features=features, conditions=self.modes), numpy.random.default_rng(seed))

    def worse(self, one: float, than: float) -> bool:
        """Whether one value is worse than another."""
        return one > than if self.metric.direction == "lower" else one < than


def floor(subject: MetricSubject) -> str:
    """Check that the floor exists, is finite, equals the value of real samples, and is far from the value of noise."""
    found = subject.value(subject.other)
    if found.floor is None:
        raise Broken("it gives no floor", "return Value(metric of generated, the same metric of pair.floor)")
    noise = subject.value(2 * subject.noise)
    if not subject.worse(noise.value, found.floor):
        raise Broken(f"noise gets {noise.value:.4g}, real samples of the floor {found.floor:.4g}")
    if abs(found.value - found.floor) > 0.5 * abs(noise.value - found.floor):
        raise Broken(f"real samples get {found.value:.4g}, its floor is {found.floor:.4g}, and noise gets {noise.value:.4g}")
    return f"real samples {found.value:.4g}, floor {found.floor:.4g}, noise {noise.value:.4g}"


def repeatable(subject: MetricSubject) -> None:
    """Compute the metric twice from the same samples and seed, with other global generators; samples must not change."""
    samples = subject.other.clone()
    first = subject.value(samples)
    torch.manual_seed(99)
    if subject.value(samples) != first:
        raise Broken("two values of the same samples and seed differ", "draw from the generator that compute is given")
    if not torch.equal(samples, subject.other):
        raise Broken("it wrote into the samples", "work on a copy")


def monotone(subject: MetricSubject) -> str:
    """Check that some corruption makes the metric worse at every level."""
    found = []
    for name, corrupt in CORRUPTIONS.items():
        values = [subject.value(corrupt(subject.other, subject.noise, level)).value for level in LEVELS]
        if all(subject.worse(later, earlier) for earlier, later in pairwise(values)):
            return f"under {name}: {', '.join(f'{value:.4g}' for value in values)}"
        found.append(f"{name} {', '.join(f'{value:.3g}' for value in values)}")
    raise Broken(f"no corruption makes it worse at every step: {'; '.join(found)}")


CHECKS: dict[str, Callable[[MetricSubject], str | None]] = {"floor": floor, "repeatable": repeatable, "monotone": monotone}


def _first(x: Tensor, level: float) -> Tensor:
    """Which rows a corruption of some rows replaces, (B, 1, ...)."""
    rows = torch.arange(len(x)) < 0.5 * level * len(x)
    return rows.view(-1, *[1] * (x.ndim - 1))


def _as_bytes(x: Tensor) -> Tensor:
    return ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
