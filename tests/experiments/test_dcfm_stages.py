"""The rule that divides a silo's steps: the most coupling that seen scores do not pay for."""

from dcfm_stages import chosen, coupling


def test_coupling_is_the_mean_of_lambda_over_a_silos_steps() -> None:
    assert coupling(0.5, 0.0) == 0.5
    assert coupling(0.5, 1.0) == 0.25


def test_the_most_coupled_setting_whose_seen_scores_are_fair_on_every_task_is_chosen() -> None:
    found = {(0.25, 0.0): [0.90, 0.50], (0.25, 1.0): [0.91, 0.51], (0.5, 0.0): [0.91, 0.40], (0.5, 1.0): [0.89, 0.50]}
    assert chosen(found) == (0.25, 0.0)
    assert chosen({**found, (0.5, 0.0): [0.89, 0.49]}) == (0.5, 0.0)


def test_of_two_as_coupled_the_better_seen_score_is_chosen() -> None:
    assert chosen({(0.25, 0.0): [0.90], (0.5, 1.0): [0.92]}) == (0.5, 1.0)


def test_the_best_seen_score_is_chosen_where_no_setting_is_fair_everywhere() -> None:
    assert chosen({(0.25, 0.0): [0.9, 0.1], (0.5, 0.0): [0.1, 0.8]}) == (0.25, 0.0)
