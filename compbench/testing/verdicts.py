"""Results of contract checks: clauses, findings, and a method's report.  The parent process reads them, so imports are light."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from compbench.runner.messages import LineOfText, Seconds

Status = Literal["ok", "failed", "skipped"]

MAX_TEXT = 1500
"""Largest number of characters of a message that contains text from a plugin."""


PAGE = "docs/contract.md"
"""The page that explains each clause under its own name."""


class Clause(NamedTuple):
    """One clause of the contract: what must hold, and how to fix a method that breaks it."""

    expected: str
    fix: str


CLAUSES: dict[str, Clause] = {
    "loads": Clause(
        "the plugin loads and offers a Method under its entry point's name",
        "run `compbench plugins`, with --plugin for a file, and fix the problem that it shows",
    ),
    "settings": Clause(
        "every setting has a default, a description and a bound; the class is frozen and forbids unknown names",
        "use Field(default, ge=..., le=..., description=...), or Literal[...] for words",
    ),
    "kinds": Clause(
        "each event kind that the method claims is accepted on some problem",
        "let fit work on the kind, or leave it out of Method(kinds=...)",
    ),
    "fit": Clause(
        "fit returns a model and reports every step to ctx.progress(done, total), up to the last",
        "call ctx.progress(step + 1, total) in the loop, or train with compbench.flow.train.train",
    ),
    "shape": Clause(
        "samples have the shape of request.x0, for any number of rows, and the request is not changed",
        "return one sample (*D) for each row; write only into copies of the request's tensors",
    ),
    "dtype": Clause("samples are float32 tensors on the request's device", "end with samples.float()"),
    "finite": Clause(
        "samples are finite, also at held-out combinations",
        "look for a division by 0 near t = 0 or 1, or a learning rate that is too high",
    ),
    "determinism": Clause(
        "one seed gives one model and the same samples bit for bit; another seed gives another model",
        "draw from ctx.generator only; torch's global generator may give initial weights and nothing else",
    ),
    "conditions": Clause(
        "changing the value of any factor changes the samples",
        "pass on every column of request.condition unchanged, in fit and in sample",
    ),
    "null": Clause(
        "NULL leaves a factor open: the samples differ from those at any of the factor's values",
        "encode NULL (-1) as no condition; do not clamp it, nor use it as an index",
    ),
    "x0": Clause(
        "a sample depends on its own row of request.x0 and on no other row's",
        "start from request.x0, and treat rows independently",
    ),
    "mixed": Clause(
        "a row of a request gives the same sample as when requested alone, whatever the conditions and the noise of other rows",
        "treat rows independently: take no mean, order or state over rows, and pair each row with its own condition",
    ),
    "known": Clause(
        "given entries of a trajectory are returned unchanged, and the other entries depend on them",
        "sample with compbench.flow.solver.answer, or set x to t known + (1 - t) x0 there in every step; or drop the kind",
    ),
    "build": Clause(
        "build gives a network that takes the fitted weights and then gives the same samples; evaluations is an integer, or 0",
        "let fit start from build(settings, problem); keep all state in parameters and buffers",
    ),
    "learns": Clause(
        "on a problem with known answers, the samples of each combination have the location and the spread of its data",
        "train on each example's own condition; sample the law of each row's own condition",
    ),
    "precision": Clause(
        "fit and sample work in bf16, which published runs use, and in fp32",
        "compute under `with ctx.autocast():`, return float32, and keep in fp32 what bf16 cannot carry",
    ),
    "counted": Clause(
        "steps, examples and evaluations stay within the budget and agree with the method's own report",
        "take budget.train_steps steps, report each, and do all work inside fit and sample",
    ),
    "asked": Clause(
        "samples evaluate the network only at kinds of conditions (whole, NULL, single factors, ...) that the fit was trained on",
        "mask factors in training as often as sampling leaves them open: compbench.flow.masking has laws",
    ),
    "extend": Clause(
        "extend gives a model of the larger space that follows the new factor, and does not change the smaller model",
        "deep-copy the model before adding to it, and train the new part",
    ),
    "cancellation": Clause(
        "fit raises Cancelled within 3 steps once ctx.cancelled() is true",
        "call ctx.cancelled() in every step and raise compbench.system.errors.Cancelled",
    ),
    "resume": Clause(
        "a fit that was stopped and resumed ends with the same model as an undisturbed one",
        "save weights, averages, optimiser moments, the step and the generators' states (torch's global one too), or nothing",
    ),
    "silos": Clause(
        "a decentralised method reaches a silo's data only inside Federation.run, and no example leaves it",
        "reach data with federation.run(work, ...) and return model state; a centralised method trains on federation.pooled()",
    ),
    "memory": Clause(
        "memory that fits and samples allocate is freed again",
        "keep nothing in module-level lists, dicts or caches; detach what you keep",
    ),
    "globals": Clause(
        "no global state is changed: default dtype, threads, seeds, cuDNN flags, environment, signals",
        "use your own arguments and generators, or restore the state in a `finally`",
    ),
    "imports": Clause(
        "nothing is imported while fit and sample are timed",
        "import at the top of the plugin's file",
    ),
    "floor": Clause(
        "a metric's floor is its value between two real samples, which real samples reach and noise does not",
        "return Value(value, floor); compute the floor from pair.real and pair.floor as the value from pair.generated",
    ),
    "repeatable": Clause(
        "a metric of the same samples and seed is the same number, and the samples are not changed",
        "draw from the generator that compute gets",
    ),
    "monotone": Clause(
        "some known corruption of the samples makes a metric worse at every step",
        "check its direction, and whether it uses the generated samples at all",
    ),
    "primary": Clause(
        "a task's evaluation gives one primary score, with the name that the task declares, and a ceiling or a floor",
        "give Score(primary=True, ...) for Task(primary=...) and for no other",
    ),
    "ceiling": Clause(
        "ceilings and floors of the ranked metric are better than the scores of noise",
        "compute ceiling and floor on real data of the split, with the same code that scores samples",
    ),
    "collapse": Clause(
        "one repeated example of each combination does not beat real data in the ranked score",
        "rank by a distance between distributions, not by how near samples come to a point",
    ),
    "declared": Clause(
        "a task's family, core, files, extra and extra_for can be read without importing its file",
        "write literals, or simple expressions of the parts of `name`, in the call Task(...) of the entry point's file",
    ),
    "time": Clause(
        "all checks end within the time limit", "find what hangs or is slow; a tiny problem is fitted and sampled in seconds"
    ),
    "process": Clause("the process lives until the last check", "do not call exit; look for crashes in native code"),
}
"""Clauses in the order in which they are checked; the first and the last two cannot be selected with --only."""

OF_METRICS, OF_TASKS = ("floor", "repeatable", "monotone"), ("primary", "ceiling", "collapse", "declared")
CHECKS = tuple(name for name in CLAUSES if name not in ("loads", "time", "process", *OF_METRICS, *OF_TASKS))
"""Clauses that are checked for methods."""
CHECKS_OF = {"methods": CHECKS, "tasks": OF_TASKS, "metrics": OF_METRICS}
"""Names for --only: the checks of methods, of tasks and of metrics."""


class Finding(NamedTuple):
    """The result of one check on one problem.

    Attributes:
        check: name of the clause.
        problem: name of the tiny problem, with the device if that is not the CPU; "" for checks of the method itself.
        status: ok, failed, or skipped (`found` says why).
        found: what was found instead of the expected result; "" if the check passed.
        fix: how to fix it; "" if there is nothing to fix.
        seconds: duration of the check.
    """

    check: LineOfText
    problem: LineOfText
    status: Status
    found: LineOfText = ""
    fix: LineOfText = ""
    seconds: Seconds = 0.0

    @property
    def expected(self) -> str:
        """What the clause requires."""
        return CLAUSES[self.check].expected if self.check in CLAUSES else ""

    @property
    def page(self) -> str:
        """Where the clause is explained."""
        return f"{PAGE}#{self.check}"

    @property
    def title(self) -> str:
        return f"{self.check} [{self.problem}]" if self.problem else self.check

    @property
    def message(self) -> str:
        """One line for people: what was expected, what was found, and how to fix it."""
        if self.status == "failed":
            return f"expected: {self.expected}; found: {self.found}; to fix: {self.fix}; see {self.page}."
        return self.found

    def as_json(self) -> dict[str, object]:
        facts: dict[str, object] = self._asdict()
        if self.status == "failed":
            facts |= {"expected": self.expected, "page": self.page}
        return facts


def failed(check: str, problem: str, found: str, *, fix: str = "", seconds: float = 0.0) -> Finding:
    """A failed finding, with the clause's advice unless another is given."""
    return Finding(check, problem, "failed", found[:MAX_TEXT], fix or CLAUSES[check].fix, seconds)


