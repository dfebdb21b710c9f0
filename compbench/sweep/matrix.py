"""Facts about many runs before any starts: which method works on which task, and the identity of each request.

Methods are loaded in one sandboxed process (`isolated`); this process imports neither methods nor torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compbench.api.schemas import Code, RunRequest, RunSpec
from compbench.registry.equal_code import equal_code
from compbench.registry.meaning import Kept, code_of
from compbench.registry.registry import Kind, LoadResult, Registry
from compbench.registry.resolve import why_not
from compbench.runner.isolated import answer_of, scratch, values_of
from compbench.runner.messages import LineOfText
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

Matrix = dict[str, dict[str, LineOfText]]
"""For each method and task, the matrix gives the reason why the method cannot work there; "" means that it can."""

HOURS = 3600.0 * 4
"""Longest wait for identities: those of two thousand requests take seconds, but a plugin's import may take minutes."""


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


def identities(
    requests: Sequence[RunRequest], *, elsewhere: Sequence[Sequence[str]] = (), pass_over: bool = False
) -> Iterator[list[list[str]]]:
    """The identities of each request's run (`EqualCode.identities`), in order, and after them those of the run on other devices.

    Nothing is trained.

    Args:
        requests: what would be run.
        elsewhere: for each request, classes of devices, which need not be here; none for any if it is empty.
        pass_over: a request that cannot run here (a wrong setting, an extra that is not installed) has no identity.

    Raises:
        Ended: a request is wrong and not to be passed over, or a process died of one.
    """
    facts = [request.model_dump(mode="json") for request in requests]
    classes = [list(own) for own in elsewhere] or [[] for _ in facts]
    arguments = {"requests": facts, "elsewhere": classes, "pass_over": pass_over}
    with scratch() as folder:
        home = Home(Path(requests[0].home)) if requests else Home.of_user()
        yield from values_of("compbench.sweep.matrix:resolved", arguments, list[list[str]], folder, home=home, seconds=HOURS)


def resolved(
    progress: object, *, requests: Sequence[dict[str, object]], elsewhere: Sequence[Sequence[str]], pass_over: bool
) -> Iterator[list[list[str]]]:
    """The identities.  For a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        resolver = Resolver(Path(folder))
        for facts, classes in zip(requests, elsewhere, strict=True):
            request = RunRequest.model_validate(facts)
            try:
                specs = [resolver.spec(request), *(resolver.spec(request, device) for device in classes)]
            except CompbenchError:
                if not pass_over:
                    raise
                specs = []
            yield list(map(list, dict.fromkeys(equal_code().identities(spec) for spec in specs)))


class Resolver:
    """Specs of many requests, while no source file changes: installed plugins are looked up once, a definition is hashed once,
    and requests that differ in nothing but their seed are resolved once.

    Args:
        folder: for contestants, which write nothing there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._registries: dict[tuple[str, ...], Registry] = {}
        self._hashed: Kept = {}
        self._specs: dict[str, RunSpec] = {}

    def spec(self, request: RunRequest, device_class: str = "") -> RunSpec:
        """What a run of the request would be, here or on another class of devices.  Raises CompbenchError as a run would."""
        alike = request.model_copy(update={"seed": 0})
        key = alike.model_dump_json()
        if key not in self._specs:
            self._specs[key] = self._resolved(alike)
        found = self._specs[key].model_copy(update={"seed": request.seed})
        if device_class in ("", found.device_class):
            return found
        digest, _ = self._origin_of(request, self._registry(request), found.metrics, device_class)
        return found.model_copy(update={"device_class": device_class, "code": digest})

    def _registry(self, request: RunRequest) -> Registry:
        return self._registries.setdefault(request.plugins, Registry(tuple(map(Path, request.plugins))))

    def _resolved(self, request: RunRequest) -> RunSpec:
        from compbench.runner.attempt import Attempt
        from compbench.runner.in_process import InProcessPair

        registry = self._registry(request)
        pair = InProcessPair(request, self._folder, lambda stage, done, total: None, registry)
        attempt = Attempt(request, Home(Path(request.home)), pair, force=True, registry=registry)
        attempt.origin_of = self._origin_of
        attempt.find()
        return attempt.spec

    def _origin_of(self, request: RunRequest, registry: Registry, metrics: Iterable[str], device_class: str) -> tuple[str, Code]:
        """Return the hash alone: commits do not belong to an identity."""
        code = code_of(
            registry, method=request.method, task=request.task, metrics=metrics, device_class=device_class, kept=self._hashed
        )
        return code.digest, Code(parts=code.parts)
