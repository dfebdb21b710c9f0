"""Choose a method's settings by a study of Optuna, on combinations held out inside the seen ones (`nested_holdout`).

Every trial is a run in this process, in a separate store of the study: the task's own holdout is never sampled, and no record is
published.  The first trial has the default settings.  A stopped study continues where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from compbench.api.interfaces import Method, OpenTask, Source
from compbench.api.schemas import Frozen, Record, RunRequest, Tuning
from compbench.registry.meaning import code_of
from compbench.registry.registry import Registry
from compbench.registry.resolve import budget_of, settings_of, task_context, task_of, why_not
from compbench.runner.one_run import run
from compbench.store.format import clean
from compbench.store.lease import Busy
from compbench.sweep.nested_holdout import NestedRegistry
from compbench.sweep.search_space import Space, named, search_space
from compbench.system.errors import CompbenchError, Refused, Unwritable, brief, first_of
from compbench.system.files import Json, write_atomically
from compbench.system.home import Home, home_beside
from compbench.system.profiling import num_parameters

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial

INSTALL = "tuning needs Optuna: pip install 'compbench[tune]'."
MOST_PARAMETERS = 1.15
"""A trial is pruned if its network has more than this many times the default's parameters, so that rows compete at one size."""
TOO_LARGE = "too large to run"
"""Optuna's mark of a trial whose network was known to be larger before the fit; it is not run, and another takes its place."""
REFUSED = "refused settings"
"""Optuna's mark of a trial whose settings the method or the budget refuses; it is not run, and another takes its place."""
DEFAULT, STOPPED = "default settings", "stopped"
"""Optuna's marks of the trial of the default settings, and of a trial that Ctrl-C or a full disk stopped: it does not count."""
MOST_PROPOSED = 20
"""A study ends once this many times its trials were proposed, which only happens if most of the space is not run."""


class SettingsFile(Frozen):
    """The file that a study writes and `run --settings FILE` reads: the settings of a method, and their provenance."""

    method: str
    settings: dict[str, Json]
    tuning: Tuning


class Start(NamedTuple):
    """A study before its next trial: its folder's name, trials done, the search space, and why other settings are left out."""

    name: str
    done: int
    space: Space
    left: dict[str, str]


class Progress(NamedTuple):
    """A finished trial, for the listener: the number of trials done, its value (None: pruned or failed), and the best so far."""

    done: int
    value: float | None
    best: float | None
    why: str = ""


