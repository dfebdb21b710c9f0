"""The checks of the contract, one function per clause: (subject) -> None, or a note; raises Broken or Skipped.

`compbench.testing.verdicts.CLAUSES` says what each clause requires.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import torch

from compbench.api.context import FitParts
from compbench.api.interfaces import Method, MethodSettings
from compbench.system.files import Json
from compbench.testing.fit_clauses import cancellation, gap, globals_, imports, memory, resume, silos, weights
from compbench.testing.learning import first_kind, mixed, precision
from compbench.testing.tiny_problems import ROWS, Tiny, opened
from compbench.testing.watched import CUTS, FEWEST_STEPS, FIT_SEED, Broken, Skipped, Subject

DIVERGED = "look at the loss: a division by 0, the logarithm or root of 0, a product without bound, too large steps"

SEED_STEPS = 2
"""Number of steps of each fit when two seeds are compared."""

PAIRED_ROWS = 48
"""Number of rows when some get other noise; with so many, some of a sampler's first particles survive to the end."""

GIVEN, UNGIVEN = 0.4, 9.0
"""Share of a trajectory's entries that are given, and the value of `known` at the others, which a method must not use."""

MASKED = "use request.known_mask entry by entry: rows, channels and frames may differ"


def settings(method: Method) -> None:
    """Check names, bounds, descriptions and defaults of the settings class."""
    own = method.settings
    if not (isinstance(own, type) and issubclass(own, MethodSettings)):
        raise Broken("the settings class is not a subclass of MethodSettings", "write `class Settings(MethodSettings)`")
    if own.model_config.get("extra") != "forbid" or not own.model_config.get("frozen"):
        raise Broken("model_config allows unknown names or changes", "leave model_config as MethodSettings has it")
    schema = own.model_json_schema()
    faults = [f"'{name}' has no default" for name, field in own.model_fields.items() if field.is_required()]
    faults += [f"'{name}' has no description" for name, field in own.model_fields.items() if not field.description]
    for name, property_ in schema.get("properties", {}).items():
        fault = _unbounded(property_, schema.get("$defs", {}))
        faults += [f"'{name}' {fault}"] if fault else []
    if faults:
        raise Broken("; ".join(faults))
    default = own()
    try:
        again = own.model_validate_json(default.model_dump_json())
    except ValueError as error:
        raise Broken(f"its defaults do not survive JSON: {str(error).splitlines()[0]}") from error
    if again != default:
        raise Broken("its defaults change when they are written to JSON and read back", "use plain numbers, words and tuples")


def _unbounded(schema: Mapping[str, Json], definitions: Mapping[str, Mapping[str, Json]]) -> str:
    """The bound that a value's schema lacks; "" if all of its alternatives are bounded."""
    if "$ref" in schema:
        return _unbounded(definitions[str(schema["$ref"]).rsplit("/", 1)[-1]], definitions)
    for name in ("anyOf", "allOf", "oneOf"):
        if isinstance(alternatives := schema.get(name), list):
            return next((fault for part in alternatives if (fault := _unbounded(part, definitions))), "")
    if "enum" in schema or "const" in schema:
        return ""
    kind = schema.get("type")
    if kind in ("integer", "number") and not schema.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
        return "has no bound"
    if kind == "string" and not schema.keys() & {"pattern", "maxLength"}:
        return "is any text"
    if kind == "array":
        first = fixed if isinstance(fixed := schema.get("prefixItems"), list) else []
        others = [items] if isinstance(items := schema.get("items"), dict) else []
        return next((fault for part in [*first, *others] if (fault := _unbounded(part, definitions))), "")
    if kind == "null":
        return "may be None, which says nothing"
    return "may be anything" if kind is None else ""


