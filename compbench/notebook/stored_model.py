"""The trained model of a record: `compbench.load(record).sample(conditions)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Method, MethodSettings, Problem, Request, Task
from compbench.api.schemas import Record, RunRequest
from compbench.notebook.record_view import plain_errors, show_records
from compbench.notebook.task_view import as_conditions
from compbench.registry.checkout import registry_of
from compbench.registry.registry import Defined, Registry
from compbench.registry.resolve import settings_of, task_context, task_of
from compbench.store.records import Store, read_record
from compbench.system.devices import own_threads
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors
from compbench.system.home import Home

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "model.safetensors"
ROWS = 256
"""Number of samples in one forward pass."""


@dataclass(frozen=True)
class StoredModel:
    """A trained model with everything needed to sample from it, on the CPU in fp32."""

    record: Record
    task: Task
    method: Method
    settings: MethodSettings
    problem: Problem
    model: nn.Module

    @own_threads()
    def sample(self, conditions: Tensor | Sequence[Sequence[int]], *, seed: int = 0) -> Tensor:
        """Samples of some conditions, from noise of a seed.

        Args:
            conditions: (B, F) values of the factors; -1 leaves a factor open.
            seed: seed of the initial noise x0 ~ N(0, I) and of the sampler's own random numbers.

        Returns:
            samples, (B, *D).

        Raises:
            CompbenchError: the conditions do not fit the task.
        """
        import torch

        condition = as_conditions(self.problem.space, conditions)
        generator = torch.Generator().manual_seed(seed)
        x0 = torch.randn((len(condition), *self.problem.event.shape), generator=generator)
        ctx = Context(torch.device("cpu"), "fp32", generator, NoCheckpoints())
        with torch.no_grad():
            parts = [
                self.method.sample(self.settings, self.model, Request(condition[at : at + ROWS], x0[at : at + ROWS]), ctx).float()
                for at in range(0, len(condition), ROWS)
            ]
        return torch.cat(parts)


@plain_errors
def load(record: Record | Path | str, *, method: Method | None = None, plugins: Sequence[Path | str] = ()) -> StoredModel:
    """The model of a run that finished on this machine, from its weights in COMPBENCH_HOME.

    Args:
        record: a record, its file, or a part of its name.
        method: the `Method` of the record, if it was defined in a notebook or a script.
        plugins: files of methods that are not installed.

    Raises:
        CompbenchError: there is no such record, it has no weights here, or its method cannot be rebuilt from them.
    """
    show_records()
    home = Home.of_user()
    found = record if isinstance(record, Record) else read_record(Store(home.records).find(str(record)))
    check_trained(found)
    defined = (Defined(method, Path(__file__)),) if method else ()
    files = tuple(map(Path, plugins))
    registry = Registry(files, defined) if defined else registry_of(found, files)
    folder = home.runs / found.identity
    if (folder / WEIGHTS).is_file():
        home.share_data(folder / "cache")
    return rebuild(found, folder, home=home.root, registry=registry)


def check_trained(record: Record) -> None:
    """Raise CompbenchError if a record holds scores of given samples or weights, of which compbench keeps no weights."""
    if record.samples_only:
        raise CompbenchError(f"{record.name} holds samples only: compbench saw no training, so there is no model to load.")


def rebuild(record: Record, folder: Path, *, home: Path, registry: Registry) -> StoredModel:
    """The model of a record with its stored weights.

    Args:
        record: record of a finished run.
        folder: folder with its weights (`model.safetensors`) and processed data (`cache`).
        home: home with the official data.
        registry: registry with the method and the task.

    Raises:
        CompbenchError: the method has changed or cannot be rebuilt, or there are no weights.
    """
    import torch

    spec = record.spec
    overrides = {**spec.settings, **{f"task.{name}": value for name, value in spec.task_settings.items()}}
    facts = {"task": spec.task, "method": spec.method, "preset": spec.preset, "seed": spec.seed}
    request = RunRequest.model_validate({**facts, "overrides": overrides, "home": str(home)})
    method: Method = registry.load("methods", spec.method)
    if method.build is None:
        raise CompbenchError(f"method '{method.name}' has no `build`, so its stored weights cannot be loaded.")
    task = task_of(request, registry)
    if task.extends:
        raise CompbenchError(f"'{task.name}' is an extension task, whose model has two stages; this takes tasks with a holdout.")
    settings = settings_of(request, method)
    if not (folder / WEIGHTS).is_file():
        raise CompbenchError(f"there are no weights of {record.name} here: run it again on this machine with --force.")
    source = task.source(home / "data", spec.source)
    context = task_context(request, source, torch.device("cpu"), precision="fp32", cache=folder / "cache")
    problem = task.open(context).problem(spec.budget)
    problem = problem if method.oracle else replace(problem, oracle=None)
    model = method.build(settings, problem)
    try:
        tensors, _ = load_tensors(folder / WEIGHTS)
    except OSError as error:
        raise CompbenchError(f"the stored weights could not be read: {error}.") from error
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CompbenchError(
            f"the stored weights do not fit today's '{method.name}', which has changed since; run it again with --force."
        ) from error
    return StoredModel(record, task, method, settings, problem, model.eval())
