from pathlib import Path

import pytest
from support.page_data import page_boards
from support.sample_boards import whole
from support.sample_records import record, score

from compbench.api.schemas import Environment, Record
from compbench.board.aggregate import rows
from compbench.board.render_csv import rows_csv
from compbench.board.render_html import to_html
from compbench.board.render_markdown import to_markdown
from compbench.store import verification
from compbench.store.records import Store
from compbench.store.verification import ScorePair, Verification
from compbench.system.errors import CompbenchError

HERE = Environment(compbench="0.1", python="3.12")


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Record]:
    own = record()
    return Store(tmp_path / "records").write(own), own


def standing(path: Path, own: Record) -> tuple[dict[str, Verification], list[str]]:
    found, problems = verification.read(verification.beside(path.parent), [own], path.parent)
    return found, [problem.reason for problem in problems]


def agreeing(own: Record) -> list[ScorePair]:
    return [ScorePair(name=s.name, submitted=s.value, found=s.value + 0.01, tolerance=0.02) for s in own.scores]


def test_a_record_without_levels_is_self_reported_and_undeclared(stored) -> None:
    path, own = stored
    assert standing(path, own) == ({}, [])
    (row,) = rows([own], {})
    assert (row.level, row.training) == ("self-reported", "undeclared")


def test_a_declaration_and_a_reproduction_add_up(stored) -> None:
    path, own = stored
    verification.declare(path, verification.beside(path.parent), training_data="seen")
    assert standing(path, own) == ({own.name: Verification("self-reported", "seen")}, [])
    verification.raise_level(path, verification.beside(path.parent), compared=agreeing(own), environment=HERE, seconds=1.0)
    verification.raise_level(path, verification.beside(path.parent), compared=agreeing(own), environment=HERE, seconds=2.0)
    assert standing(path, own) == ({own.name: Verification("reproduced", "seen")}, [])
    assert len(list(verification.beside(path.parent).iterdir())) == 3


def test_a_declaration_is_never_overwritten(stored) -> None:
    path, _ = stored
    folder = verification.beside(path.parent)
    first = verification.declare(path, folder, training_data="seen")
    assert verification.declare(path, folder, training_data="seen") == first
    with pytest.raises(CompbenchError, match="contains another declaration"):
        verification.declare(path, folder, training_data="external", note="a web crawl")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"submitted": 0.9, "found": 0.9}, "does not reproduce the record's heldout_accuracy"),
        ({"found": 0.9}, "does not reproduce the record's heldout_accuracy"),
        ({"name": "heldout_fid"}, "reproduces no primary score"),
        ({"found": 0.9, "tolerance": 0.9}, "allows heldout_accuracy to differ by 0.9; at most "),
    ],
)
def test_a_reproduction_that_contradicts_its_record_says_nothing(stored, change: dict, reason: str) -> None:
    path, own = stored
    compared = [entry.model_copy(update=change) for entry in agreeing(own)]
    verification.raise_level(path, verification.beside(path.parent), compared=compared, environment=HERE, seconds=1.0)
    found, problems = standing(path, own)
    assert found == {}
    assert len(problems) == 1
    assert reason in problems[0]


def test_a_level_of_other_bytes_or_of_no_record_says_nothing(stored) -> None:
    path, own = stored
    folder = verification.beside(path.parent)
    verification.raise_level(path, folder, compared=agreeing(own), environment=HERE, seconds=1.0)
    path.write_bytes(path.read_bytes() + b"\n")
    (folder / "stray.json").write_text("{}")
    found, problems = standing(path, own)
    assert found == {}
    assert sorted(problems) == ["is not a valid level: record: Field required.", "refers to other bytes than the record's."]


def test_a_row_is_reproduced_when_all_of_its_seeds_are() -> None:
    seeds = [record(seed=seed) for seed in range(3)]
    reproduced = Verification("reproduced", "seen")
    (some,) = rows(seeds, {seeds[0].name: reproduced})
    (every,) = rows(seeds, {one.name: reproduced for one in seeds})
    assert (some.level, some.training) == ("reproduced 1/3", "undeclared")
    assert (every.level, every.training) == ("reproduced", "seen")


def test_a_row_with_other_training_data_does_not_compete() -> None:
    own, other = [record(method="own", seed=seed) for seed in range(2)], record(score(value=0.9), method="other")
    found = {row.method: row for row in rows([*own, other], {other.name: Verification("self-reported", "external")})}
    assert found["own"].rank.rank == 1
    assert (found["other"].kind, found["other"].rank) == ("reference", None)
    assert "trained on other data too" in to_markdown(whole(list(found.values())), ())


def test_a_later_attempt_does_not_replace_what_was_reproduced() -> None:
    honest, later = record(), record(score(value=0.99), attempt=7)
    (row,) = rows([honest, later], {honest.name: Verification("reproduced", "seen")})
    assert row.scores["heldout_accuracy"].mean == 0.5


def test_every_board_shows_the_level() -> None:
    board = rows([record()], {record().name: Verification("reproduced", "seen")})
    assert ",reproduced,seen," in rows_csv(board)
    assert "| reproduced; " in to_markdown(whole(board), ())
    (row,) = page_boards(to_html(whole(board), (), {}))[0]["rows"]
    assert (row["level"], row["training"]) == ("reproduced", "seen")