def fit(subject: Subject) -> None:
    """Check that fit returned a model and reported its progress up to the last step."""
    if subject.model is None:
        raise Broken("fit returned None", "return the model")
    broken = [name for name, value in weights(subject.model).items() if not bool(value.isfinite().all())]
    if broken:
        raise Broken(f"the training diverged: weights '{broken[0]}' are not finite", DIVERGED)
    if subject.method.oracle:
        return
    reports = subject.progress.reports
    if not reports and subject.used.optimiser_steps:
        raise Broken(f"fit took {subject.used.optimiser_steps} steps and never called ctx.progress: its speed cannot be measured")
    if not reports:
        return
    if any(not 0 < done <= total for done, total in reports) or reports != sorted(reports, key=lambda report: report[0]):
        raise Broken(f"progress went {_brief(reports)}: it must go up, and not past its total")
    if reports[-1][0] != reports[-1][1]:
        raise Broken(f"the last report was {reports[-1][0]} of {reports[-1][1]} steps")


def shape(subject: Subject) -> None:
    """Check the usual number of rows, and a single row.  `Subject.sample` also checks that no request was written to."""
    for rows in (ROWS, 1):
        asked = subject.noise(rows)
        if rows == ROWS:
            subject.first  # noqa: B018 - fits, and samples
        else:
            subject.sample(subject.condition[:rows], asked)


def dtype(subject: Subject) -> None:
    """Check an odd and an even number of rows; `Subject.sample` checks the type and device of all samples."""
    subject.first  # noqa: B018 - fits, and samples
    subject.sample(subject.condition[:2], subject.noise(2))


def finite(subject: Subject) -> None:
    """Check samples at the first combination and at a held-out one."""
    cells = torch.zeros_like(subject.condition)
    holdout = subject.fitted_on.holdout
    for column, value in zip(holdout.factors, holdout.cells[0], strict=True):
        cells[:, column] = value
    for name, made in (("seen", subject.first), ("held-out", subject.sample(cells, subject.x0))):
        bad = int((~made.isfinite()).sum())
        if bad:
            raise Broken(f"{bad} of {made.numel()} entries at a {name} combination are not finite")


def determinism(subject: Subject) -> None:
    """Sample again with another state of torch's global generator, and fit again.

    The fit is repeated with the same seed once for each kind of event, and in silos; on one kind also with another seed.
    """
    again = subject.sample(subject.condition, subject.x0, stray=1)
    if not subject.alike(again, subject.first):
        raise Broken(f"sampling twice from one seed differs by {gap(again, subject.first)}")
    if subject.fits_as_before:
        return
    if not _resumes_alike(subject):
        twin = subject.sample(subject.condition, subject.x0, model=subject.fit())
        if not subject.alike(twin, subject.first):
            raise Broken(f"samples of two fits of one seed differ by {gap(twin, subject.first)}")
    if subject.method.oracle or not subject.used.examples or subject.fitted_on.event.kind != first_kind(subject.method):
        return
    if subject.fitted_on.deterministic and not subject.used.optimiser_steps:
        return  # a fit in closed form with one sample per combination is the same for all seeds
    one, other = (
        subject.sample(subject.condition, subject.x0, model=subject.fit(seed=seed, steps=SEED_STEPS))
        for seed in (FIT_SEED, FIT_SEED + 1)
    )
    if torch.equal(other, one):
        raise Broken("a fit of another seed gave the same samples", "take ctx.generator, not a generator of a fixed seed")


def _resumes_alike(subject: Subject) -> bool:
    """Whether the stopped and resumed fit ended like the first one, so that it can serve as a second fit of the same seed."""
    if not subject.trains:
        return False
    try:
        return not subject.stopped(CUTS[0]).went_on and subject.alike(subject.resumed(CUTS[0]).samples, subject.first)
    except Exception:  # the checks 'cancellation' and 'resume' report any error of the plugin
        return False


def conditions(subject: Subject) -> str | None:
    """Compare samples at every factor's first value and at its last."""
    ignored = subject.method.ignores_condition
    for column, factor in enumerate(subject.space.factors):
        if ignored and subject.differ(subject.at(column, factor.size - 1), subject.first):
            raise Broken(
                f"it declares that it ignores the condition, and factor '{factor.name}' changes its samples",
                "leave out ignores_condition=True",
            )
        if not ignored and not subject.differ(subject.at(column, factor.size - 1), subject.first):
            raise Broken(f"factor '{factor.name}' at 0 and at {factor.size - 1} gave the same samples")
    return "it declares that it ignores the condition" if ignored else None


