"""A method whose work a test chooses: some products of matrices a step and a request."""

from pathlib import Path

from compbench.gate.suite import Cell

PLUGIN = '''"""A toy: some products of matrices a step."""
import torch
from compbench.system.errors import Cancelled
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Method, MethodSettings

PRODUCTS = {products}


def work():
    a = torch.ones(128, 128)
    for _ in range(PRODUCTS):
        a = a @ a / 128
    return a


def fit(settings, problem, ctx):
    layer = torch.nn.Linear(2, 2)
    for step in range(problem.budget.train_steps):
        if ctx.cancelled():
            raise Cancelled("stopped")
        work()
        ctx.progress(step + 1, problem.budget.train_steps)
    return layer


@torch.no_grad()
def sample(settings, layer, request, ctx):
    work()
    return layer(request.x0)


@hookimpl
def compbench_methods():
    return (Method(name="toy", settings=MethodSettings, fit=fit, sample=sample, evaluations=lambda *_: {evaluations}),)
'''
TOY = Cell(method="toy", task="gmm-id", seeds="0")


def toy(folder: Path, products: int = 10, evaluations: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toy.py"
    path.write_text(PLUGIN.format(products=products, evaluations=evaluations))
    return path
