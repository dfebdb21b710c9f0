"""What a task's rows are said to be: may be best, draws means, worse than ignoring the request; fits that failed; the verdict."""

from __future__ import annotations

import pytest
from support.sample_records import record, score

from compbench.api.schemas import Plugin, Record
from compbench.board.aggregate import aggregate
from compbench.board.competition import scale_of_rows, seen_scale_of_rows
from compbench.board.fits import fits_of
from compbench.board.notation import notes
from compbench.board.row import Board, BoardRow
from compbench.board.scale import Scale
from compbench.board.verdict import Candidate, word_of


def runs(method: str, *values: float, recall: float = 0.9, seen: float = 0.95, task: str = "dsprites-light") -> list[Record]:
    return [
        record(
            score(value=value, ceiling=1.0),
            score("seen_accuracy", seen, ceiling=1.0),
            score("heldout_recall", recall * (0.9 + 0.01 * seed), floor=0.9 + 0.01 * seed),
            method=method,
            task=task,
            seed=seed,
        )
        for seed, value in enumerate(values)
    ]


def by_method(board: Board) -> dict[str, BoardRow]:
    return {row.method: row for row in board.rows}


MEANS = runs("means", 0.90, 0.91, 0.92, recall=0.3)
GOOD, NEAR, POOR = runs("good", 0.80, 0.82, 0.81), runs("near", 0.79, 0.81, 0.815), runs("poor", 0.10, 0.11, 0.12)


def test_what_draws_means_has_no_rank_and_stands_behind_what_it_outscores() -> None:
    board = aggregate([*MEANS, *GOOD, *NEAR, *POOR])
    found = by_method(board)
    assert (found["means"].draws_means, found["means"].rank, found["means"].may_be_best) == (True, None, None)
    assert found["means"].recall == pytest.approx(0.3)
    assert [row.method for row in board.rows] == ["good", "near", "poor", "means"]
    assert [found[name].may_be_best for name in ("good", "near", "poor")] == [True, True, False]
    (verdict,) = board.verdicts.values()
    assert (verdict.word, verdict.best, verdict.by_score) == ("draws means", ("good", "near"), "means")


def test_where_a_condition_has_one_picture_a_low_recall_draws_no_means() -> None:
    made = [
        *runs("means", 0.90, 0.91, 0.92, recall=0.3, task="shapes3d-light"),
        *runs("poor", 0.1, 0.11, 0.12, task="shapes3d-light"),
    ]
    found = by_method(aggregate(made))["means"]
    assert (found.draws_means, found.may_be_best) == (False, True)


def test_a_mean_below_the_best_constant_answer_is_worse_than_ignoring_the_request() -> None:
    found = by_method(aggregate([*GOOD, *POOR, *runs("third", 0.3, 0.31, 0.29)]))  # a constant has 1 of 4 cells right
    assert [found[name].worse_than_constant for name in ("good", "poor", "third")] == [False, True, False]


def test_of_fits_of_two_kinds_the_failed_are_counted_and_of_poor_ones_none() -> None:
    scale = Scale(0.0, 1.0)
    found = fits_of({0: 0.28, 1: 0.79, 2: 0.64}, higher=True, scale=scale, crashed=(3,))
    assert found is not None
    assert (found.median, found.worst, found.words) == (0.64, 0.28, "2 of 4 fits failed")
    even = fits_of({0: 0.05, 1: 0.2}, higher=True, scale=scale)
    assert even is not None
    assert even.words == ""
    far = fits_of({0: 1.5, 1: 0.2}, higher=False, scale=Scale(2.0, 0.1, log=True))
    assert far is not None
    assert (far.worst, far.num_failed) == (1.5, 1)


