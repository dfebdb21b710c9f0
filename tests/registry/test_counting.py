"""What of a function's source counts for a run's identity: a GPU's way counts on GPUs alone."""

from __future__ import annotations

import pytest

from compbench.registry.syntax import parse

DISTANCE = """from compbench.system.devices import on_gpu


def fast(x):
    return FAST


def distance(x):
    total = 0
    TEST
        from torch import cdist

        return fast(cdist(x, x))
    return total
"""


def distance(test: str, *, gpu: bool, fast: str = "x", source: str = DISTANCE) -> tuple[str, object]:
    return parse(source.replace("TEST", test).replace("FAST", fast), "m").local("distance", gpu=gpu)


@pytest.mark.parametrize("test", ["if on_gpu(x):", "if on_gpu(x.device):", "if on_gpu(x) and fast(x) > total:"])
def test_what_only_a_gpu_runs_counts_on_gpus_alone(test: str) -> None:
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance(test, gpu=False) == plain
    assert distance(test, gpu=True) != plain
    assert ("m", ("fast",)) in distance(test, gpu=True)[1]


@pytest.mark.parametrize(
    "test",
    [
        "if not on_gpu(x):",
        "if on_gpu(x) or total:",
        "if total and on_gpu(x):",
        "if on_gpu(x) and total or total:",
        "if on_gpu(x) == total:",
        "if on_gpu(x, x):",
        "if on_gpu(device=x):",
        "if on_gpu(fast(x)):",
        "if on_gpu(x[0]):",
        "if fast(x):",
        "while on_gpu(x):",
        "if on_gpu(x):\n        total = 1\n    else:",
        "if on_gpu(x):\n        total = 1\n    elif total:",
    ],
)
def test_what_a_cpu_may_run_counts_on_cpus_too(test: str) -> None:
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance(test, gpu=False) == distance(test, gpu=True) != plain


@pytest.mark.parametrize(
    "head",
    [
        "from other.devices import on_gpu",
        "def on_gpu(x):\n    return True",
        "from compbench.system.devices import on_gpu\n\non_gpu = bool",
        "from compbench.system.devices import device_class as on_gpu",
    ],
)
def test_another_function_of_that_name_is_no_question_about_gpus(head: str) -> None:
    source = DISTANCE.replace("from compbench.system.devices import on_gpu", head)
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance("if on_gpu(x):", gpu=False, source=source) != plain
    bound = DISTANCE.replace("    total = 0", "    on_gpu = total = 0")
    assert distance("if on_gpu(x):", gpu=False, source=bound)[0] == distance("if on_gpu(x):", gpu=True, source=bound)[0]
