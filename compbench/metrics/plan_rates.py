"""Metrics of planning tasks, in percent of the trials.

success_rate       trials whose plan is feasible and whose execution leaves the cube within 4 cm of the plan's goal
success_spread     standard deviation of the success rate over groups of trials (population deviation, as in the paper)
feasibility        plans that begin and end with the cube on the floor, in the requested quadrants
trivial_rate       feasible plans whose goal is within 4 cm of their start: doing nothing would succeed
execution_ceiling  recorded segments that succeed when they are executed in place of a plan
"""

from __future__ import annotations

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import EventKind, Metric


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    kinds: tuple[EventKind, ...] = ("trajectory",)
    return (
        Metric("success_rate", "trials whose plan is feasible and succeeds", "%", "higher", margin=5.0, kinds=kinds),
        Metric("success_spread", "deviation of the success rate over groups of trials", "%", "lower", margin=5.0, kinds=kinds),
        Metric("feasibility", "plans that begin and end where they should", "%", "higher", margin=5.0, kinds=kinds),
        Metric("trivial_rate", "feasible plans that need no motion", "%", "lower", margin=2.0, kinds=kinds),
        Metric("execution_ceiling", "recorded segments that succeed as plans", "%", "higher", margin=1.0, kinds=kinds),
    )
