"""What a fit takes is counted where it happens, whatever it reports."""

from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
import torch
from support.planted.stranger_bugs import STRANGER_BUGS
from torch import Generator

from compbench.api.federation import LentSilo
from compbench.api.schemas import RunRequest
from compbench.runner import counted
from compbench.runner.cost_probe import fit_flops
from compbench.runner.counted import Tally
from compbench.runner.one_run import run
from compbench.store.counts import SLACK, beyond_budget, evaluations_excess, extension_excess, fit_excess
from compbench.testing.tiny_problems import PROBLEMS

CPU = torch.device("cpu")
VECTOR, SILOS = PROBLEMS[0].make, PROBLEMS[2].make
GRANTED = VECTOR(CPU).budget.train_steps


def fitted(tally: Tally, *, steps: int, size: int = 12):
    """A problem on which so many steps were taken with batches of a size."""
    problem = counted.counted(VECTOR(CPU), tally)
    weight = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.1)
    with tally.counting_steps():
        for _ in range(steps):
            batch = problem.federation.pooled().batch(size, Generator().manual_seed(0))
            (batch.x1 - weight).square().mean().backward()
            optimiser.step()
    optimiser.step()  # outside: not counted
    return problem


def test_steps_and_examples_are_counted_and_draws_are_the_silos_own() -> None:
    tally = Tally()
    problem = fitted(tally, steps=3)
    assert tally == Tally(optimiser_steps=3, examples=36, backward_passes=3)
    own, theirs = (
        silo.batch(5, Generator().manual_seed(1)) for silo in (problem.federation.pooled(), VECTOR(CPU).federation.pooled())
    )
    assert torch.equal(own.x1, theirs.x1)
    assert problem.federation.sizes == VECTOR(CPU).federation.sizes


def test_labels_alone_do_not_count_and_are_those_of_the_silo_itself() -> None:
    tally = Tally()
    problem = counted.counted(counted.counted(VECTOR(CPU), tally), tally)  # as the probe counts a contestant's problem
    own, theirs = (LentSilo(one.federation._silos[0], CPU).labels() for one in (problem, VECTOR(CPU)))
    assert torch.equal(own, theirs)
    assert tally == Tally()
    LentSilo(problem.federation._silos[0], CPU).batch(5, Generator().manual_seed(0))
    assert tally == Tally(examples=10)


@pytest.mark.parametrize(
    ("steps", "size", "reported", "said"),
    [
        (GRANTED, 12, GRANTED, ""),
        (GRANTED + 1, 12, GRANTED + 1, f"of {GRANTED} that the budget grants"),
        (GRANTED, 12, GRANTED - 2, f"{GRANTED - 2} were reported"),
        (GRANTED, 6000, GRANTED, "examples"),
    ],
)
def test_what_goes_beyond_the_budget_or_the_report_is_said(steps, size, reported, said) -> None:
    tally = Tally()
    problem = fitted(tally, steps=steps, size=size)
    excess = fit_excess(counted.counts(problem, tally, before=Tally(), reported=reported))
    assert said in excess if said else excess == ""
    assert "before the fit" in fit_excess(counted.counts(problem, tally, before=Tally(examples=1), reported=reported))


def test_decentralised_parties_and_their_server_have_a_budget_each() -> None:
    problem = SILOS(CPU)
    assert counted.allowed_steps(problem) == GRANTED
    for account in problem.federation.accounts:
        account.rounds = 1
    assert counted.allowed_steps(problem) == 4 * GRANTED
    assert counted.allowed_steps(replace(VECTOR(CPU))) == GRANTED
    pooling = SILOS(CPU)
    pooling.federation.pooled()
    assert counted.allowed_steps(pooling) == 3 * GRANTED


def test_evaluations_are_those_of_one_more_sample() -> None:
    weight = torch.randn(8, 8)

    def sample(rows: int) -> None:
        for _ in range(6):
            torch.randn(rows + 5, 8) @ weight  # pilots of no one's are the same for all requests

    assert counted.evaluations(sample, 2, 2 * 8 * 8 * 10, 10, declared=3) == 6
    assert counted.evaluations(sample, 2, 2 * 8 * 8 * 10, 10, declared=20) == 6 * (2 + 5) / 2  # a bound, which says enough
    assert counted.evaluations(sample, 2, 0, 10, declared=3) is None
    assert evaluations_excess(6, 6) == ""
    assert "about 6 evaluations" in evaluations_excess(6.0, 3)


@pytest.mark.parametrize("by_hand", [False, True])
def test_forward_passes_after_the_last_step_count_once_unless_they_train_by_hand(by_hand) -> None:
    weight, rows = torch.zeros(8, 8, requires_grad=True), torch.ones(10, 8)
    forward = 2 * 8 * 8 * 10

    def fit() -> None:
        optimiser = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            (rows @ weight).sum().backward()
            optimiser.step()
        for _ in range(5):
            loss = (rows @ weight).sum()
            if by_hand:
                loss.backward()

    steps = 8 if by_hand else 3
    assert fit_flops(fit, VECTOR(CPU).federation) == ((2 * steps * forward, steps * forward), 0 if by_hand else 5 * forward)


