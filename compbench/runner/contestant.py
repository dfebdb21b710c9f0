"""The contestant loads the plugin, fits, answers requests and measures itself.  It runs in its own process.

All plugin code runs here; the referee and the parent never run it.  The contestant writes only to its own folder, from which
the parent publishes what is kept.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from compbench.api.context import Checkpoints, Context, NoCheckpoints, Notes, seed_of
from compbench.api.interfaces import Extension, Method, Problem, Request
from compbench.api.schemas import ExtensionProfile, RunRequest, Stage
from compbench.flow.compiled_sampling import CompiledSampling, compiled_sampling
from compbench.registry.registry import Registry
from compbench.registry.resolve import budget_of, settings_of, task_context, task_of, why_not
from compbench.runner import compiled_code, counted, training_curve
from compbench.runner.checkpoints import FileCheckpoints
from compbench.runner.cost_probe import probed
from compbench.runner.fit_cache import FIT_FILE, facts_of_fit
from compbench.runner.messages import WARM_UP, ContestantDescribed, Fit, FitCost, Fitted, Measured, Message, Open, Opened
from compbench.runner.structure import structure_of
from compbench.store import conditions, counts
from compbench.store.loss_curves import LossCurves
from compbench.system import condition_counts, devices, profiling
from compbench.system.bf16 import arithmetic
from compbench.system.errors import Cancelled, CompbenchError, Refused
from compbench.system.files import Json, load_tensors, publish, remove_tree, save_tensors
from compbench.system.home import Home
from compbench.system.plugin_folder import lent_to

if TYPE_CHECKING:
    from torch import Tensor


COMPILE_FROM = 1_000
"""Compiling a network on a GPU pays off if the fit has at least this many steps; an uncached UNet takes a minute to compile."""

_AT_IMPORT: dict[str, counted.Tally] = {}
"""Training done by each method's import in this process; it counts in every later run of a chain."""
PROBE_ROWS = 2
"""Number of samples drawn under the FLOP counter if no request of the run can be repeated."""