def tune(
    request: RunRequest,
    narrowed: Sequence[str],
    *,
    trials: int,
    seeds: int,
    begun: Callable[[Start], None] = lambda start: None,
    listener: Callable[[Progress], None] = lambda progress: None,
) -> tuple[SettingsFile, Path]:
    """Run a study until it has `trials` trials, and write the best settings.

    Args:
        request: method, task, preset, device and the overrides that all trials share.  Its seed is that of the nested holdout and
            of Optuna's sampler.
        narrowed: ranges that replace those from the settings' bounds (`search_space`).
        trials: number of trials, including those of earlier calls.
        seeds: number of runs of each trial; after each run, a trial that is worse than the median of earlier trials is pruned.
        begun, listener: called before the first trial, and after each.

    Returns:
        The best settings with their provenance, and the file that holds them.

    Raises:
        CompbenchError: Optuna is not installed, the search space is empty, the study is damaged, or no trial ended well.
        Refused: the method cannot work on the task.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise CompbenchError(INSTALL) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # `listener` reports progress instead
    files = tuple(map(Path, request.plugins))
    study_seed = request.seed
    registry = NestedRegistry(files, study_seed)
    method = registry.load("methods", request.method)
    task = task_of(request, registry)
    settings_of(request, method)
    if reason := why_not(method, task):
        raise Refused(f"{reason.removesuffix('.')}; `compbench info {method.name}` says where it works.")
    if method.oracle:
        raise CompbenchError(f"'{method.name}' is an oracle that uses the task's own distributions, so there is nothing to tune.")
    space, left = search_space(method, narrowed)
    if both := [name for name, _ in map(named, narrowed) if name in request.overrides]:
        raise CompbenchError(f"--search {both[0]} and --set {both[0]}: leave one out; --set gives all trials the same value.")
    space = {name: what for name, what in space.items() if name not in request.overrides}
    left = {name: why for name, why in left.items() if name not in request.overrides}
    if not space:
        raise CompbenchError(f"'{method.name}' has no setting with bounds to search; name one with --search NAME=LOW:HIGH.")
    home = Home(Path(request.home))
    source = task.source(home.data, request.source)
    name = _name(request, registry, space, seeds=seeds, source=source)
    folder = home_beside(home.root / "studies" / name, home.data)
    inside = request.model_copy(update={"home": str(folder)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            study_name=folder.name,
            storage=_journal(folder / "study.journal"),
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=study_seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        )
    if done := len(_ended(study)):
        study.sampler = optuna.samplers.TPESampler(seed=study_seed + done)  # the same seed would repeat earlier proposals
    default = _defaults(space, method, budget_of(request, task).entries())
    if default is not None and not any(DEFAULT in trial.user_attrs for trial in [*_ended(study), *_waiting(study)]):
        study.enqueue_trial(default, user_attrs={DEFAULT: True})
    begun(Start(folder.name, len(_ran(study)), space, left))
    runner = _Runner(inside, registry, space, seeds)
    while (done := len(_ran(study))) < trials and len(_ended(study)) < MOST_PROPOSED * trials:
        study.optimize(runner, n_trials=1, catch=(TrialFailed,))
        last = _ended(study)[-1]
        if not _was_run(last):
            continue
        best = study.best_value if any(trial.state.name == "COMPLETE" for trial in study.trials) else None
        value = last.value if last.state.name == "COMPLETE" else None
        listener(Progress(done + 1, value, best, str(last.user_attrs.get("why", ""))))
    plain = task_of(request, Registry(files))
    found = _outcome(request, study, len(task.holdout.cells) - len(plain.holdout.cells))
    path = folder / "settings.json"
    write_atomically(path, (found.model_dump_json(indent=1) + "\n").encode())
    return found, path


def _journal(path: Path) -> JournalStorage:
    """The storage of a study.

    A process that was killed, or whose disk was full, leaves an unfinished last line, to which Optuna would append the next one.
    The line is removed.

    Raises:
        CompbenchError: another line is damaged.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    if path.exists():
        lock = JournalFileSymlinkLock(str(path))
        lock.acquire()
        try:
            with path.open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
        finally:
            lock.release()
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except ValueError as error:
        what = f"the study's journal {path} is damaged ({brief(error)})"
        raise CompbenchError(f"{what}; move it away and try again: finished runs of its trials are kept.") from error


class TrialFailed(Exception):
    """The settings of a trial are refused, or its run fails."""