def test_an_extension_has_a_budget_of_its_own() -> None:
    problem = VECTOR(CPU)
    assert counted.allowed_steps(problem, extending=True) == problem.budget.extend_steps
    counts = {"extension_steps": 13.0, "granted_extension_steps": 12.0}
    assert extension_excess(counts) == "13 optimiser steps of the extension, of 12 that the budget grants"
    assert extension_excess({}) == ""


def test_a_run_that_trains_and_samples_more_than_it_says_is_marked_in_its_record(home, tmp_path) -> None:
    text = (Path(__file__).parents[1] / "support" / "planted" / "honest.py").read_text()
    for bug in ("two optimiser steps are reported as one", "evaluations are understated"):
        text = text.replace(STRANGER_BUGS[bug].old, STRANGER_BUGS[bug].new)
    (file := tmp_path / "planted.py").write_text(text)
    facts = {"task": "gauss2d-fact-id", "method": "planted", "preset": "smoke", "device": "cpu", "threads": 1}
    record = run(RunRequest(**facts, home=str(home), plugins=(str(file),))).record
    steps, evaluations = record.spec.budget.train_steps, record.profile.evaluations_per_sample
    assert beyond_budget(record) == (
        f"{2 * steps} optimiser steps, of {steps} that the budget grants",
        f"about {2 * evaluations} evaluations of the network for a sample, of which {evaluations} were declared",
    )


def test_a_sampler_that_is_cheap_for_a_probe_of_two_rows_or_of_no_noise_is_marked_all_the_same(home, tmp_path) -> None:
    text = (Path(__file__).parents[1] / "support" / "planted" / "honest.py").read_text()
    bug = STRANGER_BUGS["evaluations are understated"]
    cheap = "    if len(request.x0) == 2 or not request.x0.any():\n        return request.x0\n"
    head = "def sample(settings, net, request, ctx):\n"
    assert head in text
    (file := tmp_path / "planted.py").write_text(text.replace(bug.old, bug.new).replace(head, head + cheap))
    facts = {"task": "gauss2d-fact-id", "method": "planted", "preset": "smoke", "device": "cpu", "threads": 1}
    record = run(RunRequest(**facts, home=str(home), plugins=(str(file),))).record
    (said,) = beyond_budget(record)
    assert "evaluations of the network for a sample" in said


BY_HAND = """
import copy
def train(steps):
    weight = torch.ones(2, requires_grad=True)
    for _ in range(steps):
        torch.autograd.grad(weight.square().sum(), weight)
asked = []
def guided(x):
    x = x.detach().requires_grad_()
    return (x - torch.autograd.grad(x.square().sum(), x)[0]).detach()
"""
LATE = "1200 backward passes after the fit, where no training is granted"
BATCH = "federation.pooled().batch(8, torch.Generator())"


FACTS = {"task": "blobs-iid", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1}


def marks(home: Path, file: Path, *, resume: bool = False, **more: object) -> tuple[str, ...]:
    """What the record of a run says that it took beyond its budget."""
    record = run(RunRequest(**{**FACTS, **more}, home=str(home), plugins=(str(file),)), force=True, resume=resume).record
    assert record.status == "ok", record.reason
    return beyond_budget(record)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"fit": "train(30)"}, ()),
        ({"fit": "train(1200)"}, ("1200 backward passes in 0 optimiser steps, where the budget's steps take 75 at most",)),
        ({"sample": "asked or train(1200); asked.append(1); return request.x0"}, (LATE,)),
        ({"sample": "return guided(guided(request.x0))"}, ()),
        ({"sample": "train(0 if asked else 300); asked.append(1); return guided(request.x0)"}, (LATE.replace("1200", "299"),)),
        (
            {"fit": "asked.append(problem)", "sample": f"asked and asked.pop().{BATCH}; return request.x0"},
            ("8 examples drawn after the fit, where no training is granted",),
        ),
        (
            {"fit": "asked.append(copy.deepcopy(problem))", "sample": f"asked and asked.pop().{BATCH}; return request.x0"},
            ("8 examples drawn after the fit, where no training is granted",),
        ),
        ({"head": BY_HAND + "train(1200)"}, ("1200 backward passes before the fit began",)),
        (
            {"fit": "child = os.fork()\n    child or (train(1200), os._exit(0))\n    os.waitpid(child, 0)"},
            ("1200 backward passes in 0 optimiser steps, where the budget's steps take 75 at most",),
        ),
    ],
    ids=[
        "by hand within the budget",
        "by hand beyond it",
        "in the first answer",
        "guidance by a gradient",
        "in a first answer that is guided",
        "a draw in an answer",
        "a draw from a copy",
        "at the import",
        "in a process of its own",
    ],
)
def test_training_by_hand_or_after_the_fit_is_marked_and_guidance_is_not(home, plugin, body, said) -> None:
    assert marks(home, plugin(**{"head": BY_HAND, **body})) == said