def null(subject: Subject) -> None:
    """Compare each open factor with its first two values and its last; with a base, an open factor may equal the base's value."""
    if subject.method.ignores_condition:
        raise Skipped("it declares that it ignores the condition")
    base = subject.fitted_on.base
    for column, factor in enumerate(subject.space.factors):
        left_open = subject.sample(opened(subject.condition, column), subject.x0)
        if not bool(left_open.isfinite().all()):
            raise Broken(f"with factor '{factor.name}' open the samples are not finite")
        for value in sorted({0, 1, factor.size - 1}):  # clamping gives the first value, an index of -1 the last
            if (not base or value != base[column]) and not subject.differ(subject.at(column, value), left_open):
                raise Broken(f"an open factor '{factor.name}' is answered as its value {value}")


def x0(subject: Subject) -> str | None:
    """Check that other noise in the first rows changes some of these rows, and no other row unless rows are declared coupled."""
    if subject.method.regresses:
        other = subject.sample(subject.condition, -subject.x0)
        if subject.differ(other, subject.first):
            raise Broken("it declares one sample per condition, but the noise changes its samples", "leave out regresses=True")
        return None
    if subject.fitted_on.deterministic:
        raise Skipped("a combination has one sample here, so samples that do not depend on the noise are right")
    first = 2 * PAIRED_ROWS // 3
    condition, noise = subject.condition[:1].expand(PAIRED_ROWS, -1), subject.noise(PAIRED_ROWS)
    other = noise.clone()
    other[:first] *= -1
    made, changed = subject.sample(condition, noise), subject.sample(condition, other)
    if not subject.differ(changed[:first], made[:first]):
        raise Broken(f"other noise in rows 0 to {first - 1} left them as they were")
    if not subject.alike(changed[first:], made[first:]):
        if subject.method.couples_rows:
            return "it declares that rows of a request share something; `learns` checks their law"
        raise Broken("other noise in some rows changed the samples of other rows")
    return None


def known(subject: Subject) -> None:
    """Give entries that differ by row, channel and frame; then change `known` at the other entries; then at the given ones."""
    if subject.fitted_on.event.kind != "trajectory":
        raise Skipped("only tasks of trajectories give entries")
    generator = torch.Generator().manual_seed(FIT_SEED)
    mask = (torch.rand(subject.first.shape, generator=generator) < GIVEN).to(subject.device)
    made = []
    for values, others in ((subject.first, UNGIVEN), (subject.first, -UNGIVEN), (subject.first + 1.0, -UNGIVEN)):
        given = torch.where(mask, values, others)
        with subject.shortened(FEWEST_STEPS):
            made.append(subject.sample(subject.condition, subject.x0, known=given, known_mask=mask))
        changed = (made[-1] != given)[mask]
        if bool(changed.any()):
            raise Broken(f"{changed.float().mean():.1%} of the given entries came back changed", MASKED)
    if not subject.alike(made[0], made[1]):
        raise Broken("values of `known` at entries that are not given changed the samples", MASKED)
    if not subject.differ(made[1][~mask], made[2][~mask]):
        raise Broken("other values of the given entries left all other entries as they were")


