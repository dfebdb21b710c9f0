"""compbench: methods for compositional generation, compared under one protocol.

What a notebook and a plugin use can be imported from here: `compbench.run`, `load`, `records`, `task`, and the types of a
method, a task and a metric.  Nothing is imported before it is asked for; `__init__.pyi` tells type checkers the same names.
"""

__version__ = "0.2.0"

_HOMES = {
    "Batch": "api.context",
    "Budget": "api.interfaces",
    "Busy": "store.lease",
    "Cancelled": "system.errors",
    "CompbenchError": "system.errors",
    "Context": "api.context",
    "Evaluation": "api.interfaces",
    "Event": "api.interfaces",
    "Factor": "api.factors",
    "FactorSpace": "api.factors",
    "Federation": "api.federation",
    "Holdout": "api.factors",
    "LentSilo": "api.federation",
    "Method": "api.interfaces",
    "MethodSettings": "api.interfaces",
    "Metric": "api.interfaces",
    "NEEDS": "api.interfaces",
    "NULL": "api.factors",
    "NoCheckpoints": "api.context",
    "Problem": "api.interfaces",
    "Record": "api.schemas",
    "Refused": "system.errors",
    "Request": "api.interfaces",
    "RunRequest": "api.schemas",
    "SamplePair": "api.interfaces",
    "Score": "api.interfaces",
    "Silo": "api.context",
    "Source": "api.interfaces",
    "Task": "api.interfaces",
    "Value": "api.interfaces",
    "Weighted": "api.factors",
    "hookimpl": "api.hookspecs",
    "load": "notebook.stored_model",
    "records": "store.table",
    "regressed": "system.condition_counts",
    "run": "notebook.from_python",
    "symmetry_of": "api.factors",
    "task": "notebook.task_view",
}
"""Name -> the module that has it."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'compbench' has no attribute '{name}'")
    found = getattr(import_module(f"compbench.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
