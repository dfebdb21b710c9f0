"""The border of a silo: what may cross it, what is refused, what it costs."""

import json
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from compbench.api.context import Batch, Context, NoCheckpoints, Steps
from compbench.api.federation import Federation, LentSilo, SiloMemory
from compbench.data.silo_shards import TensorSilo
from compbench.runner.checkpoints import FileCheckpoints
from compbench.system.errors import CompbenchError, Refused

LIKE = {"w": torch.empty(2, 3), "n": torch.empty((), dtype=torch.long)}
KEPT: list[object] = []


def silo(name: str = "one", size: int = 200, seed: int = 0) -> TensorSilo:
    generator = Generator().manual_seed(seed)
    return TensorSilo(name, torch.randn(size, 3, generator=generator), torch.zeros(size, 2, dtype=torch.long))


def context(checkpoints=None, **changes) -> Context:
    return Context(torch.device("cpu"), "fp32", Generator().manual_seed(3), checkpoints or NoCheckpoints(), **changes)


def mean_of(lent: LentSilo, received: dict[str, Tensor], ctx: Context) -> dict[str, Tensor]:
    batch = lent.batch(16, ctx.generator)
    return {"w": batch.x1.mean(0).expand(2, 3) + received.get("w", 0), "n": torch.tensor(16)}


def run(work: Callable, *, ctx: Context | None = None, **changes) -> list[dict[str, Tensor]]:
    return Federation([silo("one"), silo("two", 50, 1)]).run(work, ctx or context(), like=LIKE, stage="s", **changes)


def test_accounts_are_the_bytes_and_transfers_of_the_states() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1), silo("three", 9, 2)])
    sent = {"w": torch.zeros(2, 3)}
    federation.run(mean_of, context(), like=LIKE, stage="a", send=sent)
    federation.run(mean_of, context(), like=LIKE, stage="b", recipients=2)
    for account in federation.accounts:
        assert (account.rounds, account.transfers_in, account.transfers_out) == (2, 1, 1 + 2)
        assert account.bytes_in == 6 * 4
        assert account.bytes_out == 3 * (6 * 4 + 8)
        assert account.seconds > 0
    assert [account.size for account in federation.accounts] == [200, 50, 9]


def counting(lent: LentSilo, received: dict[str, Tensor], ctx: Context) -> dict[str, Tensor]:
    return {**mean_of(lent, received, ctx), "own": received["own"] + lent.number + 1}


def test_what_a_silo_keeps_comes_back_to_it_alone_and_is_not_metered() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1)])
    memory = SiloMemory({"own": torch.ones(1000)})  # whatever these are, a silo starts at zero
    for stage in ("a", "b", "c"):
        found = federation.run(counting, context(), like=LIKE, stage=stage, memory=memory)
        assert [set(state) for state in found] == [{"w", "n"}] * 2
    assert [memory.of(number)["own"].unique().tolist() for number in (0, 1)] == [[3.0], [6.0]]
    assert [(account.bytes_in, account.bytes_out) for account in federation.accounts] == [(0, 3 * (6 * 4 + 8))] * 2
    federation.run(counting, context(), like=LIKE, stage="a", memory=SiloMemory({"own": torch.zeros(1)}))  # another fit's


def test_what_a_silo_keeps_is_there_when_a_run_resumes(tmp_path) -> None:
    path = tmp_path / "fit.safetensors"
    for resume in (False, True):
        memory, federation = SiloMemory({"own": torch.zeros(2)}), Federation([silo("one"), silo("two", 50, 1)])
        for stage in ("a", "b"):
            federation.run(counting, context(FileCheckpoints(path, resume=resume)), like=LIKE, stage=stage, memory=memory)
        assert memory.of(1)["own"].tolist() == [4.0, 4.0]


def test_what_a_silo_keeps_is_held_to_its_shape_and_searched_for_data() -> None:
    def steal(lent, received, ctx):
        return {"w": torch.zeros(2, 3), "n": 0, "own": lent.batch(4, ctx.generator).x1[1]}

    with pytest.raises(Refused, match="'own' contains a training example"):
        run(steal, memory=SiloMemory({"own": torch.zeros(3)}))
    with pytest.raises(Refused, match="announced as"):
        run(steal, memory=SiloMemory({"own": torch.zeros(4)}))
    with pytest.raises(CompbenchError, match="'w' is both kept by the silos and sent"):
        run(mean_of, memory=SiloMemory({"w": torch.zeros(2, 3)}))


def test_probes_cost_the_method_nothing() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1)])
    federation.unmetered().run(mean_of, context(), like=LIKE, stage="a")
    assert [account.rounds for account in federation.accounts] == [0, 0]


