"""The pluggy hooks: nouns that return values, so that a test can call them plainly.

A plugin module is named by an entry point (group `compbench.methods`, `compbench.tasks`, `compbench.metrics` or
`compbench.executors`) and implements the hook of its kind:

    from compbench.api.hookspecs import hookimpl

    @hookimpl
    def compbench_methods() -> tuple[Method, ...]:
        return (Method(name="my-method", settings=Settings, fit=fit, sample=sample),)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from compbench.api.executor import Executor
    from compbench.api.interfaces import Method, Metric, Task

hookspec = pluggy.HookspecMarker("compbench")
hookimpl = pluggy.HookimplMarker("compbench")


@hookspec
def compbench_methods() -> tuple[Method, ...]:
    """The methods of a plugin module."""


@hookspec
def compbench_tasks() -> tuple[Task, ...]:
    """The tasks of a plugin module."""


@hookspec
def compbench_metrics() -> tuple[Metric, ...]:
    """The metrics of a plugin module."""


@hookspec
def compbench_executors() -> tuple[Executor, ...]:
    """The executors of a plugin module."""
