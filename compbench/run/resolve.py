"""From what a user asked for to what is run: `--set` values, checked against the schemas of method, task and budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from compbench.errors import CompbenchError, suggest
from compbench.interfaces import Budget, Method, MethodSettings, Source, Task, TaskContext

if TYPE_CHECKING:
    import torch

    from compbench.registry import Registry
    from compbench.schemas import RunRequest


def task_of(request: RunRequest, registry: Registry) -> Task:
    """The task under its `--set task.NAME=VALUE` settings."""
    task: Task = registry.load("tasks", request.task)
    changed = _with_prefix(request.overrides, "task.")
    if not changed:
        return task
    if task.configure is None:
        raise CompbenchError(f"task '{task.name}' has no settings; --set task.{next(iter(changed))} cannot be used.")
    return task.configure(_updated(task.settings, changed, f"task '{task.name}'", "task."))


def budget_of(request: RunRequest, task: Task) -> Budget:
    """The preset's budget under `--set budget.NAME=VALUE`."""
    changed = _with_prefix(request.overrides, "budget.")
    return _updated(task.budgets[request.preset], changed, f"the budget of '{task.name}'", "budget.")


def settings_of(request: RunRequest, method: Method) -> MethodSettings:
    """The method's settings, every one resolved."""
    own = {key: value for key, value in request.overrides.items() if not key.startswith(("budget.", "task."))}
    return _updated(method.settings(), own, f"method '{method.name}'", "")


def task_context(
    request: RunRequest,
    source: Source,
    device: torch.device,
    *,
    precision: str,
    cache: Path,
    registry: Registry | None = None,
) -> TaskContext:
    """What the harness gives a task; `registry` for the referee alone, which needs the metrics."""
    home = Path(request.home)
    metrics = {}
    if registry is not None:
        attempts = [registry.attempt(entry) for entry in registry.entries("metrics")]
        metrics = {loaded.value.name: loaded.value for loaded in attempts if loaded.state == "ok"}
    return TaskContext(
        device=device,
        precision="bf16" if precision == "bf16" else "fp32",
        seed=request.seed,
        cache=cache,
        data=home / "data",
        source=source,
        preset=request.preset,
        metrics=metrics,
    )


M = TypeVar("M", bound=BaseModel)


def _with_prefix(overrides: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in overrides.items() if key.startswith(prefix)}


def executor_settings(settings: type[M], changed: dict[str, Any], name: str) -> M:
    """The settings of executor `name` under `--executor-set`."""
    return _updated(settings(), changed, f"executor '{name}'", "", option="--executor-set")


def _updated(model: M, changed: dict[str, Any], what: str, prefix: str, *, option: str = "--set") -> M:
    """`model` with some values replaced and checked.  Raises CompbenchError naming the setting and its bounds."""
    fields = type(model).model_fields
    for key in changed:
        if key not in fields:
            names = [prefix + name for name in fields]
            error = suggest(f"setting of {what}", prefix + key, names)
            raise CompbenchError(f"{error} Values are set by {option} NAME=VALUE.")
    try:
        return type(model).model_validate({**model.model_dump(), **changed})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""  # what follows names the alternative of a union that failed
        raise CompbenchError(
            f"{option} {prefix}{key}={changed.get(key)!r}: {first['msg']} ({fields[key].description if key in fields else what})."
        ) from error
