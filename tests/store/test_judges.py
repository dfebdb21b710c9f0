"""Distances of two judges compare in floors; only the kernel distance, whose floor is zero, is left out with the reason."""

import pytest
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import rows
from compbench.board.comparison import compare
from compbench.board.notation import notes
from compbench.store.judges import by_one_judge
from compbench.store.profiles import Costs


def run(method: str, floor: float, *, seed: int = 0, value: float = 300.0, **facts) -> Record:
    return record(
        score("heldout_accuracy", 0.5, ceiling=0.97),
        score("heldout_fd_judge", value, floor=floor),
        score("heldout_recall", 0.7, floor=0.9),
        score("heldout_kid", 0.4, floor=0.001),
        score("heldout_fid", 20.0, floor=5.0),
        method=method,
        seed=seed,
        **facts,
    )


def values(one: Record) -> dict[str, float | None]:
    return {found.name: found.value for found in one.scores}


def test_the_kernel_distance_by_a_judge_of_its_own_goes_and_what_has_a_floor_stays() -> None:
    made = [run("a", 141.8), run("b", 141.8 * (1 + 1e-10)), run("c", 207.0)]
    (one, other, stranger), others = by_one_judge(made)
    assert others == {made[2].name}
    assert (values(one), values(other)) == (values(made[0]), values(made[1]))
    assert values(stranger) == values(made[2]) | {"heldout_kid": None}
    found = stranger.score("heldout_kid")
    assert found is not None
    assert found.reason == "in another judge's features: its noise floor is 207, that of most runs of this seed 141.8"


def test_another_seed_or_size_of_sample_has_another_floor_by_the_same_judge() -> None:
    known = [run("a", 141.8), run("a", 119.4, seed=1), run("b", 155.0, task_settings={"per_cell": 2})]
    assert by_one_judge(known) == (known, frozenset())


@pytest.mark.parametrize("order", [1, -1])
def test_of_equally_many_the_lower_floor_stays_in_any_order(order: int) -> None:
    found = by_one_judge([run("a", 207.0), run("b", 141.8)][::order]).records
    assert [one.spec.method for one in found if values(one)["heldout_kid"]] == ["b"]


def test_a_row_has_every_seed_s_distance_in_floors_whatever_judge_saw_it() -> None:
    most = [run("a", floor, seed=seed) for seed, floor in enumerate((100.0, 110.0))]
    other = [run("b", 100.0, value=500.0), run("b", 160.0, seed=1, value=900.0)]
    strange = [run("c", floor, seed=seed) for seed, floor in enumerate((150.0, 160.0))]
    found = {row.method: row for row in rows([*most, *other, *strange, run("d", 110.0, seed=1)])}
    cell = found["b"].scores["heldout_fd_judge"]
    assert (cell.num_seeds, cell.relative) == (2, pytest.approx((500 / 100 + 900 / 160) / 2))
    assert found["b"].scores["heldout_kid"].num_seeds == 1
    assert "another judge's features, comparable only as multiples of real data's: seed 1" in notes(found["b"])
    assert not any("judge" in note for note in notes(found["a"]))
    assert found["a"].scores["heldout_fd_judge"].num_seeds == 2
    assert "heldout_kid" not in found["c"].scores
    assert found["c"].unavailable["heldout_kid"].startswith("in another judge's features: its noise floor is 150,")


def test_a_comparison_divides_them_by_their_floors_and_says_which() -> None:
    found = compare([run("a", 141.8)], [run("b", 207.0)], ("a", "b"), "task", Costs())
    names = ["heldout_accuracy", "heldout_fd_judge / floor", "heldout_fid", "heldout_recall / floor"]
    assert [entry.name for entry in found.scores] == names
    assert found.scores[1].difference == pytest.approx(300 / 207 - 300 / 141.8)
    two = "in the features of two judges, trained on two types of processor"
    assert found.remarks == (
        f"divided by each run's own floor, since they are {two}: heldout_fd_judge, heldout_recall",
        f"left out, since its floor is zero and it is {two}: heldout_kid",
    )
    assert len(compare([run("a", 141.8)], [run("b", 141.8)], ("a", "b"), "task", Costs()).scores) == 5


def test_records_of_other_data_are_compared_as_they_are() -> None:
    found = compare([run("a", 141.8)], [run("b", 207.0, fingerprint="renderer-2")], ("a", "b"), "task", Costs())
    assert (len(found.scores), found.remarks) == (5, ())