class Contestant:
    """One method on one task: `describe`, `open`, `fit`, then `sample` for each request, then `measure`.

    In its `folder`, `run` has checkpoints, weights and traces, and `cache` has what is computed from the data.  Read-only files
    from the parent are next to this folder (`lent_to`).
    """

    def __init__(
        self,
        request: RunRequest,
        folder: Path,
        *,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
        registry: Registry | None = None,
    ) -> None:
        self.request, self.progress, self.cancelled = request, progress, cancelled
        self.own, self.folder = folder, folder / "run"
        self.registry = registry or Registry(tuple(Path(file) for file in request.plugins))
        self.stages: list[Stage] = []
        self.extension: ExtensionProfile | None = None
        self._sampling = Stage(name="sample", seconds=0.0)
        self._streams: dict[str, torch.Generator] = {}
        self._notes = Notes()
        self._losses = LossCurves()
        self._counts: dict[str, float] = {}
        self._regressed: tuple[int, ...] = ()
        self._asked: tuple[float, ...] = ()
        self._steps = 0
        self._stop: int | None = None
        self._fitted = False
        self._counting = contextlib.ExitStack()  # open from the moment that the method gets the problem to the end of the run
        self._tally, self._at_fitted = counted.Tally(), counted.Tally()
        self._answers = counted.Answers()
        self._smallest: dict[bool, Request] = {}
        self._compiled: CompiledSampling | None = None
        self.model: object = None

    def describe(self) -> ContestantDescribed:
        """Load plugin and task.  Raises CompbenchError, or Refused if the method cannot work on the task."""
        with self._stage("imports"):
            entry = self.registry.entry("methods", self.request.method)
            self.method: Method = self._imported()
            self.oracle = bool(self.method.oracle)
            self.task = task_of(self.request, self.registry)
            self.settings = settings_of(self.request, self.method)
            self.budget = budget_of(self.request, self.task)
            if reason := why_not(self.method, self.task):
                where = "" if entry.version == "file" else f"; compbench list {self.method.name} --matrix shows where it works"
                raise Refused(f"{reason.removesuffix('.')}{where}.")
        return ContestantDescribed(
            settings=self.settings.model_dump(mode="json"),
            method_version=self.method.version,
            oracle=self.oracle or "symmetry" in self.method.needs or self.method.ignores_condition,
            file_sha256=entry.sha256,
            budget=self.budget,
            task_settings=self.task.settings.model_dump(mode="json"),
        )

    def _imported(self) -> Method:
        """The method; training during its import is counted in each run of the process."""
        own = _AT_IMPORT.setdefault(self.request.method, counted.Tally())
        with own.counting_steps():
            method = self.registry.load("methods", self.request.method)
        self._tally = own.copy()
        return method

    def obey(self, order: Message) -> Message:
        """Carry out one of the parent's orders: `Open`, `Fit` or `Measure`."""
        if isinstance(order, Open):
            return self.open(order)
        with self._no_way_out(), arithmetic(self.device, self.precision):
            return self.fit(order) if isinstance(order, Fit) else self.measure()

    @contextlib.contextmanager
    def _no_way_out(self) -> Iterator[None]:
        """Let a method refuse only before it sees an example, and stop only when it is asked to.

        A Refused or Cancelled at any other time becomes a CompbenchError, so the run fails.
        """
        try:
            yield
        except Refused as error:
            if self._fitted or self._tally.examples:
                seen = f"{self._tally.examples:,} examples were drawn by then"
                raise CompbenchError(f"{error} The method refused too late: {seen}.") from error
            raise
        except Cancelled as error:
            if not self.cancelled():
                raise CompbenchError("The method raised Cancelled, but the run had not been asked to stop.") from error
            raise

    def open(self, order: Open) -> Opened:
        """Open the task's data; return what the fit depends on, if other runs may share the fit."""
        with self._stage("setup"):
            self.device, self.precision = devices.resolve(order.device), order.precision
            if self.budget.train_steps and not self.oracle:  # otherwise the first optimiser would do this during the timed fit
                torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        devices.set_up(self.device, self.precision)
        self._take_what_is_lent()
        self._tracer = profiling.Tracer(self.folder / "trace.json" if self.request.trace else None)
        context = task_context(self.request, order.source, self.device, precision=self.precision, cache=self.own / "cache")
        with self._stage("data"):
            problem = self.task.open(context).problem(self.budget)
        self._counting.enter_context(self._tally.counting_steps())
        self.problem = counted.counted(problem if self.oracle else replace(problem, oracle=None), self._tally)
        self.final = self.problem.extension.problem if self.problem.extension else self.problem
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            compiled_code.take_up(lent_to(self.own))
        self.checkpoints = FileCheckpoints(
            self.folder / "checkpoint.safetensors", resume=order.resume, curves=self._losses, tally=self._tally
        )
        if self.method.shared_fit is None:
            return Opened(fit=None)
        own, place = self.method.shared_fit(self.settings, self.problem), devices.device_class(self.device)
        facts = facts_of_fit(own, request=self.request, task=self.task, budget=self.budget, order=order, device_class=place)
        return Opened(fit=facts)

    def _take_what_is_lent(self) -> None:
        """Start with an empty folder: copy the checkpoints from the parent, and link to the data that runs share."""
        remove_tree(self.folder)
        self.folder.mkdir(parents=True)
        for path in lent_to(self.own).glob("checkpoint*"):
            publish(path, self.folder / path.name)
        Home(Path(self.request.home)).link_data(self.own / "cache")

    def fit(self, order: Fit) -> Fitted:
        """Fit the method, or take a fit that another run made; then the second stage of an extension task."""
        if order.kept:
            return self._keep_model(Path(order.kept))
        early = self._tally.copy()
        shared = bool(order.shared) and self._taken_from(order)
        if shared:
            fitted = early
        else:
            early = self._tally.copy()
            with condition_counts.counting() as regressed:
                self._stop_at(order.stops)
                self.model = self._fit("fit", self.problem, self.checkpoints)
            fitted = self._tally.copy()
            taken, parts = fitted.since(early), 1 + len(order.stops)
            self._regressed = counted.regressed(regressed, self.problem, taken)
            self._counts |= counted.counts(self.problem, taken, before=early, reported=self._steps, parts=parts)
            self._counts |= counted.earlier(self.checkpoints.earlier)
            if self.method.shared_fit is not None and isinstance(self.model, torch.nn.Module):
                save_tensors(self.folder / FIT_FILE, self.model.state_dict(), {})
                self.model = self._shared_part(self.folder / FIT_FILE)  # in the layout of a loaded fit, for bit-identical sums
        lasting = dict(self._counts)  # counts of the part that other methods may load
        if self.method.parts is not None:
            self.model = self.method.parts.finish(self.settings, self.problem, self.model)
        self._counts = counted.increased(self._counts, self._tally.since(fitted))
        if shared:
            self._counts = counted.increased(self._counts, early, "early_")
        cost = FitCost(
            cpu_seconds=sum(stage.cpu_seconds for stage in self.stages if stage.name == "fit"),
            train_steps=self._steps,
            ledger=self.problem.federation.ledger(),
            curves=self._losses.state(),
            regressed=self._regressed,
            counts=lasting,
        )
        if self.problem.extension is not None:
            early = self._tally.copy()
            with condition_counts.counting() as regressed:
                self._extend(self.problem.extension)
            self._regressed = counted.regressed(regressed, self.final, self._tally.since(early))
        self._tracer.close()
        if isinstance(self.model, torch.nn.Module):
            facts = {"method": self.method.name, "task": self.task.name, "settings": self.settings.model_dump(mode="json")}
            save_tensors(self.folder / "model.safetensors", self.model.state_dict(), facts)
        self.checkpoints.clear()
        self._begin_sampling()
        return Fitted(shared=shared, cost=cost)

    def _shared_part(self, weights: Path) -> torch.nn.Module:
        """The shared fit, or the shared part of a fit, with stored weights.  Raises RuntimeError if the weights do not fit."""
        return self._loaded((self.method.parts or self.method).build, weights, self.problem)

    def _loaded(self, build: Callable[..., torch.nn.Module] | None, weights: Path, problem: Problem) -> torch.nn.Module:
        """The model that `build` makes for a problem, with stored weights.  Raises RuntimeError if the weights do not fit."""
        assert build is not None
        model = build(self.settings, problem).to(self.device)
        model.load_state_dict(load_tensors(weights)[0])
        return model.eval()

    def _keep_model(self, weights: Path) -> Fitted:
        """Load the weights of a finished model.  Raises CompbenchError if the method cannot load them."""
        name = self.method.name
        if self.method.build is None:
            raise CompbenchError(f"method '{name}' has no `build`, so weights cannot be loaded into it; samples can be scored.")
        try:
            self.model, self._streams = self._loaded(self.method.build, weights, self.final), {}
        except RuntimeError as error:
            why = " ".join(str(error).split())[:200]
            raise CompbenchError(f"the weights do not fit '{name}' with these settings and this budget: {why}") from error
        self._begin_sampling()
        return Fitted(shared=True)

    def _begin_sampling(self) -> None:
        self._fitted, self._at_fitted = True, self._tally.copy()
        self._compiled = compiled_sampling(self.model, self.device)

    def _taken_from(self, order: Fit) -> bool:
        """Load a shared fit; return False if its weights do not match the method or its use of the silos is not known."""
        cost = order.cost
        assert cost is not None
        try:
            self.model = self._shared_part(Path(order.shared))
            self.problem.federation.restore(cost.ledger)
        except (CompbenchError, RuntimeError):
            return False
        self._steps, self._counts = cost.train_steps, dict(cost.counts)
        self.stages.append(Stage(name="fit", seconds=cost.seconds, cpu_seconds=cost.cpu_seconds))
        self._losses.restore(cost.curves)
        self._regressed = cost.regressed
        self._notes.add("fit", 1, {"shared": 1.0})
        return True

    def sample(self, request: Request, stream: str = "", follow: int = 0) -> Tensor:
        """Answer one request and time it; the samples are returned on the CPU, and the referee checks them.

        At a warm-up the networks are compiled if enough requests of the same shape `follow` it.
        """
        if stream not in self._streams:
            self._streams[stream] = self._generator(f"sample {stream}")
        context = self._context(self._streams[stream])
        answer, passes = partial(self._answer, _on(self.device, request), context), self._tally.backward_passes
        if stream == WARM_UP:
            with self._stage("warm_up"):
                samples = self._compiled.warmed_up(answer, follow) if self._compiled else answer()
        else:
            with profiling.timed(self.device) as clock:
                samples = answer()
            before = self._sampling
            seconds, cpu_seconds = before.seconds + clock.wall[0], before.cpu_seconds + clock.cpu[0]
            self._sampling = Stage(name="sample", seconds=seconds, cpu_seconds=cpu_seconds)
            self._notes.add(stream, len(request.x0), context.notes)
            kept = self._smallest.get(request.known is not None)
            if kept is None or len(request.x0) < len(kept.x0):
                self._smallest[request.known is not None] = request
        taken = self._tally.backward_passes - passes
        self._answers.add(taken, len(request.x0), known=request.known is not None, warm_up=stream == WARM_UP)
        if not hasattr(samples, "detach"):
            raise CompbenchError(f"'{self.method.name}' returned a {type(samples).__name__} as samples, not a tensor.")
        return samples.detach().to("cpu")

    def _answer(self, asked: Request, context: Context) -> Tensor:
        inpaint = self.task.inpaint if asked.known is not None else None
        around = contextlib.nullcontext() if inpaint is None else inpaint(self.model, context.generator)
        with self._no_way_out(), arithmetic(self.device, self.precision), around:
            try:
                return self.method.sample(self.settings, self.model, asked, context)
            except Exception as error:
                if self.model is None and "NoneType" in str(error):
                    raise CompbenchError(f"fit of '{self.method.name}' returned None; let it return the model.") from error
                raise

    def measure(self) -> Measured:
        """The costs that only the contestant can count, and its environment for the record."""
        self._counting.close()
        if self._compiled is not None:
            self._notes.add("sample", 1, self._compiled.note)
            self._compiled.undo()
        if self.device.type == "cuda":
            compiled_code.leave(self.folder)
        profile, facts = self._profile(), self.facts()
        if not self.oracle and (found := structure_of(self.model, self.problem, self.device, self.request.seed)):
            facts["structure"] = found.model_dump(mode="json")
        return Measured(profile=profile, facts=facts)

    def _profile(self) -> dict[str, Json]:
        """Stages, steps, parameters, memory, FLOPs, and communication of silos.  The parent and the referee measure rates."""
        facts: dict[str, Json] = {
            "train_steps": self._steps,
            "parameters": profiling.num_parameters(self.model),
            "peak_memory_bytes": profiling.peak_memory(self.device),
            "evaluations_per_sample": self._declared(),
            **self._flops(),
        }
        facts["stages"] = [stage.model_dump() for stage in (*self.stages, self._sampling)]
        if self.extension:
            facts["extension"] = self.extension.model_dump()
        federation = self.problem.federation
        if len(federation) > 1 and not federation.was_pooled:
            facts["silos"] = [vars(account) for account in federation.accounts]
        return {key: value for key, value in facts.items() if value is not None}

    def facts(self) -> dict[str, Json]:
        """The contestant's environment, for the record."""
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "packages": {name: sys.modules[name].__version__ for name in ("numpy", "safetensors", "h5py") if name in sys.modules},
            "pooled_silos": self.problem.federation.was_pooled,
            "resumed": self.checkpoints.resumed,
            "losses": [curve.model_dump(mode="json") for curve in self._losses.found()],
            "notes": {
                **self._notes.means(),
                **counts.noted(self._counts, self._declared()),
                **conditions.noted(self._regressed, self._asked),
            },
        }

    def _declared(self) -> int | None:
        """The number of network evaluations per sample that the method declares."""
        return None if self.method.evaluations is None else self.method.evaluations(self.settings, self.final)

    def _stop_at(self, stops: Sequence[int]) -> None:
        """Stop the fit at each of some steps and save the weights; the fit continues from its checkpoint."""
        build = self.method.build and partial(self.method.build, self.settings, self.problem)
        for step in stops:
            self._stop = step
            fit = partial(self._fit, "fit", self.problem, self.checkpoints)
            net = training_curve.stopped(fit, self.checkpoints.path, build, self.method.name)
            if self.cancelled():
                raise Cancelled("stopped.")
            save_tensors(training_curve.path_of(self.folder, step), net.state_dict(), {"step": step})
            self.checkpoints = self.checkpoints.going_on()
        self._stop = None

    def _fit(self, stage: str, problem: Problem, checkpoints: FileCheckpoints) -> object:
        with self._stage(stage):
            context = self._context(self._generator(stage), checkpoints, stage=stage)
            if context.compile:
                torch.compiler.reset()  # torch compiles at most eight shapes of a network per process
            model: object = ((stage == "fit" and self.method.parts) or self.method).fit(self.settings, problem, context)
        self._notes.add(stage, 1, context.notes)
        return model

    def _extend(self, extension: Extension) -> None:
        """The second stage: the method's own extension, or a new fit, whose whole cost then counts as the extension's."""
        base_seconds, before = self.stages[-1].seconds, profiling.tensor_hashes(self.model)
        base_parameters, started = profiling.num_parameters(self.model) or 0, self._tally.copy()
        checkpoints = self.checkpoints.part("extend")
        if self.method.extend is None:
            self.model = self._fit("extend", extension.problem, checkpoints)
        else:
            context = self._context(self._generator("extend"), checkpoints, stage="extend")
            with self._stage("extend"):
                self.model = self.method.extend(self.settings, self.model, extension.factor, extension.problem, context)
        checkpoints.clear()
        parameters, retrained = profiling.num_parameters(self.model) or 0, self.method.extend is None
        if self._counts:
            self._counts |= counted.extension(extension.problem, self._tally.since(started), retrained=retrained)
        seconds = self.stages[-1].seconds
        known = isinstance(self.model, torch.nn.Module) and not retrained
        self.extension = ExtensionProfile(
            mode="retrained" if retrained else "extended",
            new_parameters=parameters if retrained else parameters - base_parameters,
            seconds=seconds,
            share_of_base=seconds / max(base_seconds, 1e-9),
            frozen_identical=before <= profiling.tensor_hashes(self.model) if known else None,
        )

    def _context(self, generator: torch.Generator, checkpoints: Checkpoints | None = None, *, stage: str = "") -> Context:
        """The context that the harness gives the method; in a `stage`, steps are counted and losses kept."""
        context = Context(
            device=self.device,
            precision="bf16" if self.precision == "bf16" else "fp32",
            generator=generator,
            checkpoints=checkpoints or NoCheckpoints(),
            cancelled=lambda: self.cancelled() or (self._stop is not None and self._steps >= self._stop),
            compile=self.device.type == "cuda" and self.budget.train_steps >= COMPILE_FROM,
        )

        def progress(done: int, total: int) -> None:
            if stage == "fit":
                self._steps = done
                self._tracer.step(done)
            self.progress(stage, done, total)

        if stage:
            whole = context.checkpoints.name
            context.progress = progress
            context.watched = lambda part, window: self._losses.add(stage + part.removeprefix(whole), window)
            self._losses.begin()
        return context

    def _generator(self, purpose: str) -> torch.Generator:
        """The generator for one purpose; torch's global generator, which draws initial weights, is seeded too."""
        seed = seed_of(f"{self.request.seed} {purpose}")
        torch.manual_seed(seed)
        return torch.Generator().manual_seed(seed)

    def _flops(self) -> dict[str, float]:
        """FLOPs of a sample and of a training step; the number of evaluations per sample goes into the counts."""
        condition = torch.zeros(PROBE_ROWS, len(self.final.space), dtype=torch.long)
        asked = self._smallest.get(False) or Request(condition, torch.zeros(PROBE_ROWS, *self.task.event.shape))

        def context() -> Context:
            found = self._context(self._generator("probe"))
            found.compile = False
            return found

        ended = self._tally.copy()  # the probe draws examples too
        found = probed(
            self.method, self.settings, self.model, self.problem, _on(self.device, asked), context, trained=self._steps
        )
        if self._counts:
            self._counts["granted_backward_passes"] = counted.granted_passes(self._counts, found.step_passes)
            again = {False: (found.request_passes, len(asked.x0))}
            if (inpainted := self._smallest.get(True)) is not None and self._answers.some(known=True):
                with (passes := counted.Tally()).counting_steps():
                    self._answer(_on(self.device, inpainted), context())
                again[True] = passes.backward_passes, len(inpainted.x0)
            self._counts |= counted.late(ended, fitted=self._at_fitted, answers=self._answers, again=again)
        if self._counts and not self.oracle and self.problem.extension is None and found.evaluations is not None:
            self._counts["evaluations"] = found.evaluations  # an extension changes the network of the first stage
        self._asked = found.asked
        return {"flops_per_sample": found.per_sample, "flops_per_train_step": found.per_train_step}

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Time a block as a stage of the run, however it ends."""
        try:
            with profiling.timed(getattr(self, "device", None)) as clock:  # there is no device before `open`
                yield
        finally:
            self.stages.append(Stage(name=name, seconds=clock.wall[0], cpu_seconds=clock.cpu[0]))


def _on(device: torch.device, request: Request) -> Request:
    """The request with its tensors on a device."""
    return request._replace(**{name: part.to(device) for name, part in request._asdict().items() if part is not None})
