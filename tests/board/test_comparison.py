"""Two methods or two records side by side: differences paired by seed, intervals, costs, and one line for what cannot be."""

import io
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image
from support.sample_records import png, record, score

from compbench.api.schemas import Record
from compbench.board.comparison import CostRatio, compare, compare_records, side_by_side
from compbench.cli.compare import _lines
from compbench.cli.main import main
from compbench.store.profiles import Costs
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


def runs(method: str, values: dict[int, float], **facts) -> list[Record]:
    return [
        record(score("heldout_fd_judge", value, primary=True), method=method, seed=seed, **facts)
        for seed, value in values.items()
    ]


def compared(a: list[Record], b: list[Record]):
    return compare(a, b, ("a", "b"), "task", Costs())


def test_a_difference_is_paired_by_seed_with_student_s_interval() -> None:
    (found,) = compared(runs("a", {0: 1.0, 1: 5.0, 2: 9.0}), runs("b", {2: 10.5, 0: 2.0, 1: 7.0})).scores
    assert (found.a, found.b, found.num_seeds) == (5.0, 6.5, 3)
    assert found.difference == pytest.approx(1.5)
    half = 4.302652729911275 * 0.5 / math.sqrt(3)  # t of 97.5 % at 2 degrees; differences 1, 2, 1.5 scatter by 0.5
    assert found.interval == pytest.approx((1.5 - half, 1.5 + half))
    assert found.better == "A"  # lower is better of a distance


def test_seeds_that_only_one_of_them_has_are_left_out_and_said() -> None:
    found = compared(runs("a", {0: 1.0, 1: 2.0}), runs("b", {0: 1.0, 1: 2.0, 7: 99.0}))
    assert (found.scores[0].b, found.scores[0].num_seeds) == (1.5, 2)
    assert found.remarks == ("left out, as only one of them has it: seed 7",)
    assert [name.split(".")[3] for name in found.records] == ["s0", "s0"]


@pytest.mark.parametrize(("seeds", "num"), [({0: 2.0}, 1), ({5: 2.0}, 0)])
def test_one_seed_or_none_in_common_has_no_interval_and_no_winner(seeds, num) -> None:
    found = compared(runs("a", {0: 1.0}), runs("b", seeds))
    (only,) = found.scores
    assert (only.interval, only.better, only.num_seeds, only.difference) == (None, "", num, 1.0)
    assert bool(found.remarks) == (num == 0)


def test_shares_that_happen_to_agree_keep_their_binomial_error() -> None:
    a = [record(score("heldout_accuracy", 0.5, n=100), method="a", seed=seed) for seed in range(3)]
    b = [record(score("heldout_accuracy", 0.6, n=100), method="b", seed=seed) for seed in range(3)]
    (found,) = compared(a, b).scores
    half = 1.959963984540054 * math.sqrt((0.25 + 0.24) / 300)
    assert found.interval == pytest.approx((0.1 - half, 0.1 + half))
    assert found.better == "B"


def test_scores_of_two_metric_versions_are_not_compared() -> None:
    b = [record(score("heldout_fd_judge", 1.0, metric_version=2), method="b", seed=seed) for seed in (0, 1)]
    assert compared(runs("a", {0: 1.0, 1: 2.0}), b).scores == ()


def test_costs_are_ratios_of_what_both_have() -> None:
    more = {"more": {"profile": {"parameters": 100, "flops_per_sample": 8.0, "evaluations_per_sample": 20}}}
    less = {"more": {"profile": {"parameters": 50, "flops_per_sample": 4.0}}}
    found = {cost.name: cost for cost in compared(runs("a", {0: 1.0}, **more), runs("b", {0: 1.0}, **less)).costs}
    assert (found["parameters"].ratio, found["FLOPs a sample"].ratio) == (0.5, 0.5)
    assert found["evaluations a sample"].ratio is None


