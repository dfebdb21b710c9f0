"""dSprites: the renderer against the official frames and a plain twin, and the reader of the official file."""

import hashlib
import math
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from click.testing import CliRunner
from fit_dsprites import BEGINS, conditions_of

from compbench.cli.main import main
from compbench.data import dsprites_file
from compbench.data.download import verify
from compbench.data.dsprites_file import check_official, open_dsprites, wrong_pixels
from compbench.data.dsprites_renderer import ELLIPSE, HEART, SHAPES, SIZES, SQUARE, DSpritesRenderer, centre, turn
from compbench.data.sources import SOURCES
from compbench.system.errors import CompbenchError

OFFICIAL_FRAMES = "3d38f770e7694ba6ba5430c6f6eb71df0a62d538c867bcc5b19aebdb15d2d9e3"
"""SHA-256 of the 320 frames of the official repository's dsprites.gif, a bit for each pixel."""
SMALL = (3, 2, 2, 4, 4)


@pytest.fixture(scope="module")
def renderer() -> DSpritesRenderer:
    return DSpritesRenderer()


def some(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in SIZES], dim=1)


def test_every_official_frame_is_rendered_without_a_wrong_pixel(renderer: DSpritesRenderer) -> None:
    conditions = [condition for name in BEGINS for _, condition in conditions_of(name)]
    frames = renderer(torch.tensor(conditions))[:, 0].numpy() > 0
    assert len(frames) == 320
    assert hashlib.sha256(numpy.packbits(frames)).hexdigest() == OFFICIAL_FRAMES


def test_the_renderer_agrees_with_a_loop_over_pixels(renderer: DSpritesRenderer) -> None:
    outlines = {"square": SQUARE + SQUARE[-2::-1], "ellipse": ELLIPSE + ELLIPSE[-2::-1], "heart": HEART}
    for condition in some(6).tolist():
        shape, scale, orientation, x, y = condition
        outline, angle, plain = outlines[SHAPES[shape]], turn(orientation), numpy.zeros((64, 64), bool)
        for row in range(64):
            for column in range(64):
                across, down = column + 0.5 - centre(x), row + 0.5 - centre(y)
                u = math.cos(angle) * across + math.sin(angle) * down
                v = math.cos(angle) * down - math.sin(angle) * across
                degrees = math.degrees(math.atan2(abs(u), v))
                radius = numpy.interp(degrees, numpy.linspace(0, 180, len(outline)), outline)
                plain[row, column] = math.hypot(u, v) < radius * (0.5 + 0.1 * scale)
        assert numpy.array_equal(renderer(torch.tensor([condition]))[0, 0].numpy() > 0, plain)


def test_an_upright_square_is_a_square_of_side_19_times_its_scale(renderer: DSpritesRenderer) -> None:
    for scale in range(6):
        for place in range(32):
            on = renderer(torch.tensor([[0, scale, 0, place, 31 - place]]))[0, 0] > 0
            inside = [
                (torch.arange(64) + 0.5 - centre(where)).abs() < 9.6 * (0.5 + 0.1 * scale) - 0.01 for where in (31 - place, place)
            ]
            wrong = (on != inside[0][:, None] & inside[1]).sum().item()
            assert wrong <= 2 * (20 + 20) * 0.5  # at most one row or column of pixels whose centre lies on the outline


def test_a_whole_turn_changes_nothing_and_a_quarter_turn_no_square(renderer: DSpritesRenderer) -> None:
    for shape in range(3):
        first, last = renderer(torch.tensor([[shape, 5, 0, 7, 20], [shape, 5, 39, 7, 20]]))
        assert torch.equal(first, last)
    quarter = renderer(torch.tensor([[0, 5, k, 7, 20] for k in range(10)])).flatten(1)
    assert len(torch.unique(quarter, dim=0)) == 10


def test_an_image_does_not_depend_on_its_batch(renderer: DSpritesRenderer) -> None:
    conditions = some(40)
    assert torch.equal(renderer(conditions)[17:19], renderer(conditions[17:19]))


