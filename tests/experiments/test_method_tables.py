"""What a method's page says of deviations, of its paper's figures and of its runs comes from docstrings, papers and records."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import method_tables
import pytest
from method_tables import NEAR, Deviation, deviations, guidance, masks, older, reproduced, statement, used
from support.sample_records import record

from compbench.registry.registry import Registry, docstring
from compbench.registry.resolve import why_not

NAMES = frozenset(Registry().names("methods"))
OWN = [entry.name for entry in Registry().entries("methods") if entry.distribution == "compbench-methods"]
ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "plugins" / "compbench-methods" / "compbench_methods").glob("[a-z]*.py"))


def text_of(name: str) -> str:
    """The docstring of a method's file."""
    file = Registry().entry("methods", name).file
    assert file is not None
    return docstring(file)


def test_deviations_are_the_triples_of_a_docstring() -> None:
    text = """An idea.

    Theirs: a long sentence,
    in two lines.
    Ours: another.  And one more.
    Why: a reason.

    Words between.

    Theirs: a.  Ours: b.  Why: c.
    """
    assert deviations(text) == [
        Deviation("a long sentence, in two lines.", "another. And one more.", "a reason."),
        Deviation("a.", "b.", "c."),
    ]


def test_no_deviation_of_a_method_is_lost_to_its_page() -> None:
    texts = {file.name: docstring(file) for file in FILES}
    assert {name: len(deviations(text)) for name, text in texts.items()} == {
        name: len(re.findall(r"^ *Theirs\b", text, re.MULTILINE)) for name, text in texts.items()
    }
    assert sum(map(bool, map(deviations, texts.values()))) > 20


def test_a_statement_is_one_paragraph_of_its_kind() -> None:
    text = """An idea.

    Why: not a statement.

    Size: twice the parameters,
    because there are two networks.

    Own: no paper has it.
    """
    assert statement(text, "Size") == "Twice the parameters, because there are two networks."
    assert statement(text, "Own") == "No paper has it."
    assert statement(text, "Figures") == ""


@pytest.mark.parametrize("name", OWN)
def test_a_page_has_deviations_or_says_that_there_are_no_authors_and_judges_its_papers_figures(name: str) -> None:
    text = text_of(name)
    alone, figures = statement(text, "Own"), statement(text, "Figures")
    assert bool(deviations(text)) != bool(alone)
    assert reproduced(name, text, NAMES) or figures or alone
    for file in re.findall(r"`([\w/-]+\.py)`", figures):
        assert (ROOT / file).is_file()


