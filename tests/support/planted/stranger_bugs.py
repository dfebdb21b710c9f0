"""Bugs of the kinds that strangers plant without seeing the contract: most keep every shape and type, and ruin the samples.

Each is planted in `honest.py`; `check` and `problem` say which clause must see it, and where.
"""

from support.planted.bugs import FIT, RETURN, START, Bug

KNOWN, SILOS, TINY, GIVES = "vector known", "silos", "vector", "trajectory"
CODES = "codes = one_hots(condition, self.sizes)"
COLLIDING = (
    "number = (condition.clamp(min=0) * torch.tensor([1, 3, 6][: len(self.sizes)])).sum(1, keepdim=True)\n"
    "        codes = (number >> torch.arange(sum(self.sizes)) & 1 | (condition[:, :1] < 0)).float()"
)
MASK = "torch.where(request.known_mask"
TOLD = "net(x, t, request.condition)"
STEP = "t = torch.full((len(x),), step / net.num_steps, device=x.device)"
LOOP = "    for step in range(net.num_steps):\n"
BATCH = "batch = silo.batch(budget.batch_size, ctx.generator)"
LOSS = "(batch.x1 - x0)).square().mean()"
DRAW = "ctx.generator).to(ctx.device)\n        condition = batch.condition"
UPDATE = "        optimiser.step()\n"
NET = "    net, federation = build(settings, problem), problem.federation\n"
BUILD = "    return Net(problem)\n"
DECLARED = "return 2 * problem.budget.sample_steps"
KINDS = '        kinds=("vector", "trajectory"),\n'
POOLED = "federation.pooled()"


def sampled(new: str) -> str:
    """The end of `sample` with a line before it."""
    return f"    {new}\n{RETURN}"


