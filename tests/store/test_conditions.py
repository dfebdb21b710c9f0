"""What was asked and hardly trained is said of a record and of a row, and nothing where it was not counted."""

import pytest
from support.sample_records import record

from compbench.api.schemas import Profile
from compbench.board.aggregate import aggregate
from compbench.board.notation import notes
from compbench.store import conditions
from compbench.store.conditions import UNCOUNTED, by_kind, in_words, kind_of, noted, uncounted, untrained_in_words


@pytest.mark.parametrize(
    ("num_factors", "kinds"),
    [
        (1, ["null", "whole"]),
        (2, ["null", "single", "whole"]),
        (3, ["null", "single", "pair", "whole"]),
        (6, ["null", "single", "pair", "some", "some", "all_but_one", "whole"]),
    ],
)
def test_each_number_of_told_factors_is_of_one_kind(num_factors, kinds) -> None:
    assert [kind_of(told, num_factors) for told in range(num_factors + 1)] == kinds
    assert sum(by_kind(range(num_factors + 1)).values()) == sum(range(num_factors + 1))


def counted(trained, asked, **facts):
    return record(more={"notes": noted(trained, asked)}, **facts)


def test_what_is_asked_and_hardly_trained_is_said_with_its_count() -> None:
    asked = (20.0, 120.0, 0, 0, 0, 0, 0)
    rare = counted((0, 2, 40, 600, 9000, 90_000, 111_558), asked)
    assert untrained_in_words([rare]) == (
        "asked at NULL, trained on 0 of 211,200 examples",
        "asked at single factors, trained on 2 of 211,200 examples",
    )
    assert untrained_in_words([counted((30_000, 30_000, 0, 0, 0, 0, 151_200), asked)]) == ()
    assert untrained_in_words([counted((0, 0, 0, 0, 0, 0, 500), asked)]) == ()  # too few examples to say it
    both = [rare, counted((3, 2, 0, 0, 0, 0, 211_195), asked, seed=1)]
    assert untrained_in_words(both)[0] == "asked at NULL, trained on 0 to 3 of 211,200 examples"
    (row,) = aggregate(both).rows
    assert set(untrained_in_words(both)) <= set(notes(row))


def test_what_was_not_counted_is_said_to_be() -> None:
    assert in_words(record()) == (UNCOUNTED,)
    assert in_words(counted((), (0, 0, 40.0))) == (
        UNCOUNTED,
        "asked a sample at the whole condition (40 evaluations)",
    )
    assert in_words(counted((1, 0, 9), ())) == ("trained on the whole condition (9 examples), NULL (1 examples)",)
    assert conditions.untrained({}, {"null": 1.0}) == {}


def test_a_row_says_that_none_of_its_runs_counted_what_its_network_was_trained_on() -> None:
    (row,) = aggregate([record(), record(seed=1)]).rows
    assert notes(row).count(UNCOUNTED) == 1
    (row,) = aggregate([record(), counted((0, 0, 2000), (0, 0, 40.0), seed=1)]).rows
    assert UNCOUNTED not in notes(row)


@pytest.mark.parametrize("more", [{"oracle": True}, {"samples_only": True}, {"profile": Profile()}])
def test_of_what_has_no_network_that_compbench_saw_trained_nothing_is_to_be_counted(more) -> None:
    found = record(more=more)
    assert not uncounted([found])
    assert in_words(found) == ()
    assert not uncounted([record(status="failed")])
