"""What can be known of many runs before any starts: which method works on which task, and the identity of each request.

Methods are loaded in one process behind a contestant's border (`isolated`); this one imports neither them nor torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from compbench.home import Home
from compbench.identity.resolve import why_not
from compbench.registry import Kind, LoadResult, Registry
from compbench.run.isolated import answer_of, scratch, values_of
from compbench.run.messages import LineOfText
from compbench.schemas import RunRequest

Matrix = dict[str, dict[str, LineOfText]]
"""Of each method and task why the method cannot work there; "" where it can."""

HOURS = 3600.0 * 4
"""Identities of some thousand requests take minutes."""


def matrix(plugins: Sequence[Path] = ()) -> Matrix:
    """Every installed method on every task at its default settings; plugins that are broken are left out."""
    arguments = {"plugins": [str(path.resolve()) for path in plugins]}
    with scratch() as folder:
        return answer_of("compbench.sweep.matrix:reasons", arguments, Matrix, folder, home=Home.of_user())


def reasons(progress: object, *, plugins: Sequence[str]) -> Iterator[Matrix]:
    """The matrix.  For a process of its own."""
    registry = Registry(tuple(map(Path, plugins)))

    def loaded(kind: Kind) -> list[LoadResult]:
        return [found for found in map(registry.attempt, registry.entries(kind)) if found.state == "ok"]

    tasks = [found.value for found in loaded("tasks")]
    yield {found.entry.name: {task.name: why_not(found.value, task) for task in tasks} for found in loaded("methods")}


def identities(requests: Sequence[RunRequest]) -> Iterator[str]:
    """The identity of each request's run, in order; nothing is trained.

    Raises:
        Ended: a request is wrong, or its plugin.
    """
    arguments = {"requests": [request.model_dump(mode="json") for request in requests]}
    with scratch() as folder:
        home = Home(Path(requests[0].home)) if requests else Home.of_user()
        yield from values_of("compbench.sweep.matrix:resolved", arguments, str, folder, home=home, seconds=HOURS)


def resolved(progress: object, *, requests: Sequence[dict[str, object]]) -> Iterator[str]:
    """The identities.  For a process of its own."""
    from compbench.run.attempt import Attempt
    from compbench.run.in_process import InProcessPair

    with tempfile.TemporaryDirectory() as folder:
        for facts in requests:
            request = RunRequest.model_validate(facts)
            pair = InProcessPair(request, Path(folder), lambda stage, done, total: None)
            attempt = Attempt(request, Home(Path(request.home)), pair, force=True)
            attempt.find()
            yield attempt.spec.identity