class _Runner:
    """The objective of a study: the mean energy score over the seeds of a trial.

    Raises TrialFailed, TrialPruned, or KeyboardInterrupt if the run was stopped.
    """

    def __init__(self, request: RunRequest, registry: NestedRegistry, space: Space, seeds: int) -> None:
        self._request, self._registry, self._space, self._seeds = request, registry, space, seeds
        self._opened: OpenTask | None = None

    def __call__(self, trial: Trial) -> float:
        import optuna

        chosen = {name: what.suggest(trial, name) for name, what in self._space.items()}
        trial.set_user_attr("settings", chosen)
        values: list[float] = []
        for seed in range(self._seeds):
            changes = {"overrides": {**self._request.overrides, **chosen}, "seed": seed}
            asked = self._request.model_copy(update=changes)
            if seed == 0 and (why := self._refusal(asked)):
                trial.set_user_attr(REFUSED, value=True)
                trial.set_user_attr("why", clean(why)[:300])
                raise optuna.TrialPruned
            if seed == 0 and self._is_larger(trial, "untrained parameters", self._size(asked)):
                trial.set_user_attr(TOO_LARGE, value=True)
                raise optuna.TrialPruned
            record = self._run(trial, asked)
            (score,) = (score for score in record.scores if score.primary)
            if score.value is None:
                raise self._failed(trial, score.reason)
            values.append(score.value)
            mean = sum(values) / len(values)
            trial.report(mean, seed)
            if self._is_larger(trial, "parameters", record.profile.parameters):
                trial.set_user_attr("why", "its network is larger than the default's")
                raise optuna.TrialPruned
            if seed + 1 < self._seeds and trial.should_prune():
                trial.set_user_attr("why", "worse than the median of earlier trials")
                raise optuna.TrialPruned
        return sum(values) / len(values)

    def _run(self, trial: Trial, request: RunRequest) -> Record:
        clock = time.process_time()
        try:
            outcome = run(request, in_process=True, registry=self._registry)
        except (KeyboardInterrupt, Unwritable, Busy):  # these end the study, and its settings are not to blame
            trial.set_user_attr(STOPPED, value=True)
            raise
        except CompbenchError as error:
            raise self._failed(trial, str(error)) from error
        except Exception as error:  # a method may raise anything in this process
            raise self._failed(trial, f"{type(error).__name__}: {error}") from error
        finally:
            _add_cost(trial, "cpu_seconds", time.process_time() - clock)
        record = outcome.record
        if not outcome.reused:
            _add_cost(trial, "train_flops", (record.profile.train_steps or 0) * (record.profile.flops_per_train_step or 0.0))
        if record.status == "killed":  # the study stops too
            trial.set_user_attr(STOPPED, value=True)
            raise KeyboardInterrupt
        if record.status != "ok":
            raise self._failed(trial, f"{record.status}: {record.reason}")
        return record

    def _failed(self, trial: Trial, why: str) -> TrialFailed:
        trial.set_user_attr("why", clean(why)[:300])
        return TrialFailed(why)

    def _refusal(self, request: RunRequest) -> str:
        """Why the method or the budget refuses the settings; "" if they do not."""
        try:
            settings_of(request, self._registry.load("methods", request.method))
            budget_of(request, task_of(request, self._registry))
        except CompbenchError as error:
            return str(error)
        return ""

    def _size(self, request: RunRequest) -> int | None:
        """Number of parameters of the untrained network; None if that is not known before a fit."""
        import torch

        method = self._registry.load("methods", request.method)
        if method.build is None:
            return None
        try:
            task = task_of(request, self._registry)
            if self._opened is None:
                source = task.source(Path(request.home) / "data", request.source)
                cache = Home(Path(request.home)).references
                self._opened = task.open(task_context(request, source, torch.device("cpu"), precision="fp32", cache=cache))
            problem = self._opened.problem(budget_of(request, task))
            with torch.device("meta"):
                return num_parameters(method.build(settings_of(request, method), problem))
        except Exception:  # a method may raise anything, also about the meta device; the run says what is wrong
            return None

    def _is_larger(self, trial: Trial, what: str, size: int | None) -> bool:
        """Whether a number of parameters is too far above that of the default settings, as far as their trial is known."""
        trial.set_user_attr(what, size)
        default = next((one.user_attrs.get(what) for one in _ended(trial.study) if DEFAULT in one.user_attrs), None)
        return bool(size and default and size > MOST_PARAMETERS * default)


def _add_cost(trial: Trial, name: str, amount: float) -> None:
    """Add a run's cost to its trial; it counts even if the trial is pruned or fails."""
    trial.set_user_attr(name, trial.user_attrs.get(name, 0.0) + amount)


def _ended(study: Study) -> list[FrozenTrial]:
    """Finished trials, oldest first, without those that were stopped; a trial that died with its process is not finished."""
    every = study.get_trials(deepcopy=False)
    return [trial for trial in every if trial.state.is_finished() and STOPPED not in trial.user_attrs]


