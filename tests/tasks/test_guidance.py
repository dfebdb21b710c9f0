"""What a task says of its guidance is what its problems ask of methods."""

import pytest
import torch

from compbench.api.interfaces import TaskContext
from compbench.tasks import blobs, cmnist, gaussian


@pytest.mark.parametrize(
    "task", [blobs.make_task("iid"), cmnist.make_task("noniid"), gaussian.make_task("gmm-id")], ids=lambda task: task.name
)
def test_a_problem_has_the_guidance_weight_that_its_task_declares(task, tmp_path) -> None:
    for preset, budget in task.budgets.items():
        source = task.source(tmp_path, "embedded")
        context = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, source, preset)
        assert task.open(context).problem(budget).guidance_weight == task.guidance_weights[preset]
