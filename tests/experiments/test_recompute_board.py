"""Other code than the board's finds the board's numbers in the raw records, and finds a number that is not theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from recompute_board import main
from support.sample_records import record, score

from compbench.board.site import rebuild
from compbench.store.records import Store


def test_a_boards_numbers_are_those_of_its_records_and_a_wrong_one_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, value in enumerate((0.5, 0.75, 0.875)):
        Store(tmp_path / "records").write(record(score(value=value), seed=seed))
    rebuild(tmp_path / "records", tmp_path / "site")
    with pytest.raises(SystemExit) as ended:
        main(tmp_path / "records", tmp_path / "site")
    assert ended.value.code == 0
    assert "0 lines differ" in capsys.readouterr().out
    table = tmp_path / "site" / "board.csv"
    text = table.read_text()
    assert "0.708333" in text
    table.write_text(text.replace("0.708333", "0.718333"))
    with pytest.raises(SystemExit) as ended:
        main(tmp_path / "records", tmp_path / "site")
    assert ended.value.code == 1
    assert "mean" in capsys.readouterr().out