def test_a_network_of_another_size_has_a_page_that_says_why() -> None:
    """Published rows that compete at `standard`, against `factored` on the same task and data."""
    with (ROOT / "leaderboards" / "site" / "rows.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["preset"] == "standard" and row["parameters"]]
    factored = {(row["task"], row["source"]): int(row["parameters"]) for row in rows if row["method"] == "factored"}
    others = {
        row["method"]: text_of(row["method"])
        for row in rows
        if row["kind"] == "run"
        and (size := factored.get((row["task"], row["source"])))
        and abs(int(row["parameters"]) / size - 1) > NEAR
    }
    assert {"naive-ode", "autoguidance", "ddm", "pem"} <= others.keys()
    assert [name for name, text in sorted(others.items()) if "param" not in statement(text, "Size")] == []


def test_a_printed_figure_stands_beside_ours_with_its_command_and_an_unprinted_one_only_in_its_own_paper() -> None:
    rows = reproduced("slice-cfg", "FVF", NAMES)
    assert rows[0].place == "factored-velocity-fields, table 2"
    assert rows[0].task == "shapes3d-medium"
    assert rows[0].theirs == "0.239 ± 0.118"
    assert rows[0].ours.endswith("(standard)")
    assert "--method slice-cfg" in rows[0].command
    assert not any(row.place.startswith("DCFM") for row in rows)
    assert reproduced("nearest", "no paper's", NAMES) == []
    drawn = reproduced("fkc", "Catastrophic Compositional Generation", NAMES)
    (row,) = [row for row in drawn if row.place == "FKC, table 2"]
    assert row.theirs == "none printed for it"
    assert row.command == "`compbench sweep --file weighted-table2 --preset paper`"


def test_an_accuracy_stands_beside_the_score_that_compares_with_it_and_the_ceiling_of_that_judge() -> None:
    """FVF's judge never saw the held-out pairs; ours of that kind mistakes most of them even on real pictures."""
    rows = reproduced("mono", "FVF", NAMES)
    (row,) = [row for row in rows if row.task == "shapes3d-medium" and row.metric == "heldout_accuracy"]
    assert row.score == "heldout_accuracy_seen_judge"
    value, ceiling = float(row.ours.split()[0]), float(row.ceiling)
    assert value <= ceiling < float(row.theirs.split()[0])
    assert {row.ceiling for row in rows if row.metric.endswith("fid")} == {"-"}


def test_each_method_of_ours_for_which_a_paper_prints_a_number_works_on_its_task() -> None:
    registry, refused = Registry(), []
    for method in sorted(NAMES):
        for figure in method_tables.printed(method):
            refused.append(why_not(registry.load("methods", method), registry.load("tasks", figure["task"])))
    assert len(refused) > 50
    assert set(refused) == {""}


def test_what_runs_used_is_what_their_records_have() -> None:
    notes = {
        "heldout guidance_weight": 3.0,
        "seen guidance_weight": 3.0,
        "counted trained_null": 25.0,
        "counted trained_whole": 75.0,
    }
    run = record(settings={"factor_dropout": 0.3, "hidden": 4}, more={"notes": notes})
    assert guidance(run) == "3"
    assert masks(run) == "factor_dropout 0.3, the whole condition 0.75, NULL 0.25"
    [(task, _, _, _, training, sampling)] = used([run])
    assert task == "shapes3d-heavy (`quick`; version 1 of the method, now 2; version 1 of the task, now 2)"
    assert training.endswith(f"of {run.spec.budget.batch_size}")
    assert sampling.startswith(f"{run.spec.budget.sample_steps} steps")


def test_each_preset_of_a_task_has_its_own_line() -> None:
    runs = [record(preset=preset, settings={"weight": weight}) for preset, weight in (("quick", 2.0), ("standard", "task"))]
    assert [(task.split("`")[1], weight) for task, _, _, weight, _, _ in used(runs)] == [("standard", "-"), ("quick", "2")]


@pytest.mark.parametrize(
    ("masks_of", "left"),
    [
        ({"masks": "independent"}, "masks independent, factor_dropout 0.2"),
        ({"masks": "shares"}, "masks shares, pi_full 0.7"),
        ({}, "factor_dropout 0.2, pi_full 0.7"),
    ],
)
def test_masks_that_another_setting_replaces_are_not_shown(masks_of: dict[str, str], left: str) -> None:
    assert masks(record(settings={**masks_of, "factor_dropout": 0.2, "pi_full": 0.7})) == left


def test_published_runs_are_those_of_default_settings_at_each_preset() -> None:
    """Runs with shots, tuned runs and other numbers of particles are published too."""
    mono = [run.spec for run in method_tables.published()["mono"] if run.spec.task == "shapes3d-heavy"]
    assert {spec.preset for spec in mono} == {"standard", "quick"}
    assert not any(spec.task_settings.get("shots") for spec in mono)
    oracle = [run for run in method_tables.published()["pem-oracle"] if run.spec.task == "queens-10"]
    assert {run.spec.settings["num_particles"] for run in oracle} == {64}
    assert [run.tuning for run in method_tables.published()["fourier-decoder"] if run.tuning] == []


def test_a_published_figure_of_an_older_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert older("mono", 10**6, "gmm-id", 10**6) == ()
    monkeypatch.setattr(method_tables, "newest_versions", lambda: {("methods", "mono"): 9, ("tasks", "gmm-id"): 1})
    method_tables.ours.cache_clear()
    value = method_tables.ours()["mono", "gmm-id", "heldout_sw2"].value
    method_tables.ours.cache_clear()
    assert value.endswith("(standard; version 1 of the method, now 9)")


def test_each_paper_of_the_page_has_a_name_in_docstrings() -> None:
    assert {place.paper for place in method_tables.places(NAMES)} == method_tables.NAMES.keys()
