"""The commit of some code, and whether it was changed since."""

import subprocess
from pathlib import Path

import pytest

from compbench.api.schemas import Checkout
from compbench.registry.checkout import checkout_of
from compbench.registry.registry import Entry


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "mine.py").write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("venv\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "mine")
    return tmp_path


def test_what_is_committed_is_clean_and_has_the_commit(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert checkout_of(repository / "package" / "mine.py") == Checkout(commit=commit, clean=True)
    (repository / "notes.txt").write_text("elsewhere")
    assert checkout_of(repository / "package" / "mine.py").clean


def test_an_edit_or_a_new_file_beside_is_not_clean(repository: Path) -> None:
    own = repository / "package" / "mine.py"
    (repository / "package" / "new.py").write_text("y = 2\n")
    assert checkout_of(own).clean is False
    (repository / "package" / "new.py").unlink()
    own.write_text("x = 2\n")
    assert checkout_of(own) == Checkout(commit=git(repository, "rev-parse", "HEAD"), clean=False)


def test_an_edit_elsewhere_in_the_package_of_a_method_is_not_clean(repository: Path) -> None:
    (repository / "package" / "methods").mkdir()
    own = repository / "package" / "methods" / "own.py"
    own.write_text("from package.mine import x\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "own")
    entry = Entry("methods", "own", "package", "1", "package.methods.own", own, "")
    assert checkout_of(own, entry.root).clean
    (repository / "package" / "mine.py").write_text("x = 2\n")
    assert checkout_of(own, entry.root).clean is False


@pytest.mark.parametrize(
    ("module", "file", "root"),
    [
        ("a.b.c", "a/b/c.py", "a"),
        ("a.b", "a/b/__init__.py", "a"),
        ("a", "a/__init__.py", "a"),
        ("a", "a.py", "a.py"),
    ],
)
def test_the_root_of_an_entry_is_its_package_or_its_file(module: str, file: str, root: str) -> None:
    assert Entry("methods", "m", "d", "1", module, Path("/site", file), "").root == Path("/site", root)


def test_outside_of_a_repository_or_ignored_there_nothing_is_known(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (repository / "venv").mkdir()
    for folder in (repository / "venv", tmp_path_factory.mktemp("elsewhere")):
        (folder / "mine.py").write_text("x = 1\n")
        assert checkout_of(folder / "mine.py") == Checkout()


def test_before_the_first_commit_nothing_is_known(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert checkout_of(tmp_path / "mine.py") == Checkout()


def test_without_git_nothing_is_known(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert checkout_of(repository / "package" / "mine.py") == Checkout()
