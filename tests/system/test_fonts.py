"""Font files: where they are looked for, and names that no file can have."""

from pathlib import Path

import pytest

from compbench.system.fonts import find_font, no_font


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of fonts, on a machine with one more folder of fonts."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "system"))
    for folder in ("own/fonts", "system/fonts/deep", "data"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "own" / "fonts"


def test_the_data_folder_comes_first_and_then_the_users_own_fonts(own: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for path in (tmp_path / "system/fonts/deep/A.ttf", own / "A.ttf", data / "A.ttf"):
        path.touch()
    assert find_font("A.ttf", data) == data / "A.ttf"
    (data / "A.ttf").unlink()
    assert find_font("A.ttf", data) == own / "A.ttf"
    (own / "A.ttf").unlink()
    assert find_font("A.ttf", data) == tmp_path / "system/fonts/deep/A.ttf"
    assert find_font(str(own / "A.ttf"), data) is None


def test_a_link_to_nothing_is_not_a_font_and_hides_none(own: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "data" / "A.ttf", own / "A.ttf"):
        place.symlink_to(tmp_path / "nowhere.ttf")
    assert find_font("A.ttf", tmp_path / "data") is None
    (tmp_path / "system/fonts/A.ttf").touch()
    assert find_font("A.ttf", tmp_path / "data") == tmp_path / "system/fonts/A.ttf"


@pytest.mark.parametrize("name", ["x" * 300, "/x/" + "x" * 300, "~no-such-user/A.ttf", "~no-such-user", ".", "..", "/", "a\0b"])
def test_a_name_that_no_file_can_have_finds_nothing(name: str, own: Path, tmp_path: Path) -> None:
    assert find_font(name, tmp_path / "data") is None


def test_a_file_in_the_current_folder_is_named_with_how_to_write_its_path(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert no_font("task.font", "A.ttf", own) == f"--set task.font=A.ttf: there is no such font file on this machine or in {own}."
    (tmp_path / "A.ttf").touch()
    assert find_font("A.ttf", tmp_path / "data") is None
    assert no_font("task.font", "A.ttf", own).endswith("for the file in this folder write ./A.ttf.")
    assert find_font("./A.ttf", tmp_path / "data") == Path("A.ttf")
