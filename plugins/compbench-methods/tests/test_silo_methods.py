"""The decentralised methods on tiny silos: they obey, resume, cost what they say, and one silo is enough for them."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from compbench_methods import centralised, dcfm, ddm, dfd, fedflow
from problems import SPACE, context, image_problem
from support.seldom import seldom
from torch import Generator, Tensor, nn

from compbench.api.closures import refuse_tensors
from compbench.api.context import Steps
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Method, Problem, Request
from compbench.data.silo_shards import TensorSilo
from compbench.flow.independence import peer_loss
from compbench.flow.local_experts import LocalSettings
from compbench.flow.silos import NUM_LABELS, local_experts, network, recipe, split
from compbench.runner.checkpoints import FileCheckpoints
from compbench.runner.cost_probe import probed
from compbench.system import profiling
from compbench.system.bf16 import arithmetic
from compbench.system.errors import Cancelled

METHODS: dict[str, Method] = {
    method.name: method for module in (centralised, dcfm, ddm, dfd, fedflow) for method in module.compbench_methods()
}
DECENTRALISED = [name for name, method in METHODS.items() if not method.pools_silos]
HOLDOUT = Holdout(SPACE, (0, 1), ((1, 0),))


def problem(*, train_steps: int = 200, silos: int = 2, uneven: bool = False) -> Problem:
    """Corners of a square, three of the four; the silos share one."""
    generator = Generator().manual_seed(0)
    parts = [((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 1), (0, 0))][:silos] if silos > 1 else [((0, 0), (0, 1), (1, 1))]
    made = []
    for number, cells in enumerate(parts):
        each = 3 if uneven and number else 400
        condition = torch.tensor(cells).repeat_interleave(each, 0)
        x1 = 2.0 * condition - 1 + 0.3 * torch.randn(len(condition), 2, generator=generator)
        made.append(TensorSilo(f"silo {number}", x1, condition))
    budget = Budget(
        train_steps=train_steps, batch_size=128, width=48, learning_rate=6e-3, ema_decay=0.98, sample_steps=15, warmup_steps=4
    )
    return Problem(SPACE, Event("vector", (2,)), Federation(made), budget, HOLDOUT, composed=(0, 1))


def draw(method: Method, model, condition: Tensor, shape=(2,), **settings) -> Tensor:
    x0 = torch.randn(len(condition), *shape, generator=Generator().manual_seed(3))
    return method.sample(method.settings(**settings), model, Request(condition, x0), context())


def fit(method: Method, whole: Problem, ctx=None, **settings):
    torch.manual_seed(0)
    return method.fit(method.settings(**settings), whole, ctx or context())


@cache
def short(name: str) -> nn.Module:
    """The model of a short fit, for tests that only look at it."""
    return fit(METHODS[name], problem(train_steps=16))


@pytest.mark.parametrize("name", seldom(METHODS, but=["ddm"]))
def test_seen_combinations_land_in_their_corners(name: str) -> None:
    method = METHODS[name]
    x = draw(method, fit(method, problem(train_steps=80)), torch.tensor(HOLDOUT.seen_cells).repeat(100, 1))
    asked = 2.0 * torch.tensor(HOLDOUT.seen_cells).repeat(100, 1) - 1
    assert ((x - asked).norm(dim=1) < 1).float().mean() > 0.8


@pytest.mark.parametrize("name", seldom(DECENTRALISED, but=["ddm", "dcfm-b"]))
def test_states_cross_the_border_as_often_as_the_method_says(name: str) -> None:
    whole = problem(train_steps=12, silos=3, uneven=True)
    model = fit(METHODS[name], whole)
    accounts = whole.federation.accounts
    assert not whole.federation.was_pooled
    out = {"fedflow": 12, "ddm": 1, "dfd": 1, "dcfm-a": 3, "dcfm-b": 1}[name]
    into = {"fedflow": 12, "dcfm-a": 2}.get(name, 0)
    assert [(account.transfers_out, account.transfers_in) for account in accounts] == [(out, into)] * 3
    if name == "fedflow":
        size = sum(value.numel() * value.element_size() for value in model.state_dict().values())
        assert [account.bytes_in for account in accounts] == [12 * size] * 3
        assert [account.bytes_out for account in accounts] == [12 * size] * 3


@pytest.mark.parametrize("name", ["ddm", "dfd"])
def test_a_short_fit_tells_the_cost_of_a_whole_one(name: str) -> None:
    """dfd centres each silo's energy once, which costs more than all steps of a short fit."""
    method, steps = METHODS[name], []
    whole = problem(train_steps=80)
    ctx = context(progress=lambda done, total: steps.append(done))
    with profiling.counting_flops() as so_far:
        model = method.fit(method.settings(), whole, ctx)
    request = Request(torch.tensor(HOLDOUT.cells).repeat(4, 1), torch.randn(4, 2))
    found = probed(method, method.settings(), model, problem(train_steps=80), request, context, trained=max(steps))
    assert max(steps) * found.per_train_step == pytest.approx(so_far().total, rel=0.02)