def test_rows_that_do_not_compete_are_said() -> None:
    found = compared(runs("a", {0: 1.0}, more={"oracle": True}), runs("b", {0: 1.0}, more={"samples_only": True}))
    assert [remark.split(":")[0] for remark in found.remarks] == ["a", "b"]


def test_two_records_say_what_of_their_protocol_differs() -> None:
    a, b = runs("a", {0: 1.0})[0], runs("b", {0: 1.0}, preset="smoke", budget={"width": 8})[0]
    found = compare_records(a, b, Costs())
    assert "budget differs: {'width': 32} and {'width': 8}" in found.remarks
    assert "preset differs: quick and smoke" in found.remarks


def test_another_torch_or_processor_is_said_since_it_rounds_otherwise() -> None:
    def on(torch: str, cpu: str) -> Record:
        (own,) = runs("a", {0: 1.0})
        return own.model_copy(update={"environment": own.environment.model_copy(update={"torch": torch, "cpu": cpu})})

    remarks = compare_records(on("2.13.0+cpu", "x"), on("2.14.1", "y"), Costs()).remarks
    assert [remark.partition(";")[0] for remark in remarks] == [
        "torch differs: 2.13.0+cpu and 2.14.1",
        "processor differs: x and y",
    ]
    assert compare_records(on("2.14.1", "x"), on("2.14.1", "x"), Costs()).remarks == ()


def test_records_of_two_tasks_or_of_a_failed_run_are_refused() -> None:
    (a,) = runs("a", {0: 1.0})
    with pytest.raises(CompbenchError, match="compare records of one task"):
        compare_records(a, runs("b", {0: 1.0}, task="mpi3d-heavy")[0], Costs())
    with pytest.raises(CompbenchError, match="ended as 'failed'"):
        compare_records(a, record(method="b", status="failed"), Costs())


def test_pictures_stand_side_by_side_under_their_names() -> None:
    sheet = Image.open(io.BytesIO(side_by_side([("a", png(10, 20)), ("b", png(30, 8))])))
    assert sheet.size == (10 + 12 + 30, 24 + 20)
    with pytest.raises(CompbenchError, match="the picture of a cannot be read"):
        side_by_side([("a", b"none")])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    own = Store(tmp_path / "records")
    for one in (*runs("mono", {0: 1.0, 1: 2.0}), *runs("factored", {0: 0.5, 1: 1.4})):
        own.write(one, {"samples.png": png(10, 20)})
    own.write(runs("mono", {0: 3.0}, task="mpi3d-heavy")[0])
    return own


def verb(store: Store, *words: str):
    return CliRunner().invoke(main, ["compare", *words, "--records", str(store.folder)])


def test_the_verb_compares_two_methods_where_both_were_run(store, tmp_path) -> None:
    done = verb(store, "mono", "factored", "--picture", str(tmp_path / "both.png"))
    assert done.exit_code == 0, done.output
    assert "shapes3d-heavy, quick, built-in data" in done.output
    assert "mpi3d" not in done.output
    assert "-0.55" in done.output
    assert Image.open(tmp_path / "both.png").size == (10 + 12 + 10, 24 + 20)
    (found,) = json.loads(verb(store, "mono", "factored", "--json").output)
    assert (found["scores"][0]["num_seeds"], found["a"], found["b"]) == (2, "mono", "factored")


def test_a_duration_below_a_second_is_not_printed_as_zero() -> None:
    costs = (CostRatio("parameters", 2e6, 1e6), CostRatio("seconds a sample", 0.25, 0.125))
    *_, parameters, seconds = _lines(
        compared(runs("mono", {0: 1.0}), runs("factored", {0: 1.0}))._replace(costs=costs, remarks=())
    )
    assert parameters.split()[1:] == ["2.00", "M", "1.00", "M", "0.5"]
    assert seconds.split()[-3:] == ["0.250", "0.125", "0.5"]