def test_inpainting_by_a_gradient_is_held_against_an_answer_with_given_entries() -> None:
    answers = counted.Answers()
    for rows in (10, 25):
        answers.add(40 if rows == 10 else 120, rows, known=True)
    answers.add(0, 10)
    assert answers.some(known=True)
    assert not answers.some(known=False)
    assert answers.beyond({True: (40, 10), False: (0, 2)}) == 0
    answers.add(540, 10, known=True, warm_up=True)  # as much as 13 of them
    assert answers.beyond({True: (40, 10)}) == 540 - ceil(SLACK * 80)
    assert answers.beyond({False: (0, 2)}) == answers.passes == 700  # the same answers without such entries take none


SHARED = """
from compbench.api.context import FitParts
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
{train}
def fitted(settings, problem, ctx):
    problem.federation.pooled()
    {fit}
    return Net()
def built(settings, problem):
    {build}
    return Net()
def finished(settings, problem, net):
    {finish}
    return net
def facts(settings, problem):
    {facts}
    return {{}}
naughty = Method
def Method(**given):
    own = {{**given, "fit": fitted, "build": built, "shared_fit": facts, "parts": FitParts(fitted, built, finished)}}
    return naughty(**own)
"""


@pytest.mark.parametrize("place", ["fit", "finish", "build", "facts"])
def test_training_around_a_shared_fit_is_marked_in_the_run_that_makes_it_and_in_those_that_take_it(
    tmp_path, plugin, place: str
) -> None:
    bodies = {**dict.fromkeys(("fit", "build", "finish", "facts"), "pass"), place: "train(1200)"}
    file = plugin(head=SHARED.format(train=BY_HAND, **bodies))
    for _ in range(2):
        (said,) = marks(tmp_path, file)
        assert said.startswith("1200 backward passes " + ("before the fit" if place == "facts" else "in 0 optimiser steps"))
    kept = list((tmp_path / "cache").glob("fit-*.json"))
    assert bool(kept) == (place in ("finish", "build"))  # these are of each run; else the fit is beyond its budget


def test_an_extension_by_hand_or_with_more_data_is_beyond_its_budget() -> None:
    counts = counted.extension(VECTOR(CPU), Tally(0, 100, 1200), retrained=False)
    granted = counts["granted_extension_backward_passes"]
    assert extension_excess(counts) == f"1200 backward passes of the extension, of {granted:.0f} that the budget grants"
    assert extension_excess(counted.extension(VECTOR(CPU), Tally(GRANTED, 12 * GRANTED, 2 * GRANTED), retrained=False)) == ""
    many = counted.extension(VECTOR(CPU), Tally(GRANTED, 10**6, 2 * GRANTED), retrained=False)
    assert "1000000 examples drawn of the extension" in extension_excess(many)


CARRIED = """found = ctx.checkpoints.load()
    if found is None and hasattr(ctx.checkpoints, "path"):  # and not in the probe
        train(1200)
        ctx.checkpoints.save({"w": torch.ones(1)}, {})
        time.sleep(1.5)
        raise ValueError("half way")
    train(30)"""


def test_a_run_that_goes_on_from_another_s_training_counts_it(tmp_path, plugin) -> None:
    file = plugin(head=BY_HAND, fit=CARRIED)
    first = run(RunRequest(**FACTS, home=str(tmp_path), plugins=(str(file),)), force=True).record
    assert (first.status, first.reason) == ("failed", "ValueError: half way")
    (said,) = marks(tmp_path, file, resume=True)
    assert said == "1230 backward passes in all processes of a resumed run, of 75 that the budget grants"


def test_a_run_on_a_cpu_is_lent_no_file_that_an_earlier_seed_left(tmp_path, plugin) -> None:
    """Weights under the name of compiled code were an earlier run's training, which nothing counted."""
    head = "from pathlib import Path\nOWN = Path(os.environ['TMPDIR']).parent\n"
    fit = "(OWN / 'run' / 'compiled.bin').write_bytes(b'weights')"
    fit += "; ctx.notes['found'] = (OWN.with_name(OWN.name + '-lent') / 'compiled.bin').exists()"
    file = plugin(head=head, fit=fit)
    for seed in (0, 1):
        record = run(RunRequest(**FACTS, seed=seed, home=str(tmp_path), plugins=(str(file),)), force=True).record
        assert (record.status, record.notes["fit found"]) == ("ok", 0.0)
