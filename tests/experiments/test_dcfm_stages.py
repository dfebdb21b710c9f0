"""The rule that divides a silo's steps: the longest first stage that seen scores do not pay for."""

from dcfm_stages import chosen


def test_the_longest_first_stage_whose_seen_scores_are_fair_on_every_task_is_chosen() -> None:
    found = {(0.25, 0.0): [0.80, 0.50], (0.25, 1.0): [0.85, 0.51], (0.5, 0.0): [0.91, 0.50], (0.5, 1.0): [0.90, 0.50]}
    assert chosen(found) == (0.5, 1.0)
    assert chosen({**found, (0.25, 0.0): [0.89, 0.49]}) == (0.25, 0.0)


def test_of_two_first_stages_alike_the_ramped_penalty_is_chosen() -> None:
    assert chosen({(0.25, 0.0): [0.92], (0.25, 1.0): [0.90]}) == (0.25, 1.0)


def test_the_best_seen_score_is_chosen_where_no_setting_is_fair_everywhere() -> None:
    assert chosen({(0.25, 0.0): [0.9, 0.1], (0.5, 0.0): [0.1, 0.8]}) == (0.25, 0.0)