def test_dfd_asks_strangers_only_where_a_setting_says_so() -> None:
    """Silo 0 has left alone, silo 1 top alone: only the other one knows right, and only silo 0 knows bottom."""
    x, t = torch.randn(5, 2), torch.zeros(5)
    conditions = torch.tensor([[[1, -1]], [[-1, 0]], [[-1, 1]]]).expand(3, 5, 2)
    own, both = (fit(METHODS["dfd"], problem(train_steps=4), ask_strangers=ask).router(x, t, conditions) for ask in (False, True))
    assert own[:, :2].unique(dim=2).squeeze(-1).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert torch.equal(own[:, 2], both[:, 2])
    assert (both > 0).all()


@pytest.mark.parametrize("silos", [2, 3])
def test_an_expert_beside_its_peers_receives_each_of_them_once(silos: int) -> None:
    whole = problem(train_steps=12, silos=silos)
    mixture = fit(METHODS["dcfm-a"], whole)
    expert = sum(value.numel() * value.element_size() for value in mixture.experts.state(0).values())
    counts = 4 * sum(SPACE.sizes)  # what the silo tells of its labels, float32
    for account in whole.federation.accounts:
        assert (account.transfers_in, account.bytes_in) == (silos - 1, (silos - 1) * (expert + counts))
        assert (account.transfers_out, account.bytes_out) == (silos, silos * (expert + counts))


def test_a_student_costs_one_transfer_of_each_expert_and_labels_in_bytes() -> None:
    whole, ctx = problem(train_steps=12), context()
    student = fit(METHODS["dcfm-b"], whole, ctx)
    network_bytes = sum(value.numel() * value.element_size() for value in student.state_dict().values())
    counts, labels = 4 * sum(SPACE.sizes), NUM_LABELS * len(SPACE)  # float32; a byte each
    assert [account.bytes_out for account in whole.federation.accounts] == [network_bytes + counts + labels] * 2
    assert ctx.notes["server_steps"] == 12


@pytest.mark.parametrize("size", [256, 257])
def test_labels_come_back_as_they_were_whatever_they_were_sent_in(size: int) -> None:
    space = FactorSpace([Factor("many", size)])
    condition = torch.arange(size)[:, None]
    silos = [TensorSilo(name, torch.randn(size, 2), condition) for name in ("one", "two")]
    whole = replace(problem(), space=space, federation=Federation(silos), holdout=Holdout.empty(space), composed=())
    trained = local_experts(
        recipe(lambda settings, known: nn.Linear(1, 1), LocalSettings(), whole),
        lambda *given: None,
        whole,
        context(),
        stage="local",
        steps=Steps(lambda done, total: None, 1),
        num_labels=NUM_LABELS,
    )
    assert trained.labels.dtype == torch.long
    assert trained.labels.unique().tolist() == list(range(size))
    sent = [account.bytes_out - 8 - 4 * size for account in whole.federation.accounts]
    assert sent == [NUM_LABELS * (1 if size == 256 else 2)] * 2


