"""Facts about many runs before one starts: which method works on which task, and the identity of each request.

Methods are loaded in one sandboxed process (`isolated`); this process imports neither methods nor torch.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

from compbench.api.schemas import Code, RunRequest, RunSpec
from compbench.registry.equal_code import equal_code
from compbench.registry.meaning import Kept, code_of
from compbench.registry.registry import Kind, LoadResult, Registry
from compbench.registry.resolve import why_not
from compbench.runner.attempt import Attempt
from compbench.runner.isolated import Isolated, scratch
from compbench.runner.messages import LineOfText, RefereeDescribed
from compbench.runner.processes import Ended
from compbench.store.records import collector_paused
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

Matrix = dict[str, dict[str, LineOfText]]
"""The reason why a method cannot work on a task, by method and task; "" means that it can."""

HOURS = 3600.0 * 4
"""Longest wait for identities, in seconds: two thousand requests take seconds, but a plugin's import may take minutes."""
AT_A_TIME = 1000
"""Number of requests in one call: the size of a message is limited (`compbench.runner.channel.MAX_HEADER`)."""


@contextlib.contextmanager
def run_facts(home: Home) -> Iterator[RunFacts]:
    """A `RunFacts` whose process ends with the block."""
    with scratch() as folder, contextlib.closing(RunFacts(folder, home)) as facts:
        yield facts


class RunFacts:
    """One sandboxed process that answers questions about runs; it starts at the first question and imports plugins once.

    Args:
        folder: a folder from `isolated.scratch`.
        home: the home of the runs.
    """

    def __init__(self, folder: Path, home: Home) -> None:
        self._folder, self._home = folder, home
        self._process: Isolated | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def matrix(self, plugins: Sequence[Path] = ()) -> Matrix:
        """Every installed method on every task at its default settings; plugins that are broken are left out."""
        arguments = {"plugins": [str(path.resolve()) for path in plugins]}
        try:
            (found,) = self._started().values("compbench.sweep.matrix:reasons", arguments, Matrix)
        except Ended as end:
            raise CompbenchError(end.reason) from end
        return found

    def identities(
        self, requests: Sequence[RunRequest], *, elsewhere: Sequence[Sequence[str]] = (), pass_over: bool = False
    ) -> list[list[tuple[str, ...]]]:
        """The identities of each request's run (`EqualCode.identities`), followed by those on other devices.

        Nothing is trained.  Requests that differ only in their seed are sent once.

        Args:
            requests: the requested runs.
            elsewhere: for each request, other classes of devices, which this machine need not have; () means none.
            pass_over: return no identity for a request that cannot run here (a wrong setting, an extra that is not installed).

        Raises:
            Ended: a request is wrong and `pass_over` is false, or a process died.
        """
        keyed = [(_alike(request), tuple(own)) for request, own in zip(requests, elsewhere or repeat(()), strict=False)]
        classes: dict[str, dict[str, None]] = {}
        for key, own in keyed:
            classes.setdefault(key, {}).update(dict.fromkeys(own))
        specs: list[list[RunSpec]] = []
        for start in range(0, len(classes), AT_A_TIME):
            keys = list(classes)[start : start + AT_A_TIME]
            arguments = {"requests": keys, "elsewhere": [list(classes[key]) for key in keys], "pass_over": pass_over}
            specs += self._started().values("compbench.sweep.matrix:resolved", arguments, list[RunSpec], seconds=HOURS)
        found = dict(zip(classes, specs, strict=True))
        return [
            _ways(found[key], list(classes[key]), own, request.seed) for request, (key, own) in zip(requests, keyed, strict=True)
        ]

    def _started(self) -> Isolated:
        if self._process is None:
            self._process = Isolated(self._folder, home=self._home)
        return self._process


def _alike(request: RunRequest) -> str:
    """A request as JSON without its seed."""
    return request.model_dump_json(exclude={"seed"}, exclude_defaults=True)


def _ways(specs: Sequence[RunSpec], classes: Sequence[str], wanted: Sequence[str], seed: int) -> list[tuple[str, ...]]:
    """The identities of a run here and on the wanted classes of devices, each once.

    Args:
        specs: specs of the same run with another seed: here, and on each of `classes`; empty if it cannot run here.
    """
    if not specs:
        return []
    here, *others = specs
    of_class = dict(zip(classes, others, strict=True))
    chosen = (here, *(of_class[name] for name in wanted))
    return list(dict.fromkeys(equal_code().identities(spec.model_copy(update={"seed": seed})) for spec in chosen))


def reasons(progress: object, *, plugins: Sequence[str]) -> Iterator[Matrix]:
    """The matrix; this runs in a separate process."""
    registry = Registry(tuple(map(Path, plugins)))

    def loaded(kind: Kind) -> list[LoadResult]:
        return [found for found in map(registry.attempt, registry.entries(kind)) if found.state == "ok"]

    tasks = [found.value for found in loaded("tasks")]
    yield {found.entry.name: {task.name: why_not(found.value, task) for task in tasks} for found in loaded("methods")}


def resolved(
    progress: object, *, requests: Sequence[str], elsewhere: Sequence[Sequence[str]], pass_over: bool
) -> Iterator[list[object]]:
    """The spec of each request here and on other classes of devices; this runs in a separate process."""
    with tempfile.TemporaryDirectory() as folder, collector_paused():
        resolver = Resolver(Path(folder))
        for facts, classes in zip(requests, elsewhere, strict=True):
            request = RunRequest.model_validate_json(facts)
            try:
                specs = [resolver.spec(request), *(resolver.spec(request, device) for device in classes)]
            except CompbenchError:
                if not pass_over:
                    raise
                specs = []
            yield [spec.model_dump(mode="json") for spec in specs]


class Resolver:
    """Resolve many requests into specs while no source file changes.

    Each of these is done once: find installed plugins, hash a definition, let a referee describe itself for all methods, and
    resolve requests that differ only in their seed.

    Args:
        folder: the contestants' folder, in which nothing is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._registries: dict[tuple[str, ...], Registry] = {}
        self._hashed: Kept = {}
        self._specs: dict[str, RunSpec] = {}
        self._described: dict[str, RefereeDescribed] = {}

    def spec(self, request: RunRequest, device_class: str = "") -> RunSpec:
        """The spec that the request has here or on another class of devices.  Raises CompbenchError as a run would."""
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
        from compbench.runner.in_process import InProcessPair

        registry = self._registry(request)
        of_task = request.model_dump_json(exclude={"method"})
        known = self._described.get(of_task)
        pair = InProcessPair(request, self._folder, lambda stage, done, total: None, registry, known)
        pair.referee.draws_shots = False
        attempt = Attempt(request, Home(Path(request.home)), pair, force=True, registry=registry)
        attempt.origin_of = self._origin_of
        attempt.find()
        self._described[of_task] = attempt.referee
        return attempt.spec

    def _origin_of(self, request: RunRequest, registry: Registry, metrics: Iterable[str], device_class: str) -> tuple[str, Code]:
        """Return only the hash, because commits do not belong to an identity."""
        code = code_of(
            registry, method=request.method, task=request.task, metrics=metrics, device_class=device_class, kept=self._hashed
        )
        return code.digest, Code(parts=code.parts)
