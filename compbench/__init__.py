"""compbench: methods for compositional generation, compared under one protocol.

What a notebook and a plugin use can be had from here: `compbench.run`, `load`, `records`, `task`, and the types of a method.
Nothing is imported before it is asked for; `__init__.pyi` tells type checkers the same names.
"""

__version__ = "0.2.0"

_HOMES = {
    "Batch": "interfaces",
    "CompbenchError": "errors",
    "Context": "interfaces",
    "Method": "interfaces",
    "MethodSettings": "interfaces",
    "Metric": "interfaces",
    "Problem": "interfaces",
    "Record": "schemas",
    "Request": "interfaces",
    "Task": "interfaces",
    "hookimpl": "hookspecs",
    "load": "notebook.stored_model",
    "records": "export.table",
    "task": "notebook.task_view",
}
"""Name -> the module that has it.  `run` is the package `compbench.run`, which can be called."""

__all__ = ["__version__", "run", *_HOMES]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "run":
        return import_module("compbench.run")
    if name not in _HOMES:
        raise AttributeError(f"module 'compbench' has no attribute '{name}'")
    found = getattr(import_module(f"compbench.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
