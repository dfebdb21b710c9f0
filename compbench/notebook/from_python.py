"""Runs from Python: `compbench.run("fkc", "gmm-id")`, also with a method that a notebook's cell defines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from compbench.api.context import Presets
from compbench.api.interfaces import Method
from compbench.api.schemas import Record, RunRequest
from compbench.notebook.cell_source import source_of
from compbench.notebook.record_view import plain_errors, show_records
from compbench.registry.method_source import settings_class_of
from compbench.registry.registry import Defined, Registry
from compbench.registry.resolve import refuse_infinite
from compbench.runner.one_run import run as run_request
from compbench.system.errors import CompbenchError, suggest
from compbench.system.files import Json
from compbench.system.home import Home, scratch_folder

ALONE = "give in_process=True: a method without a file runs in this process, without sandbox and time limit"

OF_THE_MACHINE = ("device", "precision", "source", "threads", "time_limit", "home")
OPTIONS = (*OF_THE_MACHINE, "plugins", "metrics", "keep_samples", "trace", "curve")
"""The names of `options` of `run`."""


@plain_errors
def run(
    method: str | Method,
    task: str,
    *,
    seed: int = 0,
    preset: Presets = "quick",
    in_process: bool = False,
    force: bool = False,
    options: Mapping[str, Json] | None = None,
    **settings: Json,
) -> Record:
    """Fit a method on a task, sample, score, and write the record, as the command `run` does.

    A repeated call returns the finished record, unless `force` is set.  A failed run returns a record too: see its `status`.

        compbench.run("fkc", "gmm-id", seed=1, num_particles=16, **{"budget.train_steps": 500})

    Args:
        method: name of an installed method, or a `Method` that was defined in a cell or a script.  A `Method` needs
            `in_process` and runs again at each call, because the dependencies of a cell cannot be known completely.  Its record
            is marked (`in_process`, and a plugin of the distribution "notebook") and cannot be submitted.
        task: name of a task.
        seed, preset: seed and preset of the run.
        in_process: run everything in this process, where a debugger can stop.
        force: run again even if there is a finished record.
        options: other fields of `RunRequest`: device, precision, source, time_limit, threads, plugins, metrics, keep_samples,
            trace, curve, home.
        settings: settings of the method; `budget.NAME` and `task.NAME` as in `--set`.

    Raises:
        CompbenchError: the request itself is wrong.
        Busy: another process is doing the same run.  Busy is a CompbenchError, too.
    """
    show_records()
    own = dict(options or {})
    for unknown in own.keys() - RunRequest.model_fields.keys():
        raise suggest("option of a run", unknown, sorted(OPTIONS), listed=False)
    if misplaced := next((name for name in settings if name in OPTIONS and not _has(method, name)), ""):
        raise CompbenchError(f"'{misplaced}' is not a setting of the method but an option: options={{'{misplaced}': ...}}.")
    home = Path(str(own.pop("home", "") or Home.of_user().root))
    name = method if isinstance(method, str) else method.name
    refuse_infinite(settings)
    facts = {"method": name, "task": task, "seed": seed, "preset": preset, "overrides": settings, "home": str(home), **own}
    request = RunRequest.of(**facts)
    Registry().entry("tasks", task)
    if isinstance(method, str):
        Registry(tuple(map(Path, request.plugins))).entry("methods", name)
        return run_request(request, force=force, in_process=in_process).record
    if not in_process:
        raise CompbenchError(
            f"'{name}' is a Method object: {ALONE}; or save it as a file and pass options={{'plugins': [FILE]}}."
        )
    if name in Registry().names("methods"):
        raise CompbenchError(f"'{name}' is the name of an installed method: give yours another name.")
    with scratch_folder(home) as folder:
        file = folder / f"{name}.py"
        file.write_text(source_of(method))
        registry = Registry(defined=(Defined(replace(method, shared_fit=None), file),))
        return run_request(request, force=True, in_process=True, registry=registry).record


def _has(method: str | Method, name: str) -> bool:
    """Whether a method has a setting of this name, as far as that is known without importing it."""
    if isinstance(method, Method):
        return name in method.settings.model_fields
    known = settings_class_of(Registry().entry("methods", method)) if method in Registry().names("methods") else None
    return known is None or name in known.model_fields