class Report(NamedTuple):
    """All findings about one method, in order, and how long they took."""

    method: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "failed")

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return not self.failures and any(finding.status == "ok" for finding in self.findings)

    def lines(self, *, verbose: bool) -> Iterable[str]:
        """The report for a terminal: failures, or with `verbose` everything, and a summary in the last line."""
        for finding in self.findings:
            if verbose or finding.status == "failed":
                text = f"{finding.status:7} {finding.title}" + (f"  {finding.seconds:.2f} s" if verbose else "")
                yield text
                if finding.status == "failed":
                    yield from (f"          expected: {finding.expected}", f"          found:    {finding.found}")
                    yield f"          to fix:   {finding.fix}; see {finding.page}"
                elif finding.found:
                    yield f"          {finding.found}"
        if self.ok and not verbose and (why := list(self._skipped())):
            yield f"skipped {'; '.join(why)}"
        counts = {status: sum(one.status == status for one in self.findings) for status in ("ok", "failed", "skipped")}
        listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "nothing was checked"
        yield f"{self.method}: {listed} in {self.seconds:.1f} s"

    def _skipped(self) -> Iterable[str]:
        """Why checks were skipped, the most frequent reason first: `x0 [bumps]: reason`, or `extend, null (4): reason`."""
        skipped = [finding for finding in self.findings if finding.status == "skipped" and finding.found]
        for reason, count in Counter(finding.found for finding in skipped).most_common():
            same = [finding for finding in skipped if finding.found == reason]
            checks = ", ".join(dict.fromkeys(finding.check for finding in same))
            yield f"{same[0].title if count == 1 else f'{checks} ({count})'}: {reason}"

    def as_json(self) -> dict[str, object]:
        return {
            "method": self.method,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "findings": [finding.as_json() for finding in self.findings],
        }
