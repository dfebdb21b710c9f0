"""What each silo sent and computed, and who had their data in one place, is said in all formats."""

from __future__ import annotations

import csv
import io

import pytest
from support.page_data import page_boards
from support.sample_boards import whole
from support.sample_records import record

from compbench.api.schemas import Profile, Record, SiloProfile
from compbench.board.aggregate import rows
from compbench.board.notation import notes
from compbench.board.render_csv import rows_csv
from compbench.board.render_html import to_html
from compbench.board.row import BoardRow


def silo(name: str, out: int, seconds: float) -> SiloProfile:
    return SiloProfile(name=name, size=10, rounds=3, bytes_out=out, bytes_in=out // 2, seconds=seconds)


def metered(*, seed: int = 0, more: int = 0, cpu: str = "one") -> Record:
    silos = (silo("left", 1000 + more, 2.0), silo("right", 3000 + more, 6.0))
    return record(method="dcfm", seed=seed, cpu=cpu, more={"profile": Profile(silos=silos)})


def both() -> tuple[BoardRow, ...]:
    return rows([metered(), metered(seed=1), record(method="factored", more={"pooled_silos": True})])


def test_costs_are_means_over_silos_and_runs() -> None:
    (row,) = rows([metered(), metered(seed=1, more=2000)])
    assert row.timing.silos == (2, 3.0, 3000.0, 1500.0, 4.0, 6.0, None)


def test_costs_come_from_one_machine_type() -> None:
    (row,) = rows([metered(), metered(seed=1), metered(seed=2, more=10**6, cpu="two")])
    assert (row.timing.num_runs, row.timing.silos.bytes_out) == (2, 2000.0)


def test_who_pooled_the_silos_is_a_centralised_reference_and_does_not_rank() -> None:
    own, pooled = both()
    assert (own.rank.rank, own.pooled, pooled.rank, pooled.pooled) == (1, False, None, True)
    assert pooled.timing.silos is None


def test_the_csv_has_the_costs_and_the_mark() -> None:
    own, pooled = csv.DictReader(io.StringIO(rows_csv(both())))
    assert (own["num_silos"], own["silo_bytes_out"], own["silo_bytes_in"]) == ("2", "2000", "1000")
    assert (own["silo_seconds"], own["slowest_silo_seconds"], own["silo_rounds"]) == ("4", "6", "3")
    assert (pooled["num_silos"], pooled["kind"]) == ("", "reference")
    assert pooled["note"].startswith("centralised reference: had the data of all silos in one place")


def test_the_servers_budget_is_a_column_of_its_own() -> None:
    student = metered().model_copy(update={"notes": {"fit server_steps": 3000.0}})
    (row,) = rows([student])
    assert row.timing.silos.server_steps == 3000.0
    (line,) = csv.DictReader(io.StringIO(rows_csv([row])))
    assert line["server_steps"] == "3000"
    (shown,) = page_boards(to_html(whole([row]), [], {}))[0]["rows"]
    assert shown["timing"]["silos"]["server"] == [3000.0, "3,000"]
    own, pooled = csv.DictReader(io.StringIO(rows_csv(both())))
    assert (own["server_steps"], pooled["server_steps"]) == ("", "")  # no server trained there


@pytest.mark.parametrize(("times", "said"), [(1, "the steps of one silo"), (10, "the steps of 10 silos")])
def test_a_centralised_reference_says_how_long_it_was_trained(times: int, said: str) -> None:
    found = record(method="factored", more={"pooled_silos": True})
    steps = times * found.spec.budget.train_steps
    found = found.model_copy(update={"profile": found.profile.model_copy(update={"train_steps": steps})})
    (row,) = rows([found])
    assert notes(row)[0] == f"centralised reference: had the data of all silos in one place, and {said}; does not compete"


@pytest.mark.parametrize("part", ["words", "sent", "received", "compute", "server"])
def test_the_page_has_costs_and_mark(part: str) -> None:
    own, pooled = page_boards(to_html(whole(both()), [], {}))[0]["rows"]
    expected = {
        "words": "2 silos, 3 rounds each; the slowest computed 6.0 s",
        "sent": [2000.0, "2.00 kB"],
        "received": [1000.0, "1.00 kB"],
        "compute": [4.0, "4.0 s"],
        "server": [None, ""],
    }
    assert own["timing"]["silos"][part] == expected[part]
    assert (own["tag"], pooled["tag"], pooled["timing"]["silos"]) == ("", "centralised reference", None)