def test_each_silo_has_random_numbers_of_its_own_whatever_the_order() -> None:
    there = Federation([silo("one"), silo("two", 50, 1)]).run(mean_of, context(), like=LIKE, stage="s")
    back = Federation([silo("two", 50, 1), silo("one")]).run(mean_of, context(), like=LIKE, stage="s")
    assert torch.equal(there[0]["w"], back[1]["w"])
    assert torch.equal(there[1]["w"], back[0]["w"])


def test_silos_side_by_side_give_what_they_give_one_by_one() -> None:
    one_by_one = run(mean_of)
    side_by_side = run(mean_of, devices=[torch.device("cpu"), torch.device("cpu")])
    for first, second in zip(one_by_one, side_by_side, strict=True):
        assert torch.equal(first["w"], second["w"])


def test_what_was_sent_can_be_spoilt_without_harm() -> None:
    sent = {"w": torch.zeros(2, 3)}

    def spoil(lent, received, ctx):
        received["w"] += 1
        return {"w": received["w"], "n": 0}

    assert all(float(state["w"].sum()) == 6 for state in run(spoil, send=sent))
    assert not sent["w"].any()


@pytest.mark.parametrize("shift", [0, 1])
def test_raw_rows_in_a_result_are_refused_by_name(shift: int) -> None:
    def steal(lent, received, ctx):
        rows = lent.batch(8, ctx.generator).x1
        return {"w": torch.stack([rows[shift], rows[2]]), "n": torch.tensor(0)}

    with pytest.raises(Refused, match="raw data from silo 'one': 'w' contains a training example"):
        run(steal)


def test_data_kept_outside_is_refused() -> None:
    def keep(lent, received, ctx):
        KEPT.append(lent.batch(8, ctx.generator).x1[2:4])
        return {"w": torch.zeros(2, 3), "n": 0}

    with pytest.raises(Refused, match="kept raw data of silo 'one'"):
        run(keep)
    KEPT.clear()


def test_a_kept_silo_is_closed() -> None:
    def keep(lent, received, ctx):
        KEPT.append(lent)
        return {"w": torch.zeros(2, 3), "n": 0}

    run(keep)
    with pytest.raises(Refused, match="outside the function that runs there"):
        KEPT.pop(0).batch(4, Generator())
    KEPT.clear()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda: torch.zeros(2, 3), "returned a Tensor from silo 'one'"),
        (lambda: {"w": torch.zeros(2, 3)}, "only one of the two has 'n'"),
        (lambda: {"w": torch.zeros(2, 3), "n": 0, "x": 1}, "only one of the two has 'x'"),
        (lambda: {"w": torch.zeros(200, 3), "n": 0}, r"'w' from silo 'one' as \(200, 3\), announced as \(2, 3\)"),
    ],
)
def test_anything_but_the_announced_state_is_refused(returned: Callable[[], object], message: str) -> None:
    with pytest.raises(Refused, match=message):
        run(lambda lent, received, ctx: returned())


def test_a_gather_brings_every_peers_state_and_is_booked_for_the_peers_only() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1), silo("three", 9, 2)])
    first = federation.run(mean_of, context(), like=LIKE, stage="a", recipients=2)

    def again(lent, received, ctx):
        assert set(received) == {f"{k}.{name}" for k in range(3) for name in ("w", "n")}
        return {"w": sum((k + 1) * received[f"{k}.w"] for k in range(3)), "n": lent.number}

    second = federation.run(again, context(), like=LIKE, stage="b", gather=True)
    expected = sum((k + 1) * state["w"] for k, state in enumerate(first))
    assert all(torch.equal(state["w"], expected) for state in second)
    assert [int(state["n"]) for state in second] == [0, 1, 2]
    size = 6 * 4 + 8
    assert [(account.transfers_in, account.bytes_in) for account in federation.accounts] == [(2, 2 * size)] * 3
    assert [(account.transfers_out, account.bytes_out) for account in federation.accounts] == [(3, 3 * size)] * 3


def test_what_a_run_brings_back_is_a_copy_of_what_the_silos_keep() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1)])
    for state in federation.run(mean_of, context(), like=LIKE, stage="a"):
        state["w"].fill_(7.0)

    def other(lent, received, ctx):
        return {"w": received[f"{1 - lent.number}.w"], "n": 0}

    assert not any((state["w"] == 7).any() for state in federation.run(other, context(), like=LIKE, stage="b", gather=True))


def test_a_gather_before_any_run_is_refused() -> None:
    with pytest.raises(CompbenchError, match="nothing to gather"):
        run(mean_of, gather=True)


