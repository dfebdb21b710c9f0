import pytest
from support.sample_records import record, score

from compbench.board.aggregate import rows
from compbench.board.decomposition import Parts
from compbench.board.render_svg import to_svg


def run(method: str, seed: int, value: float, **settings):
    own = score("heldout_accuracy", value, direction="lower")
    knobs = {"num_particles": 4, **settings}
    return record(own, method=method, seed=seed, settings=knobs, more={"oracle": method.endswith("-oracle")})


def parts_of(*records) -> dict[str, Parts | None]:
    return {row.label: row.parts for row in rows(records)}


def test_total_is_inference_time_plus_estimation_error_over_the_shared_seeds() -> None:
    found = parts_of(
        *[run("fkc", seed, value) for seed, value in ((0, 1.0), (1, 1.5), (2, 9.0))],
        *[run("fkc-oracle", seed, value) for seed, value in ((0, 0.25), (1, 0.5), (7, 9.0))],
    )
    assert found["fkc"] == Parts(2, total=1.25, inference=0.375, estimation=0.875, spread=pytest.approx(0.125 * 2**0.5))
    assert found["fkc-oracle"] is None


def test_of_a_score_of_which_more_is_better_the_error_is_what_it_lacks_to_real_data() -> None:
    def valid(method: str, value: float):
        own = score("heldout_accuracy", value, ceiling=1.0)
        return record(own, method=method, settings={"num_particles": 4}, more={"oracle": method.endswith("-oracle")})

    (learned, _) = rows([valid("pem", 0.125), valid("pem-oracle", 0.75)])
    assert learned.parts == Parts(1, total=0.875, inference=0.25, estimation=0.625, spread=0.0)
    assert learned.scores["heldout_estimation_error"].direction == "lower"
    assert "what is lacking to real data" in to_svg([learned])


def test_rows_of_other_settings_are_not_compared() -> None:
    found = parts_of(run("fkc", 0, 1.0), run("fkc", 0, 0.8, num_particles=16), run("fkc-oracle", 0, 0.25))
    assert found["fkc (num_particles=4)"] is not None
    assert found["fkc (num_particles=16)"] is None


def test_settings_of_the_learned_model_alone_do_not_matter() -> None:
    assert parts_of(run("fkc", 0, 1.0, experts=True), run("fkc-oracle", 0, 0.25))["fkc"].estimation == 0.75


def test_the_terms_are_columns_of_the_board() -> None:
    (learned, _) = rows([run("fkc", 0, 1.0), run("fkc-oracle", 0, 0.25)])
    assert learned.scores["heldout_inference_time_error"].mean == 0.25
    assert learned.scores["heldout_estimation_error"].mean == 0.75


def test_the_chart_has_a_bar_a_decomposed_row_and_is_well_formed() -> None:
    from xml.etree import ElementTree

    board = rows([run("fkc", 0, 1.0), run("naive-sde", 0, 0.2), run("fkc-oracle", 0, 0.25), run("naive-sde-oracle", 0, 0.25)])
    chart = to_svg(board)
    texts = [node.text or "" for node in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")]
    assert {"0.250 + 0.750", "0.250 − 0.050"} <= set(texts)  # noqa: RUF001 - a minus sign is what is drawn
    assert "fkc" in texts
    assert "url(#back)" in chart


def test_without_oracles_there_is_no_chart() -> None:
    assert to_svg(rows([run("fkc", 0, 1.0)])) == ""
