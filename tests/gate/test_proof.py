"""Proving that two commits' code is equal: what is run for it, and what becomes a row of the table."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import compbench
from compbench.cli.main import main
from compbench.gate import proof as equal_code
from compbench.gate.proof import changed_sides, cover
from compbench.registry.equal_code import Equal

A, B, C = (letter * 64 for letter in "abc")
ROOT = Path(compbench.__file__).parents[1]


def codes(**parts: str) -> dict[str, tuple[str, dict[str, str]]]:
    return {f"{method}/{task}/cpu": (A, dict(parts)) for method in ("mono", "fkc") for task in ("blobs", "gmm")}


def test_each_side_that_changed_is_in_a_cell() -> None:
    before, after = codes(method=A, flow=A, task=A), codes(method=A, flow=A, task=B)
    needed = changed_sides(before, before, after)
    assert needed == {("task", "blobs"), ("task", "gmm")}
    assert [(cell.method, cell.task) for cell in cover(before, needed)] == [("fkc", "blobs"), ("fkc", "gmm")]
    everything = changed_sides(before, before, codes(method=A, flow=B, task=A))
    assert everything == {("task", "blobs"), ("task", "gmm"), ("method", "fkc"), ("method", "mono")}
    assert [(cell.method, cell.task) for cell in cover(before, everything)] == [("fkc", "blobs"), ("mono", "gmm")]


def test_a_digest_that_became_two_is_no_row() -> None:
    rows = [Equal(A, B, "1" * 40, "bits"), Equal(A, C, "1" * 40, "bits"), Equal("d" * 64, "e" * 64, "1" * 40, "bits")]
    assert equal_code._unambiguous(rows) == (rows[2],)
    assert equal_code._unambiguous([Equal(A, C, "1" * 40, "bits"), Equal(B, C, "1" * 40, "bits")]) == ()


def test_commits_that_do_not_follow_each_other_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(3):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["verify", "--equal", "HEAD", "HEAD~2"])
    assert "is not a commit before HEAD~2" in found.output + found.stderr
    found = CliRunner().invoke(main, ["verify", "--equal", "nowhere", "HEAD"])
    assert "--equal nowhere: this repository has no such commit" in found.output + found.stderr
    found = CliRunner().invoke(main, ["verify", "--equal-code", "--against", "nowhere"])
    assert "--against nowhere: this repository has no such commit" in found.output + found.stderr


@pytest.mark.slow
def test_a_renamed_local_is_proven_by_its_bits_and_a_changed_number_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone: one commit renames a local name of `ingredients`, the next changes a number of it."""
    git = ["git", "-C", str(tmp_path / "clone"), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    file = tmp_path / "clone" / "plugins/compbench-methods/compbench_methods/soup.py"
    plain = file.read_text()
    before, function, after = re.split(r"(def ingredients\(.*?\n\n\n)", plain, flags=re.DOTALL)
    assert function.count("1 / silos") == 1
    renamed = before + re.sub(r"\bsilos\b", "number", function) + after
    for text in (renamed, renamed.replace("1 / number", "2 / number")):
        file.write_text(text)
        subprocess.run([*git, "commit", "-q", "-a", "-m", "next"], check=True)
    monkeypatch.chdir(tmp_path / "clone")
    equal = equal_code.prove("HEAD~2", "HEAD~1", tmp_path / "one", tmp_path / "data")
    assert equal.rows
    assert {row.proof for row in equal.rows} == {"bits"}
    assert equal.unproven == {}
    changed = equal_code.prove("HEAD~1", "HEAD", tmp_path / "two", tmp_path / "data")
    assert not any("samples_sha256 differ" not in why for why in changed.unproven.values())
    assert {pair.split("/")[0] for pair in changed.unproven} == {"soup", "task-arithmetic"}  # they share a file
