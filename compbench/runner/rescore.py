"""Score without training: a record's kept samples or weights, or samples and weights from other sources.

    record + runs/IDENTITY/samples.npz | model.safetensors  --today's task and metrics-->  a new record that names the first
    samples.npz | weights from elsewhere                    --the same evaluation------->  a record of level `samples only`

Nothing is overwritten.  The new record refers to the fit of the first record, so all code except the task's and the metrics' must
be unchanged, and every score of an unchanged version must stay the same; otherwise rescoring is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from safetensors import SafetensorError, safe_open

from compbench.api.schemas import Plugin, Record, RunRequest, RunSpec
from compbench.registry.checkout import registry_of, task_origin
from compbench.registry.meaning import UNKNOWN, difference_in_words, differing_from
from compbench.registry.meaning import Code as Meaning
from compbench.registry.registry import Registry
from compbench.registry.resolve import check_same
from compbench.runner.attempt import Attempt, Ending, Outcome, Pair
from compbench.runner.audit import Listener, Watch
from compbench.runner.fit_cache import FIT_FILE
from compbench.runner.messages import (
    OF_THE_REFEREE,
    WARM_UP,
    ContestantDescribed,
    Fit,
    Fitted,
    M,
    Measure,
    Measured,
    Message,
    Opened,
    RefereeDescribed,
)
from compbench.runner.one_run import ProcessPair, processes_of
from compbench.runner.reproduce import compare, margin_of, request_of
from compbench.store.records import read_result
from compbench.store.samples import SAMPLES_FILE, Recorder, read_pool, write_pool
from compbench.store.verification import RELATIVE
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, file_sha256, publish
from compbench.system.home import Home, scratch_folder

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.api.interfaces import Request

WEIGHTS_FILE = "model.safetensors"
MAY_DIFFER = frozenset({"metrics", "task"})
"""Parts of the code that may differ, because they only score; a task with new training data has a new version and is refused."""
ASKED = ("conditions", "stream", "x0", "known")
OF_THE_FIT = ("pooled_silos", "oracle", "resumed", "notes", "plugin", "given", "structure", "sealed", "tuning", "losses")
"""Fields of a record that say how its model came about; new scores of it change none of them."""
LOG = logging.getLogger("compbench.score")


def rescore(
    path: Path,
    home: Home,
    *,
    plugins: tuple[Path, ...] = (),
    metrics: tuple[str, ...] = (),
    listener: Listener = lambda *facts: None,
) -> Outcome:
    """Score a record's kept samples or weights with today's metrics.

    Args:
        path: path of the record.
        home: home with its run's folder; the new record goes there.
        plugins: files of methods that are not installed.
        metrics: additional metrics of other packages.
        listener: called with (stage, done, total).

    Returns:
        the new record; `reused` if nothing has changed since, or if it was rescored before.  A score that was unavailable for
        lack of a library is computed if the library is now installed.

    Raises:
        CompbenchError: neither samples nor weights were kept, the method is not installed, or the kept files do not give the
        record's scores today.
    """
    source = read_result(path)
    if source.samples_only:
        raise CompbenchError(f"{path.name} holds samples from elsewhere; use `compbench score` to score them again.")
    registry_of(source, plugins)
    kept = kept_of(source, home)
    files = tuple(str(file.resolve()) for file in plugins)
    request = request_of(source.spec, home.root, source.environment.threads)
    more = tuple(dict.fromkeys((*request.metrics, *metrics)))
    request = request.model_copy(update={"plugins": files, "metrics": more})
    if kept.name == SAMPLES_FILE:
        with scratch_folder(home.root) as folder:
            replay = ReplayPair(request, folder, kept, source, listener)
            return _Again(request, home, replay, source=source, kept=kept).run()
    with processes_of(home) as processes:
        pair = ProcessPair(request, processes, listener, lambda: None)
        return _Again(request, home, pair, source=source, kept=kept).run()


def lacking_a_library(record: Record) -> set[str]:
    """Names of the scores that are unavailable because a library is missing; installing the library changes no identity."""
    return {score.name for score in record.scores if score.value is None and "pip install" in score.reason}


def kept_of(record: Record, home: Home) -> Path:
    """The samples of a record's run, else its weights.  Raises CompbenchError if there are none here."""
    folder = home.runs / record.identity
    for name in (SAMPLES_FILE, WEIGHTS_FILE):
        if (folder / name).is_file():
            return folder / name
    raise CompbenchError(
        f"nothing is kept of {record.name}: {folder} has neither {SAMPLES_FILE} (`run --keep-samples`) nor {WEIGHTS_FILE}."
    )