def test_every_party_makes_the_same_untrained_network() -> None:
    torch.manual_seed(5)
    expected = network(LocalSettings(), problem()).state_dict()
    torch.manual_seed(5)
    make = recipe(network, LocalSettings(), problem())
    before = torch.get_rng_state()
    for net in (make(), make()):
        assert all(torch.equal(value, expected[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), before)
    refuse_tensors(make)


def test_the_bound_pools_and_is_marked() -> None:
    whole = problem(train_steps=3)
    fit(METHODS["centralised"], whole)
    assert whole.federation.was_pooled


@pytest.mark.parametrize("name", METHODS)
def test_every_party_takes_the_budgets_steps_in_all_stages_and_rounds(name: str) -> None:
    seen, whole = [], problem(train_steps=13)
    fit(METHODS[name], whole, context(progress=lambda done, total: seen.append((done, total))))
    parties = {"dcfm-b": 3}.get(name, 2)  # the student is trained by a third party, the server; the bound has all silos' steps
    assert seen[-1] == (13 * parties, 13 * parties)
    assert [account.steps for account in whole.federation.accounts] == [0 if name == "centralised" else 13] * 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_bound_has_one_silos_steps_where_a_setting_says_so() -> None:
    seen = []
    fit(METHODS["centralised"], problem(train_steps=13), context(progress=lambda done, total: seen.append(done)), steps="silo")
    assert seen[-1] == 13


@pytest.mark.parametrize("name", seldom(METHODS, but=["dcfm-b"]))
def test_an_interrupted_fit_goes_on_bit_for_bit(name: str, tmp_path) -> None:
    method, straight = METHODS[name], short(name).state_dict()
    count = 0

    def cancelled() -> bool:
        nonlocal count
        count += 1
        return count > 11

    path = tmp_path / "fit.safetensors"
    stopped = context(cancelled=cancelled)
    stopped.checkpoints = FileCheckpoints(path, resume=False)
    with pytest.raises(Cancelled):
        fit(method, problem(train_steps=16), stopped)
    again = context()
    again.checkpoints = FileCheckpoints(path, resume=True)
    torch.manual_seed(0)
    resumed = fit(method, problem(train_steps=16), again).state_dict()
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(straight[key], resumed[key]) for key in straight)


@pytest.mark.parametrize("name", METHODS)
def test_kept_weights_sample_alike(name: str) -> None:
    method, model = METHODS[name], short(name)
    built = method.build(method.settings(), problem(train_steps=16))
    built.load_state_dict(model.state_dict())
    condition = torch.tensor([[0, 0], [1, 1]] * 8)
    assert torch.allclose(draw(method, built.eval(), condition), draw(method, model, condition))


@pytest.mark.parametrize("name", seldom(METHODS, but=["centralised", "dcfm-b", "ddm"]))
def test_penalties_and_inference_are_settings_that_matter(name: str) -> None:
    method = METHODS[name]
    penalty = {"coind": True} if name == "centralised" else {"local_ci": name not in ("dcfm-a", "dcfm-b")}
    plain, other = short(name), fit(method, problem(train_steps=16), **penalty)
    condition = torch.tensor([[1, 0]] * 8)
    assert not torch.allclose(draw(method, plain, condition), draw(method, other, condition))
    assert not torch.allclose(draw(method, plain, condition), draw(method, plain, condition, inference="joint"))


@pytest.mark.parametrize("name", seldom(METHODS, but=["centralised", "dcfm-a"]))
def test_images_are_drawn_from_a_single_silo_too(name: str) -> None:
    arithmetic(torch.device("cpu"), "fp32")  # before torch 2.14 stacked networks in channels-last need it
    method, whole = METHODS[name], image_problem(train_steps=4)
    x = draw(method, fit(method, whole), torch.zeros(3, 2).long(), (3, 16, 16))
    assert x.shape == (3, 3, 16, 16)
    assert x.isfinite().all()
    assert method.evaluations(method.settings(), whole) == 8 * 3


def test_two_parts_of_a_budget_are_the_whole_of_it() -> None:
    whole = problem(train_steps=65).budget
    for share in (0.25, 0.5, 0.9):
        first, second = split(whole, share)
        assert first.train_steps + second.train_steps == 65
        assert second.train_steps == round(65 * share)
    assert [part.train_steps for part in split(problem(train_steps=1).budget, 0.25)] == [1, 1]


@pytest.mark.parametrize("name", seldom(["dcfm-a", "dcfm-b"], but=["dcfm-a"]))
def test_the_ramp_of_the_penalty_matters(name: str) -> None:
    states = [fit(METHODS[name], problem(train_steps=16), ramp=ramp).state_dict() for ramp in (0.0, 0.8)]
    assert any(not torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_peers_penalty_grows_from_nothing_to_the_whole_over_the_last_quarter_of_a_silos_steps(monkeypatch) -> None:
    shares: list[float] = []

    def watched(*given, ramp, **named):
        loss = peer_loss(*given, ramp=ramp, **named)

        def noted(*asked):
            shares.append(ramp())
            return loss(*asked)

        return noted

    monkeypatch.setattr(dcfm, "peer_loss", watched)
    fit(METHODS["dcfm-a"], problem(train_steps=40))
    assert shares == pytest.approx([step / 10 for step in range(1, 11)] * 2)  # two silos


def test_masks_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 1, got 1.3"):
        LocalSettings(pi_full=1.0)
