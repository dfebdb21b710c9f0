"""Flat rows: what a record says, one row a score, the same in CSV and in parquet."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.api.schemas import Profile, Record, SiloProfile
from compbench.cli.main import main
from compbench.store.records import Store
from compbench.store.table import NARROW, columns, export, frame, records
from compbench.system.errors import CompbenchError


def made() -> list[Record]:
    silos = (SiloProfile(name="left", size=3, bytes_out=7),)
    good = record(
        score(value=1 / 3, n=999), score("heldout_fid", None, reason="no weights"), more={"profile": Profile(silos=silos)}
    )
    return [good, record(status="failed", seed=1, more={"reason": "=1+1"})]


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_there_is_one_row_a_score_and_one_for_a_run_without(tmp_path: Path) -> None:
    assert export(made(), tmp_path / "all.csv") == 3
    first, second, third = sorted(csv_rows(tmp_path / "all.csv"), key=lambda row: (row["spec.seed"], row["score.name"]))
    assert [row["score.name"] for row in (first, second, third)] == ["heldout_accuracy", "heldout_fid", ""]
    assert [row["status"] for row in (first, second, third)] == ["ok", "ok", "failed"]
    assert float(first["score.value"]) == 1 / 3
    assert (second["score.value"], second["score.reason"]) == ("", "no weights")
    assert (first["spec.budget.train_steps"], first["environment.threads"]) == ("1000", "2")
    assert json.loads(first["profile.silos"])[0]["bytes_out"] == 7
    assert third["reason"] == "'=1+1"  # a spreadsheet must not compute it


def test_every_field_of_a_record_but_scores_and_loss_curves_has_a_column() -> None:
    own = {column.name.split(".")[0] for column in columns()[0]}
    assert own == {"record", *Record.model_fields} - {"scores", "losses"}


def test_parquet_has_the_types_and_the_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(made(), tmp_path / "all.parquet")
    table = parquet.read_table(tmp_path / "all.parquet").sort_by([("spec.seed", "ascending"), ("score.name", "ascending")])
    types = {name: str(table.schema.field(name).type) for name in ("spec.seed", "score.value", "oracle", "spec.settings")}
    assert types == {"spec.seed": "int64", "score.value": "double", "oracle": "bool", "spec.settings": types["spec.settings"]}
    assert types["spec.settings"] in ("string", "large_string")
    assert table.column("score.value").to_pylist() == [1 / 3, None, None]
    assert table.column("reason").to_pylist() == ["", "", "=1+1"]
    assert table.column("spec.settings").to_pylist()[0] == '{"hidden":64}'


def test_the_table_of_a_notebook_has_the_types_and_the_values(tmp_path: Path) -> None:
    for one in made():
        Store(tmp_path).write(one)
    table = records(tmp_path, wide=True).sort_values(["spec.seed", "score.name"])
    assert list(table["status"]) == ["ok", "ok", "failed"]
    assert table["score.value"].tolist()[0] == 1 / 3
    assert table["score.value"].isna().tolist() == [False, True, True]
    assert [str(table[name].dtype) for name in ("spec.seed", "score.value", "oracle")] == ["Int64", "Float64", "boolean"]


def test_a_table_without_pandas_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CompbenchError, match=r"pip install 'compbench\[run\]'"):
        frame(made())


def test_csv_needs_no_pyarrow_and_parquet_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(made(), tmp_path / "all.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CompbenchError, match=r"pip install 'compbench\[export\]'"):
        export(made(), tmp_path / "all.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["all.csv"]


def test_the_verb_exports_what_is_sound_and_names_what_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    Store(folder).write(made()[0])
    (folder / "bad.json").write_text("{")
    done = CliRunner().invoke(main, ["export", str(folder), "--to", str(tmp_path / "all.csv")])
    assert done.exit_code == 0
    assert "passed over: bad.json" in done.output
    assert len(csv_rows(tmp_path / "all.csv")) == 2


def test_a_file_in_place_of_a_store_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["export", str(tmp_path / "file"), "--to", str(tmp_path / "x.csv")])
    assert (done.exit_code, "there is no folder" in done.output) == (2, True)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="no known ending"):
        export(made(), tmp_path / "all.xlsx")


def test_a_table_has_a_dozen_columns_and_all_of_them_on_demand_and_a_boolean_masks_it(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    for one in made():
        Store(tmp_path).write(one)
    narrow, wide = records(tmp_path), records(tmp_path, wide=True)
    assert list(narrow.columns) == list(NARROW)
    assert set(narrow.columns) < set(wide.columns)
    assert narrow[narrow["score.primary"]]["score.value"].tolist() == [1 / 3]  # a failed run has no missing boolean
