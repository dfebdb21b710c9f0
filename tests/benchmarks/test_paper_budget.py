"""The first steps of the `paper` preset: that it fits, and how fast it goes here.  Run with: pytest -m slow tests/benchmarks"""

import resource

import pytest
import torch

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Problem, TaskContext
from compbench.registry.registry import Registry

pytestmark = pytest.mark.slow
STEPS = 2


def test_the_paper_budget_trains_its_first_steps(benchmark, tmp_path) -> None:
    registry = Registry()
    task, method = registry.load("tasks", "shapes3d-heavy"), registry.load("methods", "factored")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = task.source(tmp_path, "embedded")
    budget = task.budgets["paper"].model_copy(update={"train_steps": STEPS})
    problem: Problem = task.open(TaskContext(device, "bf16", 0, tmp_path, tmp_path, source)).problem(budget)

    def fit() -> torch.nn.Module:
        ctx = Context(device, "bf16", torch.Generator().manual_seed(0), NoCheckpoints(), compile=device.type == "cuda")
        return method.fit(method.settings(), problem, ctx)

    net = benchmark.pedantic(fit, rounds=1)
    assert all(bool(parameter.isfinite().all()) for parameter in net.parameters())
    seconds = benchmark.stats.stats.min / STEPS
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    benchmark.extra_info |= {"seconds_per_step": seconds, "peak_memory_gib": memory}
    print(f"\npaper, batch {budget.batch_size}: {seconds:.1f} s a step, peak {memory:.1f} GiB on {device}")