def build(subject: Subject) -> None:
    """Load the fitted weights into a network from `build`; check the number of evaluations and the facts of a shared fit."""
    method, problem = subject.method, subject.fitted_on
    if method.evaluations is not None:
        count = method.evaluations(subject.settings, problem)
        if not isinstance(count, int) or count < 0:
            raise Broken(
                f"evaluations gave {count!r}", "return the number of network evaluations per sample; 0 without a network"
            )
    if method.shared_fit is not None:
        if method.build is None:
            raise Broken("the method has shared_fit but no build", "give Method(build=...), which a shared model is loaded into")
        json.dumps(method.shared_fit(subject.settings, problem))
    if method.parts is not None:
        _kept_part(subject, method.parts)
    if method.build is None:
        raise Skipped("the method has no build")
    rebuilt = method.build(subject.settings, problem).to(subject.device)
    assert isinstance(subject.model, torch.nn.Module)
    rebuilt.load_state_dict(subject.model.state_dict())
    made = subject.sample(subject.condition, subject.x0, model=rebuilt.eval())
    if not torch.allclose(made, subject.first, rtol=0, atol=1e-3 * float(subject.first.abs().max())):
        raise Broken(f"the rebuilt network's samples differ by {gap(made, subject.first)}")


def _kept_part(subject: Subject, parts: FitParts) -> None:
    """Check that a kept fit, loaded into `parts.build` and finished, gives the same samples as the fit itself."""
    if subject.method.shared_fit is None:
        raise Broken("the method has parts but no shared_fit", "give Method(shared_fit=...): what the first part depends on")
    settings, problem = subject.settings, subject.fitted_on
    shared = subject.fit(steps=2, fit=parts.fit)
    assert isinstance(shared, torch.nn.Module)
    kept = parts.build(settings, problem).to(subject.device)
    kept.load_state_dict(shared.state_dict())
    models = [parts.finish(settings, problem, part.eval()) for part in (shared, kept)]
    made, again = (subject.sample(subject.condition, subject.x0, model=model) for model in models)
    if not torch.allclose(made, again, rtol=0, atol=1e-3 * float(made.abs().max())):
        raise Broken(f"finished from a kept fit, its samples differ by {gap(made, again)}", "let `finish` need nothing else")


def extend(subject: Subject) -> None:
    """Fit a model of all factors but the first, and extend it to all."""
    if subject.method.extend is None or subject.tiny.smaller is None:
        raise Skipped("the method has no extend" if subject.method.extend is None else "nothing to extend here")
    problem = subject.fresh(subject.tiny.smaller)
    assert problem.extension is not None
    base = subject.fit(problem=problem)
    before = weights(base)
    extended = subject.extend(base, problem)
    touched = [name for name, tensor in weights(base).items() if not torch.equal(tensor, before[name])]
    if touched or weights(base).keys() != before.keys():
        raise Broken(f"extend changed the smaller model ('{touched[0] if touched else 'its names'}')")
    zero = subject.condition
    one = zero.clone()
    one[:, problem.extension.problem.space.index(problem.extension.factor)] = 1
    made = [subject.sample(condition, subject.x0, model=extended) for condition in (zero, one)]
    if made[0].shape != subject.x0.shape or not bool(made[0].isfinite().all()):
        raise Broken(f"the extended model's samples are {tuple(made[0].shape)}, or not finite")
    if not subject.differ(*made):
        raise Broken(f"the extended model ignores its new factor '{problem.extension.factor}'")


SUBJECT_CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "fit": fit,
    "shape": shape,
    "dtype": dtype,
    "finite": finite,
    "determinism": determinism,
    "conditions": conditions,
    "null": null,
    "x0": x0,
    "mixed": mixed,
    "known": known,
    "precision": precision,
    "build": build,
    "extend": extend,
    "cancellation": cancellation,
    "resume": resume,
    "silos": silos,
    "memory": memory,
    "globals": globals_,
    "imports": imports,
}
"""Checks of a method on a problem, in the order in which they run."""


def applies(method: Method, tiny: Tiny, device: torch.device) -> bool:
    """Whether the method claims the problem's kind, and the problem has the analytic truth or the base that the method needs."""
    problem = tiny.make(device)
    has_base = bool(problem.base) or "base" not in method.needs
    return has_base and problem.event.kind in method.kinds and (problem.oracle is not None or not method.oracle)


def _brief(reports: list[tuple[int, int]]) -> str:
    listed = [f"{done}/{total}" for done, total in reports]
    return ", ".join(listed if len(listed) <= 6 else [*listed[:3], "...", *listed[-2:]])