def test_steps_of_a_silo_are_counted_over_its_rounds() -> None:
    def steps_of_its_size(lent, received, ctx):
        for step in range(lent.size // 50):
            ctx.progress(step + 1, lent.size // 50)
        return mean_of(lent, received, ctx)

    federation = Federation([silo("one"), silo("two", 50, 1)])
    for stage in "ab":
        federation.run(steps_of_its_size, context(), like=LIKE, stage=stage)
    assert [account.steps for account in federation.accounts] == [8, 2]


def test_a_ledger_restores_accounts_and_pooling() -> None:
    federation = Federation([silo("one"), silo("two", 50, 1)])
    federation.run(mean_of, context(), like=LIKE, stage="a")
    federation.pooled()
    other = federation.unmetered()
    other.restore(json.loads(json.dumps(federation.ledger())))
    assert other.was_pooled
    assert other.accounts == federation.accounts


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ledger: ledger.pop("pooled"), "whether it pooled the silos"),
        (lambda ledger: ledger.update(pooled="no"), "whether it pooled the silos"),
        (lambda ledger: ledger.update(pooled=False), "saw no silo"),
        (lambda ledger: ledger["accounts"].pop(), "to other silos"),
        (lambda ledger: ledger.pop("accounts"), "whether it pooled the silos"),
    ],
)
def test_a_ledger_that_was_tampered_with_is_refused(spoil: Callable, message: str) -> None:
    federation = Federation([silo("one"), silo("two", 50, 1)])
    federation.pooled()
    ledger = federation.ledger()
    spoil(ledger)
    with pytest.raises(CompbenchError, match=message):
        federation.unmetered().restore(ledger)


def test_states_are_finite() -> None:
    with pytest.raises(CompbenchError, match="silo 'one' is not finite in 'w'"):
        run(lambda lent, received, ctx: {"w": torch.full((2, 3), float("nan")), "n": 0})


def test_an_empty_silo_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(CompbenchError, match="silo 'none' is empty"):
        Federation([silo(), silo("none", 0)])
    with pytest.raises(CompbenchError, match="distinct names, got one, one"):
        Federation([silo(), silo()])


def test_a_silo_of_one_example_and_a_missing_value_work() -> None:
    tiny = TensorSilo("tiny", torch.zeros(1, 3), torch.ones(1, 2, dtype=torch.long))
    (state,) = Federation([tiny]).run(mean_of, context(), like=LIKE, stage="s")
    assert not state["w"].any()


def test_labels_may_leave_and_are_all_there() -> None:
    labels = torch.arange(4).reshape(2, 2)
    lent = LentSilo(TensorSilo("one", torch.zeros(2, 3), labels), torch.device("cpu"))
    assert torch.equal(lent.labels(), labels)


def test_a_resumed_run_does_not_repeat_the_silos_that_had_finished(tmp_path) -> None:
    visited = []

    def work(lent, received, ctx):
        visited.append(lent.name)
        if lent.name == "two" and len(visited) == 2:
            raise KeyboardInterrupt
        ctx.progress(5, 5)
        return mean_of(lent, received, ctx)

    seen: list[tuple[int, int]] = []
    steps = Steps(lambda done, total: seen.append((done, total)), 10)
    with pytest.raises(KeyboardInterrupt):
        run(work, ctx=context(FileCheckpoints(tmp_path / "fit.safetensors", resume=False)), steps=steps)
    checkpoints = FileCheckpoints(tmp_path / "fit.safetensors", resume=True)
    steps = Steps(lambda done, total: seen.append((done, total)), 10)
    resumed = run(work, ctx=context(checkpoints), steps=steps)
    assert visited == ["one", "two", "two"]
    assert seen[-1] == (10, 10)
    for one, other in zip(resumed, run(mean_of), strict=True):
        assert torch.equal(one["w"], other["w"])
    assert checkpoints.resumed
    checkpoints.clear()
    assert not list(tmp_path.iterdir())


def test_pooling_is_noted_and_draws_silos_by_their_sizes() -> None:
    class Marked:
        def __init__(self, name: str, size: int, mark: float) -> None:
            self.name, self.size, self.mark = name, size, mark

        def batch(self, size: int, generator: Generator) -> Batch:
            return Batch(torch.full((size, 1), self.mark), torch.zeros(size, 1, dtype=torch.long))

    federation = Federation([Marked("a", 300, 0.0), Marked("b", 100, 1.0)])
    drawn = federation.pooled().batch(20_000, Generator().manual_seed(0)).x1
    assert federation.was_pooled
    assert abs(float(drawn.mean()) - 0.25) < 4 * (0.25 * 0.75 / 20_000) ** 0.5
    alone = Federation([Marked("a", 300, 0.0)])
    alone.pooled()
    assert not alone.was_pooled


def test_steps_count_several_loops_as_one() -> None:
    seen = []
    steps = Steps(lambda done, total: seen.append((done, total)), 4)
    first, second = steps.part(), steps.part()
    first(1, 2)
    second(1, 2)
    first(2, 2)
    second(2, 2)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
