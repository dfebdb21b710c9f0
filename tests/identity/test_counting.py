"""What of a function's source counts for a run's identity: not what only reports, and a GPU's way on GPUs alone."""

from __future__ import annotations

import pytest

from compbench.identity.syntax import parse

LOOP = """SIZE = 8


def fit(problem, ctx):
    total = 0
    for step in range(9):
        total += step
        if step % 3:
            check(total)
            HERE
    return total
"""


@pytest.mark.parametrize(
    "statement", ["ctx.watch(total, step + 1)", "ctx.watch(total, 0, done=-step, batch_size=problem.budget.batch_size * SIZE)"]
)
def test_a_statement_that_only_reports_counts_for_nothing(statement: str) -> None:
    plain, reporting = (parse(LOOP.replace("HERE", text), "m").local("fit") for text in ("pass", statement))
    assert reporting == plain
    assert parse(LOOP.replace("            HERE\n", ""), "m").local("fit") == plain
    assert parse("def f(ctx): pass", "m").local("f") == parse("def f(ctx): ctx.watch(1)", "m").local("f")


@pytest.mark.parametrize(
    "statement",
    [
        "ctx.watch(check(total))",
        "ctx.watch(total := 0)",
        "ctx.watch(*problem)",
        "ctx.watch(**problem)",
        "ctx.watch(problem[0])",
        "ctx.watch(lambda: total)",
        "ctx.watch([step])",
        "ctx.progress(step, 9)",
        "ctx.watcher(step)",
        "ctx.part.watch(step)",
        "problem.watch(step)",
        "watch(step)",
        "ctx().watch(step)",
        "total = ctx.watch(step)",
        "total += ctx.watch(step)",
        "return ctx.watch(step)",
        "assert ctx.watch(step)",
        "ctx.watch(step).gone",
        "ctx.watch(step) or check(total)",
        "ctx.watch",
    ],
)
def test_a_statement_that_may_do_more_than_report_counts(statement: str) -> None:
    plain, other = (parse(LOOP.replace("HERE", text), "m").local("fit")[0] for text in ("pass", statement))
    assert other != plain


@pytest.mark.parametrize(
    "source",
    [
        "def f(own): ctx.watch(1)",
        "def f(ctx):\n  ctx = own\n  ctx.watch(1)",
        "def f(ctx):\n  for ctx in own: ctx.watch(1)",
        "def f(ctx):\n  import own as ctx\n  ctx.watch(1)",
        "def f(ctx):\n  class ctx: pass\n  ctx.watch(1)",
        "def f(ctx):\n  def g(): ctx.watch(1)",
        "f = lambda ctx: ctx.watch(1)",
        "ctx.watch(1)",
    ],
)
def test_only_what_a_function_is_given_reports(source: str) -> None:
    other = source.replace("ctx.watch(1)", "ctx.watch(2)")
    name = "" if source.startswith("ctx") else "f"
    assert parse(source, "m").local(name)[0] != parse(other, "m").local(name)[0]


DISTANCE = """from compbench.devices import on_gpu


def fast(x):
    return FAST


def distance(x):
    total = 0
    TEST
        from torch import cdist

        return fast(cdist(x, x))
    return total
"""


def distance(test: str, *, gpu: bool, fast: str = "x", source: str = DISTANCE) -> tuple[str, object]:
    return parse(source.replace("TEST", test).replace("FAST", fast), "m").local("distance", gpu=gpu)


@pytest.mark.parametrize("test", ["if on_gpu(x):", "if on_gpu(x.device):", "if on_gpu(x) and fast(x) > total:"])
def test_what_only_a_gpu_runs_counts_on_gpus_alone(test: str) -> None:
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance(test, gpu=False) == plain
    assert distance(test, gpu=True) != plain
    assert ("m", ("fast",)) in distance(test, gpu=True)[1]


@pytest.mark.parametrize(
    "test",
    [
        "if not on_gpu(x):",
        "if on_gpu(x) or total:",
        "if total and on_gpu(x):",
        "if on_gpu(x) and total or total:",
        "if on_gpu(x) == total:",
        "if on_gpu(x, x):",
        "if on_gpu(device=x):",
        "if on_gpu(fast(x)):",
        "if on_gpu(x[0]):",
        "if fast(x):",
        "while on_gpu(x):",
        "if on_gpu(x):\n        total = 1\n    else:",
        "if on_gpu(x):\n        total = 1\n    elif total:",
    ],
)
def test_what_a_cpu_may_run_counts_on_cpus_too(test: str) -> None:
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance(test, gpu=False) == distance(test, gpu=True) != plain


@pytest.mark.parametrize(
    "head",
    [
        "from other.devices import on_gpu",
        "def on_gpu(x):\n    return True",
        "from compbench.devices import on_gpu\n\non_gpu = bool",
        "from compbench.devices import device_class as on_gpu",
    ],
)
def test_another_function_of_that_name_is_no_question_about_gpus(head: str) -> None:
    source = DISTANCE.replace("from compbench.devices import on_gpu", head)
    plain = parse("def distance(x):\n    total = 0\n    return total\n", "m").local("distance")
    assert distance("if on_gpu(x):", gpu=False, source=source) != plain
    bound = DISTANCE.replace("    total = 0", "    on_gpu = total = 0")
    assert distance("if on_gpu(x):", gpu=False, source=bound)[0] == distance("if on_gpu(x):", gpu=True, source=bound)[0]