def _waiting(study: Study) -> list[FrozenTrial]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "WAITING"]


def _ran(study: Study) -> list[FrozenTrial]:
    """Finished trials that were run, oldest first."""
    return [trial for trial in _ended(study) if _was_run(trial)]


def _was_run(trial: FrozenTrial) -> bool:
    return not {TOO_LARGE, REFUSED} & trial.user_attrs.keys()


def _defaults(space: Space, method: Method, budget: Mapping[str, Json]) -> dict[str, Json] | None:
    """The default of each setting in the search space, in Optuna's form; None if one is outside of the space."""
    found: dict[str, Json] = {}
    for name, what in space.items():
        default = (
            budget[name.removeprefix("budget.")] if name.startswith("budget.") else method.settings.model_fields[name].default
        )
        own = what.parameters(name, default)
        if own is None:
            return None
        found |= own
    return found


def _name(request: RunRequest, registry: NestedRegistry, space: Space, *, seeds: int, source: Source) -> str:
    """The study's name: another method, task, space, code, data or number of seeds makes another study."""
    method, task = registry.load("methods", request.method), registry.load("tasks", request.task)
    code = code_of(registry, method=request.method, task=request.task, metrics=())
    facts: dict[str, Json] = {
        "space": {name: [type(what).__name__, *what] for name, what in space.items()},
        "overrides": request.overrides,
        "versions": [method.version, task.version],
        "code": dict(code.parts),
        "data": [source.kind, source.fingerprint],
        "precision": request.precision,
        "seeds": [seeds, request.seed],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{request.task}.{request.method}.{request.preset}.{digest[:12]}"


def _outcome(request: RunRequest, study: Study, num_cells: int) -> SettingsFile:
    """The best trial's settings.  Raises CompbenchError if no trial ended well."""
    import optuna

    ended = _ran(study)
    complete = [trial for trial in ended if trial.state.name == "COMPLETE"]
    if not complete:
        said = [trial.user_attrs["why"] for trial in _ended(study) if "why" in trial.user_attrs]
        why = said[-1] if said else "no trial was run"
        raise CompbenchError(f"none of {len(ended)} trials of '{request.method}' on '{request.task}' ended well: {why}")
    best = min(complete, key=lambda trial: math.inf if trial.value is None else trial.value)
    assert best.value is not None
    default = next((trial.value for trial in complete if DEFAULT in trial.user_attrs), None)
    tuning = Tuning(
        task=request.task,
        preset=request.preset,
        trials=len(ended),
        pruned=sum(trial.state.name == "PRUNED" for trial in ended),
        failed=sum(trial.state.name == "FAIL" for trial in ended),
        objective=f"energy score of {'nested held-out' if num_cells else 'seen'} combinations",
        num_cells=num_cells,
        value=best.value,
        default_value=default,
        train_flops=sum(trial.user_attrs.get("train_flops", 0.0) for trial in ended),
        cpu_seconds=sum(trial.user_attrs.get("cpu_seconds", 0.0) for trial in ended),
        sampler=f"Optuna {optuna.__version__}, TPE, median pruner",
    )
    return SettingsFile(method=request.method, settings={**request.overrides, **best.user_attrs["settings"]}, tuning=tuning)


def read_settings(path: Path, method: str) -> SettingsFile:
    """A file of `compbench tune`.

    Raises:
        CompbenchError: the file cannot be read, has another format, or belongs to another method.
    """
    try:
        found = SettingsFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CompbenchError(f"--settings {path}: {error.strerror}.") from error
    except ValidationError as error:
        raise CompbenchError(f"--settings {path}: this file was not written by `compbench tune`: {first_of(error)}.") from error
    if found.method != method:
        raise CompbenchError(f"--settings {path}: these are settings of '{found.method}', and --method is '{method}'.")
    return found