def test_the_verb_takes_the_other_name_of_a_preset_and_no_unknown_one(store: Store) -> None:
    for one in (*runs("mono", {0: 1.0}, preset="standard"), *runs("factored", {0: 0.5}, preset="standard")):
        store.write(one)
    assert "shapes3d-heavy, standard, " in verb(store, "mono", "factored", "--preset", "published").output
    assert "shapes3d-heavy, quick, " not in verb(store, "mono", "factored", "--preset", "published").output
    assert verb(store, "mono", "factored", "--preset", "fast").exit_code == 2


def test_the_verb_compares_two_records(store) -> None:
    done = verb(store, "shapes3d-heavy.mono.quick.s0", "shapes3d-heavy.factored.quick.s1")
    assert done.exit_code == 0, done.output
    assert "no seed in common" in done.output


def test_an_own_method_is_compared_with_published_records_of_another_folder(store: Store, tmp_path: Path) -> None:
    own, published = Store(tmp_path / "home" / "records"), ("--records", str(store.folder))
    for one in (*runs("mine", {0: 0.25, 1: 1.25}), *runs("mono", {0: 1.0})):  # one of mono is in both folders, and counts once
        own.write(one, {"samples.png": png(10, 20)})
    alone = verb(own, "mine", "factored")
    assert alone.exit_code == 2
    assert "no method with records named 'factored'" in alone.output
    assert f"--records {own.folder}" in alone.output
    picture = str(tmp_path / "both.png")
    for other, difference in (("factored", 0.2), ("mono", 0.75)):
        done = verb(own, "mine", other, *published, "--json")
        (score,) = json.loads(done.stdout)[0]["scores"]
        assert (score["num_seeds"], score["difference"]) == (2, pytest.approx(difference))
    assert verb(own, "mine", "factored", *published, "--picture", picture).exit_code == 0
    assert Image.open(picture).size == (10 + 12 + 10, 24 + 20)
    assert verb(own, "heavy.mine.quick.s0", "heavy.factored.quick.s0", *published).exit_code == 0
    assert verb(own, "heavy.mine.quick.s0", "shapes3d-heavy.mono.quick.s0", *published).exit_code == 0
    assert "--records" not in verb(own, "mine", "nobody", *published).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mono", "slice-cfg"], "no method with records named 'slice-cfg'"),
        (["slice-cfg", "mono"], "no method with records named 'slice-cfg'"),
        (["slice-cfg", "anchored"], "'slice-cfg' is a method"),
        (["mono", "mono"], "'mono' is compared with itself"),
        (["mono", "factored", "--task", "gmm-*"], "no record of 'mono' is of task 'gmm-*'"),
        (["mono", "factored", "--task", "mpi3d-*"], "no record of 'factored' is of task 'mpi3d-*'"),
        (["mono", "factored", "--preset", "smoke"], "no record of 'mono' is at preset smoke."),
        (["nothing", "else"], "no record matching 'nothing'"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_2(store, words, said) -> None:
    done = verb(store, *words)
    assert (done.exit_code, said in done.output, done.output.count("\n")) == (2, True, 1), done.output


def test_a_record_that_cannot_be_read_is_named_and_not_silently_left_out(store: Store) -> None:
    path = next(path for path in store.paths() if ".mono." in path.name)
    path.write_bytes(path.read_bytes()[:100])
    done = verb(store, "mono", "factored", "--json")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith(f"passed over: {path.name} is not JSON")
    assert path.stem not in json.loads(done.stdout)[0]["records"]
    for path in store.paths():
        path.write_bytes(b"")
    assert "no record of 'mono' can be used." in verb(store, "mono", "factored").output


def test_two_records_of_one_method_are_called_by_the_settings_in_which_they_differ() -> None:
    found = compare_records(record(settings={"hidden": 64, "rate": 0.1}), record(settings={"hidden": 32, "rate": 0.1}), Costs())
    method = record().spec.method
    assert (found.a, found.b) == (f"{method} hidden=64 seed 0", f"{method} hidden=32 seed 0")
    assert compare_records(record(), record(method="mono", settings={"hidden": 8}), Costs()).b == "mono seed 0"
