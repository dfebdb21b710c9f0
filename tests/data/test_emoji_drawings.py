"""Emoji: what is read of a colour font, on small fonts built here."""

import sys
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner
from support.small_fonts import people, write_font

from compbench.cli.main import main
from compbench.data.colour_font import ColourFont
from compbench.data.emoji_drawings import FONT, ROLES, SIZES, choose, drawings, located, reduced, sequence
from compbench.system.errors import CompbenchError

ASTRONAUT = (0x1F469, 0x1F3FF, 0x200D, 0x1F680)


@pytest.fixture(scope="module")
def font(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_font(tmp_path_factory.mktemp("fonts") / FONT, people())


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without fonts."""
    monkeypatch.setattr("compbench.system.fonts.font_folders", lambda: iter(()))
    return tmp_path


@pytest.mark.parametrize("table", ["CBDT", "sbix"])
def test_a_sequence_gives_its_own_bitmap_pixel_by_pixel(table: str, tmp_path: Path) -> None:
    drawn = numpy.random.default_rng(0).integers(0, 256, (2, 3, 5, 4), dtype=numpy.uint8)
    found = ColourFont(write_font(tmp_path / "a.ttf", {ASTRONAUT: drawn[0], (0x1F469,): drawn[1]}, table=table))
    assert numpy.array_equal(found.picture(ASTRONAUT), drawn[0])
    assert numpy.array_equal(found.picture((0x1F469, 0xFE0F)), drawn[1])
    assert found.picture(ASTRONAUT[:3]) is None
    assert found.picture((0x41,)) is None


def test_a_font_without_pictures_and_a_damaged_one_are_named(tmp_path: Path) -> None:
    drawn = numpy.zeros((8, 8, 4), numpy.uint8)
    with pytest.raises(CompbenchError, match="no pictures in a CBDT or sbix table"):
        ColourFont(write_font(tmp_path / "outlines.ttf", {ASTRONAUT: drawn}, table="none"))
    cut = ColourFont(write_font(tmp_path / "cut.ttf", {ASTRONAUT: drawn}, damaged=[ASTRONAUT]))
    with pytest.raises(CompbenchError, match="damaged picture"):
        cut.picture(ASTRONAUT)
    (tmp_path / "text.ttf").write_text("no font")
    with pytest.raises(CompbenchError, match="cannot be read as a font"):
        ColourFont(tmp_path / "text.ttf")


def test_the_lattice_has_each_combination_in_order_on_white(font: Path) -> None:
    found = drawings(font)
    assert found.pictures.shape == (71 * 3 * 5, 3, 64, 64)
    place = (ROLES.index("astronaut") * SIZES[1] + 2) * SIZES[2] + 4
    drawn = found.pictures[place]
    assert numpy.array_equal(drawn, reduced(people()[ASTRONAUT], 64))
    assert (drawn[:, :16] == 255).all()  # a picture of 4 x 2 is centred
    assert len({sequence(role, person, tone) for role in ROLES for person in ("man", "woman") for tone in ("dark",)}) == 142


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A lattice of one role, which makes small fonts smaller."""
    monkeypatch.setattr("compbench.data.emoji_drawings.ROLES", ("astronaut",))
    return ("astronaut",)


def test_a_fingerprint_is_of_the_drawings_and_not_of_the_file(few: tuple[str, ...], tmp_path: Path) -> None:
    own = people(roles=few)
    more = {**own, (0x41,): numpy.zeros((2, 2, 4), numpy.uint8)}
    fonts = [own, more, people(9, few)]
    first, second, third = (
        drawings(write_font(tmp_path / f"{number}.ttf", font)).fingerprint for number, font in enumerate(fonts)
    )
    assert first == second != third


def test_a_font_that_lacks_a_picture_is_refused_with_the_first_one(few: tuple[str, ...], tmp_path: Path) -> None:
    lacking = people(roles=few)
    del lacking[ASTRONAUT]
    with pytest.raises(CompbenchError, match="lacks 1 of 15 pictures, 'astronaut, woman, dark' first"):
        drawings(write_font(tmp_path / "lacking.ttf", lacking))


def test_a_font_whose_sequences_gsub_does_not_join_is_refused_for_that(few: tuple[str, ...], tmp_path: Path) -> None:
    apart = write_font(tmp_path / "apart.ttf", people(roles=few), table="sbix", joined=False)
    with pytest.raises(CompbenchError, match=r"apart\.ttf does not join sequences of code points by GSUB ligatures") as caught:
        drawings(apart)
    assert "lacks" not in str(caught.value)


def test_without_the_font_one_line_says_what_to_install(nowhere: Path) -> None:
    with pytest.raises(CompbenchError, match=r"apt-get install fonts-noto-color-emoji, or put the file into"):
        choose(nowhere, "auto")
    with pytest.raises(CompbenchError, match="no embedded data"):
        choose(nowhere, "embedded")
    with pytest.raises(CompbenchError, match="no such font file"):
        located(nowhere, "Other.ttf")


def test_a_font_in_the_data_folder_is_taken(font: Path, nowhere: Path) -> None:
    (nowhere / FONT).symlink_to(font)
    assert choose(nowhere, "auto") == ("official", FONT, drawings(font).fingerprint)
    assert located(nowhere, str(font)) == font


def test_reduced_keeps_proportions_and_fills_the_longer_side() -> None:
    black = numpy.zeros((128, 64, 4), numpy.uint8)
    black[..., 3] = 255
    small = reduced(black, 64)
    assert (small[:, :, 16:48] == 0).all()
    assert (small[:, :, :16] == 255).all()
    assert (small[:, :, 48:] == 255).all()
    assert (reduced(numpy.zeros((8, 8, 4), numpy.uint8), 64) == 255).all()  # what is transparent is white


def listed(home: Path, columns: int = 80) -> list[str]:
    found = CliRunner().invoke(main, ["data", "list"], env={"COMPBENCH_HOME": str(home), "COLUMNS": str(columns)})
    return found.output.splitlines()


def test_data_has_the_command_that_installs_the_font_in_one_line(nowhere: Path) -> None:
    assert listed(nowhere)[-1] == "emoji: apt-get install fonts-noto-color-emoji"
    assert max(map(len, listed(nowhere))) <= 80
    result = CliRunner().invoke(main, ["data", "fetch", "emoji"], env={"COMPBENCH_HOME": str(nowhere)})
    assert result.exit_code == 2
    assert "a system package installs it: apt-get install" in result.output


def test_data_says_the_version_of_the_font_or_why_it_cannot_be_read(font: Path, nowhere: Path) -> None:
    (nowhere / "data").mkdir()
    (nowhere / "data" / FONT).symlink_to(font)
    assert "installed, version 1 " in listed(nowhere, 200)[-1]
    (nowhere / "data" / FONT).unlink()
    (nowhere / "data" / FONT).write_text("no font")
    assert "cannot be read as a font" in listed(nowhere)[-1]


def test_data_verifies_the_font_with_the_exit_status_of_other_sources(
    font: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verified() -> tuple[int, str]:
        found = CliRunner().invoke(main, ["data", "verify", "emoji"], env={"COMPBENCH_HOME": str(nowhere)})
        return found.exit_code, found.output.strip()

    path = nowhere / "data" / FONT
    path.parent.mkdir()
    assert verified() == (1, f"{FONT}: missing (apt-get install fonts-noto-color-emoji, or copy it into {path.parent})")
    path.write_text("no font")
    code, line = verified()
    assert (code, line.count("\n")) == (1, 0)
    assert line.startswith(f"{FONT}: wrong ({path} cannot be read as a font")
    path.unlink()
    path.symlink_to(font)
    assert verified() == (0, f"{path}: ok (1,065 drawings, fingerprint {drawings(font).fingerprint})")
    path.unlink()
    path.write_bytes(font.read_bytes())
    monkeypatch.setitem(sys.modules, "fontTools.ttLib", None)  # as without fontTools
    code, line = verified()
    assert (code, line.endswith("which is not installed: pip install 'compbench[emoji]'")) == (2, True)