def test_values_out_of_range_and_a_wrong_shape_are_refused(renderer: DSpritesRenderer) -> None:
    with pytest.raises(CompbenchError, match="must lie in"):
        renderer(torch.full((1, 5), 3))
    with pytest.raises(CompbenchError, match=r"must be \(B, 5\)"):
        renderer(torch.zeros(1, 4, dtype=torch.long))


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renderer: DSpritesRenderer) -> Path:
    """A file like the official one, of a small corner of the lattice, as the renderer draws it."""
    monkeypatch.setattr(dsprites_file, "SIZES", SMALL)
    monkeypatch.setattr(dsprites_file, "COUNT", math.prod(SMALL))
    monkeypatch.setattr(dsprites_file, "BLOCK", 50)
    path = tmp_path / SOURCES["dsprites"].files[0].name
    numpy.savez_compressed(path, imgs=corner(renderer))
    return path


def corner(renderer: DSpritesRenderer) -> numpy.ndarray:
    grid = numpy.indices(SMALL).reshape(5, -1).T
    return (renderer(torch.from_numpy(grid.copy()))[:, 0] > 0).numpy().astype(numpy.uint8)


def test_official_images_come_by_combination_from_a_packed_copy(official: Path, renderer: DSpritesRenderer) -> None:
    images = open_dsprites(official, torch.device("cpu"))
    asked = torch.tensor([[2, 1, 0, 3, 1], [0, 0, 1, 0, 2], [2, 1, 0, 3, 1]])
    assert torch.equal(images(asked), renderer(asked))
    packed = official.with_name(official.name + ".images.npy")
    assert numpy.load(packed).shape == (math.prod(SMALL), 512)


def test_wrong_pixels_of_the_renderer_are_counted(official: Path, renderer: DSpritesRenderer) -> None:
    assert wrong_pixels(official) == (0, 0)
    changed = corner(renderer)
    changed[7, 3, 3:5] ^= 1
    changed[100, 0, 0] ^= 1
    numpy.savez_compressed(official, imgs=changed)
    assert wrong_pixels(official) == (3, 2)


def test_a_damaged_or_other_file_is_one_clear_line(official: Path) -> None:
    with pytest.raises(CompbenchError, match="has MD5 .* the official file 7da33b31b13a06f4"):
        check_official(official)
    numpy.savez_compressed(official, imgs=numpy.zeros((5, 64, 64), numpy.uint8))
    with pytest.raises(CompbenchError, match=r"has imgs \(5, 64, 64\) uint8, expected \(192, 64, 64\)"):
        open_dsprites(official, torch.device("cpu"))
    numpy.savez_compressed(official, imgs=numpy.full((192, 64, 64), 255, numpy.uint8))
    with pytest.raises(CompbenchError, match="has pixels of 255, expected 0 and 1"):
        open_dsprites(official, torch.device("cpu"))
    official.write_bytes(official.read_bytes()[:200])
    with pytest.raises(CompbenchError, match="is not the dSprites file or is damaged"):
        open_dsprites(official, torch.device("cpu"))
    with zipfile.ZipFile(official, "w") as archive:
        archive.writestr("other.npy", b"")
    with pytest.raises(CompbenchError, match="is not the dSprites file or is damaged"):
        wrong_pixels(official)


def test_verify_checks_the_md5_and_counts_wrong_pixels(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCES["dsprites"]
    assert [status.state for status in verify(source, official.parent)] == ["wrong"]
    digest = hashlib.md5(official.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(SOURCES, "dsprites", source._replace(files=(source.files[0]._replace(md5=digest),)))
    check_official(official)
    monkeypatch.setenv("COMPBENCH_HOME", str(official.parent / "home"))
    (official.parent / "home" / "data").mkdir(parents=True)
    official.rename(official.parent / "home" / "data" / official.name)
    done = CliRunner().invoke(main, ["data", "verify", "dsprites"])
    assert done.exit_code == 0, done.output
    assert "its MD5 is right" in done.output
    assert "0 wrong pixels in 0 of 192 images" in done.output