@pytest.mark.parametrize(
    ("candidates", "learnt", "only_means", "word"),
    [
        ([Candidate(0.99, False)], 0.89, False, "not learnt"),
        ([Candidate(0.99, False)], 0.9, True, "draws means"),
        ([Candidate(0.97, True), Candidate(0.96, False)], None, False, "solved"),
        ([Candidate(0.97, True)], None, False, "open"),
        ([Candidate(0.5, False)], 1.0, False, "open"),
        ([Candidate(0.49, False)], 1.0, False, "unsolved"),
    ],
)
def test_the_verdict_is_the_first_that_is_true(candidates: list[Candidate], learnt: float, only_means: bool, word: str) -> None:
    assert word_of(candidates, learnt, only_means=only_means) == word


def test_the_row_of_the_constant_answer_is_called_neither_an_oracle_nor_worse_than_itself() -> None:
    own = {"oracle": True, "plugin": Plugin(distribution="compbench-methods")}
    answers = [
        record(score(value=0.01, ceiling=1.0), method="constant", task="dsprites-light", seed=s, more=own) for s in range(3)
    ]
    oracle = [record(score(value=0.9, ceiling=1.0), method="exact", task="dsprites-light", more={"oracle": True})]
    found = by_method(aggregate([*GOOD, *answers, *oracle]))
    assert "reference: ignores the request; does not compete" in notes(found["constant"])
    assert "reference: an oracle; does not compete" in notes(found["exact"])
    assert not any("worse than" in note for note in notes(found["constant"]))


def test_real_samples_of_seen_combinations_do_not_make_a_task_learnt() -> None:
    poor = [*runs("good", 0.8, 0.81, 0.82, seen=0.6), *runs("poor", 0.2, 0.21, 0.19, seen=0.5)]
    own = {"plugin": Plugin(distribution="compbench-methods")}
    copies = [one.model_copy(update=own) for one in runs("nearest", 0.0, 0.01, 0.02, seen=1.0)]
    (found,) = aggregate([*poor, *copies]).verdicts.values()
    assert (found.word, found.learnt) == ("not learnt", 0.6)
    (found,) = aggregate([*poor, *runs("nearest", 0.0, 0.01, 0.02, seen=1.0)]).verdicts.values()  # a stranger's of that name
    assert found.is_learnt


def test_seen_combinations_have_a_scale_of_their_own() -> None:
    """Half of the way from the best constant answer there, 0.25, to real data there, 0.95, is 0.6."""

    def seen(method: str, value: float) -> list[Record]:
        return [
            record(
                score(value=0.2 + 0.01 * seed, ceiling=1.0),
                score("seen_accuracy", value, ceiling=0.95),
                **{"method": method, "task": "dsprites-light", "seed": seed},
            )
            for seed in range(3)
        ]

    own = {"plugin": Plugin(distribution="compbench-methods")}
    learnt, constant = seen("mono", 0.6), [one.model_copy(update=own) for one in seen("constant", 0.25)]
    scale = seen_scale_of_rows(aggregate([*learnt, *constant]).rows)
    assert scale is not None
    assert scale.share(0.6) == pytest.approx(0.5)
    alone, held_out = (of(aggregate(learnt).rows) for of in (seen_scale_of_rows, scale_of_rows))
    assert alone is not None
    assert held_out is not None
    assert (alone.zero, alone.real) == (held_out.zero, pytest.approx(0.95))


def test_failed_fits_pull_no_interval_of_a_mean_that_is_worse_than_theirs() -> None:
    found = by_method(aggregate([*GOOD, *POOR, *NEAR]))  # a constant has 1 of 4 cells right
    good, poor = (found[name].scores["heldout_accuracy"] for name in ("good", "poor"))
    assert good.even_interval is not None
    assert good.interval is not None
    assert good.interval.low < good.even_interval.low
    assert poor.interval == poor.even_interval


def test_a_row_with_one_score_does_not_compete_whatever_its_number_of_runs() -> None:
    bare = [record(score(value=None, reason="no samples"), method="bare", task="dsprites-light", seed=seed) for seed in (1, 2)]
    found = by_method(aggregate([*GOOD, *POOR, *NEAR, *bare, *runs("bare", 0.9)]))
    assert found["bare"].may_be_best is None