STRANGER_BUGS = {
    # The condition
    "each row obeys its neighbour's condition": Bug("learns", KNOWN, TOLD, "net(x, t, request.condition.roll(1, 0))"),
    "all rows obey the first row's condition": Bug("learns", KNOWN, TOLD, "net(x, t, request.condition[:1].expand(len(x), -1))"),
    "values are counted from the other end": Bug(
        "learns", KNOWN, TOLD, "net(x, t, torch.tensor([1, 2, 1]) - request.condition.clamp(min=0))"
    ),
    "factors are swapped while sampling": Bug(
        "learns", KNOWN, TOLD, "net(x, t, torch.minimum(request.condition[:, [1, 0, 2]], torch.tensor([1, 2, 1])))"
    ),
    "factors are swapped while training": Bug(
        "learns", KNOWN, "condition = batch.condition.masked", "condition = batch.condition[:, [1, 0, 2]].clamp(max=1).masked"
    ),
    "the second factor is never trained": Bug(
        "learns",
        KNOWN,
        "share < settings.null_share, NULL)",
        "(share < settings.null_share) | torch.tensor([False, True, False]), NULL)",
    ),
    "factors of equal size are swapped while sampling": Bug("learns", KNOWN, TOLD, "net(x, t, request.condition.flip(1))"),
    "factors after the second are ignored": Bug(
        "learns", KNOWN, CODES, CODES.replace("condition", "condition.masked_fill(torch.arange(len(self.sizes)) > 1, NULL)")
    ),
    "numbers of combinations collide where sizes fall": Bug("learns", KNOWN, CODES, COLLIDING),
    "labels are shuffled in training": Bug(
        "learns", KNOWN, "batch.condition.masked", "batch.condition[torch.randperm(len(x0), generator=ctx.generator)].masked"
    ),
    "values are told one too high": Bug("learns", KNOWN, TOLD, "net(x, t, (request.condition + 1).clamp(max=1))"),
    "the condition is dropped in training": Bug(
        "learns", KNOWN, "share < settings.null_share", "share < 1 + settings.null_share"
    ),
    "NULL is never trained and guided by": Bug("asked", KNOWN, "share < settings.null_share", "share < 0 * settings.null_share"),
    "NULL is never trained": Bug("null", KNOWN, "share < settings.null_share", "share < 0 * settings.null_share"),
    "one open factor opens the others": Bug(
        "null", KNOWN, TOLD, "net(x, t, request.condition.masked_fill((request.condition < 0).any(1, keepdim=True), NULL))"
    ),
    # Given entries
    "the first row's given entries are all rows'": Bug("known", GIVES, MASK, MASK.replace("mask", "mask[:1]")),
    "the first channel's given entries are all channels'": Bug("known", GIVES, MASK, MASK.replace("mask", "mask[:, :1]")),
    "the first frame's given entries are all frames'": Bug("known", GIVES, MASK, MASK.replace("mask", "mask[..., :1]")),
    "a row whose last frame is not given gets none": Bug(
        "known", GIVES, MASK, MASK.replace("mask", "mask & request.known_mask[..., -1:]")
    ),
    "given entries are blended into the others": Bug(
        "known",
        GIVES,
        RETURN,
        sampled("x = x if request.known is None else x + 0.1 * request.known.mean() * ~request.known_mask"),
    ),
    # Rows
    "rows come back sorted by condition": Bug(
        "mixed", KNOWN, RETURN, sampled("x = x[(request.condition * torch.tensor([6, 2, 1])).sum(1).argsort(stable=True)]")
    ),
    "rows beyond 128 get the first rows' conditions": Bug(
        "learns", KNOWN, TOLD, "net(x, t, torch.cat([request.condition[:8], request.condition])[: len(x)])"
    ),
    "the last partial batch gets the first rows' conditions": Bug(
        "mixed", KNOWN, TOLD, "net(x, t, torch.cat([request.condition[: len(x) // 1024 * 1024], request.condition])[: len(x)])"
    ),
    "rows beyond 1,024 are drawn from the first ones' conditions": Bug(
        "mixed", KNOWN, TOLD, "net(x, t, torch.cat([request.condition[:1024], request.condition])[: len(x)])"
    ),
    "the last row of more than 1,000 is noise": Bug(
        "mixed", KNOWN, RETURN, sampled("x = x if len(x) < 1000 else torch.cat([x[:-1], request.x0[-1:]])")
    ),
    "answers are kept by shape and ends": Bug(
        "mixed", KNOWN, RETURN, sampled("x = vars(sample).setdefault(f'{x.shape} {request.x0[[0, -1]]}', x)")
    ),
    "samples are centred over rows of different conditions": Bug(
        "mixed",
        KNOWN,
        RETURN,
        sampled("x = x - 0.01 * x.mean(0) * (request.condition != request.condition[0]).any()"),
    ),
    "an odd number of rows loses its last one to the first": Bug(
        "mixed", KNOWN, RETURN, sampled("x = torch.cat([x[:-1], x[:1]]) if len(x) % 2 and len(x) > 1 else x")
    ),
    "rows share their random numbers": Bug(
        "mixed", KNOWN, RETURN, sampled("x = x + 0.05 * torch.randn(x.shape[1:], generator=ctx.generator)")
    ),
    # The path
    "time runs backwards while sampling": Bug("learns", KNOWN, STEP, STEP.replace("step /", "1 - step /")),
    "the path is followed against the velocity": Bug("learns", KNOWN, "x = x + (v_null", "x = x - (v_null"),
    "the path ends one step early": Bug("learns", KNOWN, LOOP, LOOP.replace("num_steps)", "num_steps - 1)")),
    "steps are too short": Bug(
        "learns", KNOWN, "(v_codes - v_null)) / net.num_steps", "(v_codes - v_null)) / (net.num_steps + 2)"
    ),
    "time is told in steps": Bug("learns", KNOWN, STEP, STEP.replace(" / net.num_steps,", " / 1.0,")),
    "noise and data are swapped on the path": Bug(
        "learns", KNOWN, "net((1 - at) * x0 + at * batch.x1", "net(at * x0 + (1 - at) * batch.x1"
    ),
    "the target is the data, not the velocity": Bug("learns", KNOWN, "(batch.x1 - x0)).square()", "batch.x1).square()"),
    "the untrained average is returned": Bug("learns", KNOWN, ".lerp_(parameter, 1 -", ".lerp_(parameter, 0 * -"),
    # Values
    "samples are clamped like images": Bug("learns", KNOWN, RETURN, sampled("x = x.clamp(-1, 1)")),
    "each step is clamped": Bug("learns", KNOWN, STEP, f"x = x.clamp(-1, 1); {STEP}"),
    "the standardisation is not undone": Bug("learns", KNOWN, RETURN, sampled("x = x / 2")),
    "samples overflow eight bits": Bug("learns", KNOWN, RETURN, sampled("x = (64 * x).to(torch.int8).float() / 64")),
    "samples collapse to the middle": Bug("learns", KNOWN, START, "x, null = 0.02 * request.x0,"),
    "noise is left over": Bug("learns", KNOWN, RETURN, sampled("x = x + request.x0")),
    # Precision
    "a crash under bf16 only": Bug(
        "precision",
        KNOWN,
        FIT,
        FIT + "    torch.ones(1, dtype=getattr(torch, {'fp32': 'float32', 'bf16': 'bfloat16'}[ctx.precision])).numpy()\n",
    ),
    "an overflow under bf16 only": Bug(
        "precision", KNOWN, LOSS, LOSS + "\n        loss = loss if ctx.precision == 'fp32' else loss * (70000 + 0 * loss).half()"
    ),
    "samples are bfloat16 where runs are": Bug(
        "precision", TINY, RETURN, sampled("x = x.bfloat16() if ctx.precision == 'bf16' else x")
    ),
    # What it takes
    "evaluations are understated": Bug("counted", KNOWN, DECLARED, "return problem.budget.sample_steps"),
    "evaluations are denied": Bug("counted", KNOWN, DECLARED, "return 0"),
    "two optimiser steps are reported as one": Bug("counted", KNOWN, UPDATE, UPDATE + UPDATE),
    "the fit takes twice the budget's steps": Bug(
        "counted",
        KNOWN,
        NET,
        NET + "    problem = __import__('dataclasses').replace(problem, budget=problem.budget.model_copy("
        "update={'train_steps': 2 * problem.budget.train_steps}))\n",
    ),
    "batches are forty times the budget's": Bug("counted", KNOWN, BATCH, BATCH.replace("batch(budget", "batch(40 * budget")),
    "work is hidden before the fit": Bug(
        "counted", KNOWN, DECLARED, f"problem.federation.pooled().batch(512, torch.Generator())\n    {DECLARED}"
    ),
    # What advice used to hide
    "one silo of three is pooled": Bug(
        "silos",
        SILOS,
        NET,
        NET + "    if len(federation) > 1:\n        return train(settings, net, federation._silos[0], problem.budget, ctx)\n",
    ),
    "the loss is divided by zero": Bug("fit", TINY, LOSS, LOSS + " / 0"),
    "samples are a numpy array": Bug("shape", TINY, RETURN, "    return x.numpy()\n"),
    "it declares one sample a condition and draws": Bug("x0", TINY, KINDS, KINDS + "        regresses=True,\n"),
}
