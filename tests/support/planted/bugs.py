"""Bugs to plant in `honest.py`: what a line becomes, and which check on which tiny problem must catch it."""

from typing import NamedTuple


class Bug(NamedTuple):
    """One slip of a plugin's author.

    Attributes:
        check, problem: that catch it; "score" for bugs that only numbers show.
        old, new: the line's text before and after.
    """

    check: str
    problem: str
    old: str
    new: str


START = "x, null = request.x0,"
RETURN = "    return x\n"
UPDATE = "x = x + (v_null"
FIT = "    net, federation = build(settings, problem), problem.federation\n"
LOCAL = "return train(settings, make(), silo, budget, own).state_dict()"
REFUSAL = """\
    from compbench.system.errors import Refused
    if len(problem.event.shape) > 1:
        raise Refused("vectors only")
"""
BUILT = "        build=build,"
PARTS = "__import__('compbench').api.context.FitParts(fit={}, build=build, finish=lambda settings, problem, net: net)"
POOLED = "return train(settings, net, federation.pooled(), problem.budget, ctx)"
SENT = """
        state["last.bias"] = silo.batch(1, own.generator).x1[0]
        return state"""
SAMPLE = "def sample(settings, net, request, ctx):\n"

BUGS = {
    "guidance has the wrong sign": Bug("score", "", "v_null + settings", "v_null - settings"),
    "the guidance weight is applied twice": Bug("score", "", "settings.guidance_weight *", "settings.guidance_weight**2 *"),
    "the moving average is not used": Bug("score", "", "return average.eval()", "return net.eval()"),
    "noise and data are swapped in the target": Bug("score", "", "(batch.x1 - x0)).square()", "(x0 - batch.x1)).square()"),
    "a setting has no bound": Bug("settings", "", "Field(1.5, ge=0, le=10, ", "Field(1.5, "),
    "a setting has no description": Bug("settings", "", 'le=1, description="share of', 'le=1, title="share of'),
    "an event kind is claimed that does not work": Bug("kinds", "", FIT, FIT + REFUSAL),
    "progress is not reported": Bug("fit", "vector", "        ctx.progress(step + 1, budget.train_steps)\n", ""),
    "a single sample loses its row": Bug("shape", "vector", RETURN, "    return x.squeeze(0)\n"),
    "trajectories come flattened": Bug("shape", "trajectory", RETURN, "    return x.flatten(1)\n"),
    "the request's noise is overwritten": Bug("shape", "vector", UPDATE, "x += (v_null"),
    "samples are float64": Bug("dtype", "vector", RETURN, "    return x.double()\n"),
    "samples of an even number of rows are float64": Bug(
        "dtype", "vector", RETURN, "    return x.double() if len(x) % 2 == 0 else x\n"
    ),
    "a division by t at t = 0": Bug("finite", "vector", RETURN, "    return x + 0 * x / (t[:, None] - t[:, None])\n"),
    "noise is not seeded": Bug("determinism", "vector", RETURN, "    return x + 1e-3 * torch.randn_like(x)\n"),
    "a factor is ignored": Bug(
        "conditions",
        "vector",
        "codes = one_hots(condition, self.sizes)",
        "codes = one_hots(condition * torch.tensor([0, 1]), self.sizes)",
    ),
    "NULL is taken for the first value": Bug("null", "vector", "one_hots(condition,", "one_hots(condition.clamp(min=0),"),
    "NULL is used as an index": Bug(
        "null", "vector", "one_hots(condition,", "one_hots(condition.remainder(torch.tensor(self.sizes)),"
    ),
    "the request's noise is ignored": Bug(
        "x0", "vector", START, "x, null = torch.randn(request.x0.shape, generator=ctx.generator),"
    ),
    "rows of a request touch each other": Bug("x0", "vector", RETURN, "    return x - x.mean(0) / 2\n"),
    "given entries are not looked at": Bug("known", "trajectory", "if request.known is not None:", "if False:"),
    "given entries are pasted over the end": Bug(
        "known",
        "trajectory",
        "        if request.known is not None:\n            x =",
        "    if request.known is not None:\n        step, x = net.num_steps - 1, x\n        x =",
    ),
    "state is outside the weights": Bug(
        "build",
        "vector",
        POOLED,
        POOLED.replace("return", "model =") + "\n        model.num_steps = 2\n        return model",
    ),
    "a shared part says not what it depends on": Bug("build", "vector", BUILT, f"{BUILT}\n        parts={PARTS.format('fit')},"),
    "a shared part leaves state outside its weights": Bug(
        "build",
        "vector",
        BUILT,
        f"{BUILT}\n        shared_fit=lambda settings, problem: {{}},\n"
        "        parts=" + PARTS.format('lambda *given: (lambda net: (setattr(net, "num_steps", 2), net)[1])(fit(*given))') + ",",
    ),
    "a fit cannot be stopped": Bug("cancellation", "vector", "if ctx.cancelled():", "if False:"),
    "a resumed fit has lost the optimiser": Bug("resume", "vector", "for moment in MOMENTS if first}", "for moment in ()}"),
    "a resumed fit has lost the average": Bug(
        "resume", "vector", 'average.get_parameter(name).data.copy_(tensors[f"average.{name}"])', "pass"
    ),
    "a resumed fit repeats its random numbers": Bug("resume", "vector", 'ctx.generator.set_state(tensors["generator"])', "pass"),
    "a silo sends an example": Bug(
        "silos",
        "silos",
        LOCAL,
        LOCAL.replace("return", "state =") + SENT,
    ),
    "a decentralised method pools": Bug("silos", "silos", "if len(federation) == 1:", "if len(federation):"),
    "a silo is read behind the federation's back": Bug(
        "silos", "silos", FIT, FIT + "    problem.federation._silos[0].batch(1, ctx.generator)\n"
    ),
    "samples are kept for ever": Bug("memory", "vector", RETURN, "    Net.kept = [*getattr(Net, 'kept', []), x]\n    return x\n"),
    "the models of all fits are kept": Bug(
        "memory", "vector", "return average.eval()", "Net.kept = [*getattr(Net, 'kept', []), average]\n    return average.eval()"
    ),
    "bytes of samples are kept": Bug(
        "memory", "vector", RETURN, "    Net.kept = [*getattr(Net, 'kept', []), x.numpy().tobytes()]\n    return x\n"
    ),
    "the global seed is set": Bug("globals", "vector", FIT, "    torch.manual_seed(0)\n" + FIT),
    "the default dtype is changed": Bug("globals", "vector", RETURN, "    torch.set_default_dtype(torch.float64)\n" + RETURN),
    "the number of threads is changed": Bug("globals", "vector", FIT, "    torch.set_num_threads(3)\n" + FIT),
    "cuDNN is set to benchmark": Bug("globals", "vector", FIT, "    torch.backends.cudnn.benchmark = True\n" + FIT),
    "the environment is changed": Bug("globals", "vector", FIT, "    __import__('os').environ['OMP_NUM_THREADS'] = '7'\n" + FIT),
    "SIGTERM is caught": Bug(
        "globals", "vector", FIT, "    import signal\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FIT
    ),
    "a package is imported while the clock runs": Bug("imports", "vector", SAMPLE, SAMPLE + "    import wave\n"),
}