def score_samples(
    request: RunRequest,
    samples: Path,
    *,
    value_range: tuple[float, float] | None = None,
    listener: Listener = lambda *facts: None,
) -> Outcome:
    """Score samples from another source; the record has level `samples only`.

    Args:
        request: task, preset and seed; its method is the name of the samples.
        samples, value_range: as for `store.samples.read_pool`.

    Raises:
        CompbenchError: what is wrong with the samples.
    """
    home = Home(Path(request.home))
    with scratch_folder(home.root) as folder:
        pair = ReplayPair(request, folder, samples, None, listener, value_range=value_range)
        outcome = _Samples(request, home, pair).run()
        if pair.num_unused and not outcome.reused:
            LOG.warning("%d of the samples were not requested and not used", pair.num_unused)
        return outcome


def score_weights(request: RunRequest, weights: Path, *, listener: Listener = lambda *facts: None) -> Outcome:
    """Score weights from another source for a method that has `build`; the record has level `samples only`.

    Raises:
        CompbenchError: the weights do not fit the method, or cannot be read.
    """
    home = Home(Path(request.home))
    if not os.path.isfile(weights):
        raise CompbenchError(f"--weights {weights}: there is no such file.")
    try:
        with safe_open(weights, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise CompbenchError(f"--weights {weights}: this is not a whole safetensors file ({str(error)[:100]}).") from error
    with processes_of(home) as processes:
        return _Weights(request, home, ProcessPair(request, processes, listener, lambda: None), kept=weights).run()


def write_requests(request: RunRequest, file: Path, *, listener: Listener = lambda *facts: None) -> int:
    """Write what a task's evaluation asks for: "conditions" (N, F), "stream" (N,), noise "x0" and "known" entries (N, *D).

    Returns:
        N.
    """
    from compbench.runner.referee import Referee

    recorder = Recorder()
    with scratch_folder(Home(Path(request.home)).root) as folder:
        referee = Referee(request, folder, progress=listener, note=recorder.note)
        referee.describe()
        referee.prepare()
        referee.evaluate(lambda asked, stream, follow=0: asked.x0 if asked.known is None else _filled(asked))
    arrays = recorder.arrays(*ASKED)
    write_pool(file, arrays)
    return len(arrays["conditions"])


def _filled(asked: Request) -> Tensor:
    import torch

    assert asked.known is not None
    assert asked.known_mask is not None
    return torch.where(asked.known_mask, asked.known, asked.x0)


class _Untrained(Attempt):
    """An attempt without a fit; on an error no record is written, and a stop remains a KeyboardInterrupt."""

    def __init__(self, request: RunRequest, home: Home, pair: Pair, *, kept: Path | None = None) -> None:
        self.kept = kept
        super().__init__(request, home, pair)

    def _stages(self) -> None:
        self._prepare()
        self._open()
        self.pair.ask(Fit(kept=self._handed_over()), Fitted)
        self._evaluate()
        self.facts = self.pair.ask(Measure(), Measured).facts

    def _handed_over(self) -> str:
        """The path of the weights, copied to where the contestant can read them; "" if there are none."""
        if self.kept is None or self.kept.name == SAMPLES_FILE:
            return ""
        place = self._lent / FIT_FILE
        publish(self.kept, place)
        return str(place)

    def _record(self, ending: Ending) -> Outcome:
        if ending.status == "killed":
            raise KeyboardInterrupt
        if ending.status != "ok":
            raise CompbenchError(ending.reason)
        return super()._record(ending)

    def _written_down(self, ending: Ending) -> Record:
        return super()._written_down(ending).model_copy(update=self._origins())

    def _origins(self) -> dict[str, Json]:
        """The origin of the samples, for the record."""
        return {"samples_only": True}


class _Again(_Untrained):
    """A record's own samples or weights."""

    def __init__(self, request: RunRequest, home: Home, pair: Pair, *, source: Record, kept: Path) -> None:
        self.source = source
        super().__init__(request, home, pair, kept=kept)

    def _spec(self) -> RunSpec:
        spec, source = super()._spec(), self.source
        check_same(spec, source.spec)
        differing = differing_from(source, Meaning(spec.code, self.code.parts))
        versions = {name: (getattr(source.spec, name), getattr(spec, name)) for name in ("task_version", "method_version")}
        for name, (was, now) in versions.items():
            if was != now:
                raise CompbenchError(f"{source.name} has {name.replace('_', ' ')} {was}, here it is {now}: run it again.")
        if differing == (UNKNOWN,) or not set(differing) <= MAY_DIFFER:
            raise CompbenchError(f"{source.name} cannot be scored again: {difference_in_words(differing)}; run it again.")
        return spec

    def _finished(self) -> Outcome | None:
        finished = super()._finished()
        return None if finished is not None and lacking_a_library(finished.record) else finished

    def _stages(self) -> None:
        super()._stages()
        again = self.source.model_copy(update={"scores": self.scores})
        registry = Registry()
        found = compare(self.source, again, margin=lambda metric: margin_of(registry, metric), tolerance=RELATIVE)
        for entry in found.compared:
            if not entry.agrees:
                raise CompbenchError(
                    f"what is kept of {self.source.name} gives a {entry.name} of {entry.found:.6g}, the record says "
                    f"{entry.submitted:.6g}: what is kept does not belong to the record."
                )
        assert self.kept is not None
        if self.kept.parent != self.folder:
            publish(self.kept, self.folder / self.kept.name)

    def _record(self, ending: Ending) -> Outcome:
        finished = super()._finished()
        if finished is not None and ending.status == "ok":
            still = {score.name for score in self.scores if score.value is None}
            if lacking_a_library(finished.record) <= still:
                return finished
        return super()._record(ending)

    def _origins(self) -> dict[str, Json]:
        source = self.source
        copied = {name: getattr(source, name) for name in OF_THE_FIT}
        profile = source.profile.model_copy(update={"stages": ()})
        return {**copied, "profile": profile, "rescored": source.rescored or source.name}


class _Samples(_Untrained):
    """Samples from another source; only the code of task and metrics counts."""

    plugin_of, origin_of = staticmethod(lambda request, registry: Plugin()), staticmethod(task_origin)


class _Weights(_Untrained):
    """Weights from another source for an installed method."""

    def _spec(self) -> RunSpec:
        spec = super()._spec()
        assert self.kept is not None
        return spec.model_copy(update={"settings": {**spec.settings, "weights_sha256": file_sha256(self.kept)}})


class ReplayPair:
    """A referee in this process with stored samples instead of a contestant; no plugin code runs.

    Args:
        folder: folder for the referee's pictures.
        samples: file or folder of samples.
        source: the record that the samples belong to; None for samples from another source.
    """

    predecessors, deadline = 0, float("inf")

    def __init__(
        self,
        request: RunRequest,
        folder: Path,
        samples: Path,
        source: Record | None,
        listener: Listener,
        *,
        value_range: tuple[float, float] | None = None,
    ) -> None:
        from compbench.runner.referee import Referee

        self.alarm: Callable[[], None] = lambda: None
        self.watch = Watch(listener)
        self.contestant_folder, self.referee_folder = folder / "contestant", folder / "referee"
        self._request, self._samples, self._source = request, samples, source
        self._range = value_range
        self._referee = Referee(request, self.referee_folder, progress=listener)

    @property
    def num_unused(self) -> int:
        """The number of samples that the evaluation did not ask for."""
        return self._pool.num_unused

    def describe(self) -> tuple[ContestantDescribed, RefereeDescribed]:
        found = self._referee.describe()
        task = self._referee.task
        as_kept = (-1.0, 1.0) if self._source is not None and task.event.kind == "image" else None  # a run's own
        self._pool = read_pool(self._samples, task.space, task.event, negates=task.negates, value_range=self._range or as_kept)
        own: dict[str, Json] = {"settings": {"samples_sha256": self._pool.sha256}, "method_version": 1, "file_sha256": ""}
        if self._source is not None:
            spec = self._source.spec
            files = tuple(map(Path, self._request.plugins))
            sha256 = Registry(files).entry("methods", spec.method).sha256
            own = {"settings": spec.settings, "method_version": spec.method_version, "file_sha256": sha256}
        return ContestantDescribed(**own, oracle=False, budget=found.budget, task_settings=found.task_settings), found

    def ask(self, order: Message, kind: type[M]) -> M:
        import torch

        facts: dict[str, Json] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        answers = (Opened(fit=None), Fitted(shared=True), Measured(profile={}, facts=facts))
        if isinstance(order, OF_THE_REFEREE):
            return cast(M, self._referee.obey(order, self._answer))
        return next(answer for answer in answers if isinstance(answer, kind))

    def _answer(self, request: Request, stream: str, follow: int = 0) -> Tensor:
        """The next samples of the pool; a request that warms up a GPU is not scored and uses no sample."""
        return request.x0 if stream == WARM_UP else self._pool.answer(request, stream)

    def is_outdated(self) -> bool:
        return False

    def stop(self, *, gracefully: bool = False) -> None: ...

    def log(self) -> str:
        return ""
