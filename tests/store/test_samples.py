"""Samples from elsewhere: what is taken, in which order, and the one line for each thing that can be wrong with them."""

import io
import zipfile
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from compbench.api.factors import Factor, FactorSpace
from compbench.api.interfaces import Event, Request
from compbench.store.samples import Recorder, read_pool
from compbench.system.errors import CompbenchError

SPACE = FactorSpace([Factor("hue", 3), Factor("shape", 2)])
VECTOR, IMAGE = Event("vector", (2,)), Event("image", (3, 4, 4))
CONDITIONS = numpy.array([[0, 0], [2, 1], [0, 0]])
VALUES = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)


def npz(folder: Path, **arrays) -> Path:
    path = folder / "samples.npz"
    numpy.savez(path, **arrays)
    return path


def asked(*conditions) -> Request:
    rows = torch.tensor(conditions)
    return Request(rows, torch.zeros(len(rows), 2))


def test_each_sample_is_handed_out_once_in_its_order(tmp_path) -> None:
    pool = read_pool(npz(tmp_path, conditions=CONDITIONS, samples=VALUES), SPACE, VECTOR)
    assert pool.answer(asked((2, 1), (0, 0)), "heldout").tolist() == [[2, 3], [0, 1]]
    assert pool.answer(asked((0, 0)), "seen").tolist() == [[4, 5]]
    with pytest.raises(CompbenchError, match="'seen' asks for one more of hue=0, shape=0, and all 2 of these samples are used"):
        pool.answer(asked((0, 0)), "seen")
    with pytest.raises(CompbenchError, match="hue=1, shape=0, and none of the 3 samples has it"):
        pool.answer(asked((1, 0)), "seen")


def test_pictures_are_taken_as_uint8_with_channels_last(tmp_path) -> None:
    pictures = numpy.zeros((3, 4, 4, 3), numpy.uint8)
    pictures[0, ..., 0] = 255
    pool = read_pool(npz(tmp_path, conditions=CONDITIONS, samples=pictures), SPACE, IMAGE)
    made = pool.answer(asked((0, 0)), "heldout")
    assert made.shape == (1, 3, 4, 4)
    assert (made[0, 0] == 1).all()
    assert (made[0, 1:] == -1).all()


def test_a_folder_of_pictures_has_its_conditions_in_a_table(tmp_path) -> None:
    lines = ["file,hue,shape"]
    for row, (hue, shape) in enumerate(CONDITIONS):
        Image.new("RGB", (4, 4), (255 * row // 2, 0, 0)).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{hue},{shape}")
    (tmp_path / "conditions.csv").write_text("\n".join(lines))
    pool = read_pool(tmp_path, SPACE, IMAGE)
    assert pool.answer(asked((0, 0), (0, 0)), "seen")[:, 0, 0, 0].tolist() == [-1, 1]


HALF = {"L": 128, "1": 1, "I;16": 257 * 128, "RGB": (128, 128, 128)}


@pytest.mark.parametrize("mode", HALF)
def test_a_folder_of_grey_pictures_is_read_whatever_its_depth(tmp_path, mode) -> None:
    Image.new(mode, (4, 4), HALF[mode]).save(tmp_path / "a.png")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "b.png").symlink_to(tmp_path / "a.png")  # a user's own links
    (tmp_path / "conditions.csv").write_text("file,hue,shape\na.png,0,0\nthere/b.png,2,1\n")
    pool = read_pool(tmp_path, SPACE, Event("image", (1, 4, 4)))
    expected = 1.0 if mode == "1" else 128 / 127.5 - 1
    assert pool.answer(asked((2, 1)), "seen").unique().tolist() == pytest.approx([expected], abs=1e-6)


@pytest.mark.parametrize(
    "table",
    [
        "\ufeffhue,shape\n0,0\n2,1\n0,0\n".encode(),
        b"hue;shape\r\n0;0\r\n2;1\r\n0;0\r\n",
        b",hue,shape\n0,0.0,0.0\n1,2.0,1.0\n2,0.0,0.0\n",
        "hue\tshape\n0\t0\n2\t1\n0\t0\n".encode("utf-16"),
        b'"hue", "shape"\n"0", "0"\n"2", "1"\n"0", "0"\n',
    ],
    ids=["byte order mark", "semicolons", "pandas", "tabs in UTF-16", "quotes and blanks"],
)
def test_tables_are_read_as_spreadsheets_and_pandas_write_them(tmp_path, table) -> None:
    (tmp_path / "conditions.csv").write_bytes(table)
    numpy.save(tmp_path / "samples.npy", VALUES)
    assert read_pool(tmp_path, SPACE, VECTOR).answer(asked((2, 1)), "seen").tolist() == [[2, 3]]


WHITE_TOP = numpy.concatenate([numpy.ones((3, 3, 2, 4)), numpy.zeros((3, 3, 2, 4))], axis=2)


@pytest.mark.parametrize(
    ("pixels", "value_range"),
    [
        (WHITE_TOP, (0.0, 1.0)),
        (WHITE_TOP.astype(bool), None),
        (WHITE_TOP.astype(numpy.uint8), (0.0, 1.0)),
        (WHITE_TOP * 255, (0.0, 255.0)),
        (WHITE_TOP * 2 - 1, None),
        ((WHITE_TOP * 255).astype(numpy.uint8), None),
    ],
)
def test_black_and_white_are_what_the_range_says(tmp_path, pixels, value_range) -> None:
    path = npz(tmp_path, conditions=CONDITIONS, samples=pixels)
    made = read_pool(path, SPACE, IMAGE, value_range=value_range).answer(asked((2, 1)), "seen")
    assert (made[:, :, :2] == 1).all()
    assert (made[:, :, 2:] == -1).all()


@pytest.mark.parametrize("kind", [numpy.float32, numpy.uint8])
def test_images_with_two_readings_are_refused_and_both_are_named(tmp_path, kind) -> None:
    usual = "0,255" if kind is numpy.uint8 else "-1,1"
    with pytest.raises(CompbenchError, match=rf"two readings: use --range 0,1 .* or --range {usual}"):
        read_pool(npz(tmp_path, conditions=CONDITIONS, samples=WHITE_TOP.astype(kind)), SPACE, IMAGE)


def test_a_folder_of_an_array_has_its_conditions_in_a_table(tmp_path) -> None:
    (tmp_path / "conditions.csv").write_text("hue,shape\n0,0\n2,1\n0,0\n")
    numpy.save(tmp_path / "samples.npy", VALUES)
    assert read_pool(tmp_path, SPACE, VECTOR).answer(asked((2, 1)), "seen").tolist() == [[2, 3]]


NAN = VALUES.copy()
NAN[1, 0] = numpy.nan


@pytest.mark.parametrize(
    ("arrays", "event", "said"),
    [
        ({"conditions": CONDITIONS, "samples": NAN}, VECTOR, "1 of 3 samples hold NaN or infinity, row 1 first"),
        ({"conditions": CONDITIONS, "samples": VALUES[:2]}, VECTOR, r"must have shape \(3, 2\)"),
        ({"conditions": CONDITIONS, "samples": VALUES.T}, VECTOR, r"got \(2, 3\)"),
        ({"conditions": CONDITIONS[:, :1], "samples": VALUES}, VECTOR, r"conditions must have shape \(N, 2\) for hue, shape"),
        ({"conditions": CONDITIONS[:0], "samples": VALUES[:0]}, VECTOR, "conditions must have shape"),
        (
            {"conditions": CONDITIONS + 1, "samples": VALUES},
            VECTOR,
            "label 3 of 'hue' in row 1 is out of range",
        ),
        ({"conditions": CONDITIONS - 1, "samples": VALUES}, VECTOR, "label -1 of 'hue' in row 0 is out of range"),
        ({"conditions": CONDITIONS * 1.5, "samples": VALUES}, VECTOR, "whole numbers, got float64"),
        ({"conditions": CONDITIONS, "samples": VALUES.astype(int)}, VECTOR, "floating point, got int64"),
        ({"conditions": CONDITIONS, "samples": 200 * numpy.ones((3, 3, 4, 4))}, IMAGE, "these reach 200"),
        ({"samples": VALUES}, VECTOR, "has no array 'conditions'; it holds samples"),
        ({"conditions": CONDITIONS, "samples": numpy.array([object()] * 3)}, VECTOR, "is not an npz file of arrays, or"),
    ],
    ids=["nan", "rows", "shape", "factors", "none", "high", "low", "kind", "integers", "range", "missing", "pickle"],
)
def test_what_is_wrong_with_samples_is_one_line(tmp_path, arrays, event, said) -> None:
    with pytest.raises(CompbenchError, match=said) as error:
        read_pool(npz(tmp_path, **arrays), SPACE, event)
    assert "\n" not in str(error.value)


def damaged(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 3
    return content[:middle] + bytes(255 - byte for byte in content[middle : middle + 40]) + content[middle + 40 :]


@pytest.mark.parametrize("change", [damaged, flipped, lambda content: b"", lambda content: b"PK\x03\x04 no zip"])
def test_a_corrupt_file_is_one_line(tmp_path, change) -> None:
    path = npz(tmp_path, conditions=CONDITIONS, samples=VALUES)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CompbenchError, match="is not an npz file of arrays, or is damaged") as error:
        read_pool(path, SPACE, VECTOR)
    assert "\n" not in str(error.value)


def said_of(path: Path) -> str:
    try:
        read_pool(path, SPACE, VECTOR)
    except CompbenchError as error:
        return str(error)
    return ""


def test_damage_anywhere_in_a_compressed_file_is_one_line_or_harmless(tmp_path) -> None:
    path = tmp_path / "samples.npz"
    numpy.savez_compressed(path, conditions=CONDITIONS.repeat(50, 0), samples=VALUES.repeat(50, 0))
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes(255 - byte for byte in whole[place : place + 8]) + whole[place + 8 :])
        assert "\n" not in said_of(path)


def test_a_member_that_is_no_array_is_one_line(tmp_path) -> None:
    path = npz(tmp_path, samples=VALUES)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("conditions.npy", b"0,0")
    with pytest.raises(CompbenchError, match="is not an npz file of arrays, or is damaged"):
        read_pool(path, SPACE, VECTOR)


def test_an_archive_under_the_name_of_an_array_is_one_line(tmp_path) -> None:
    (tmp_path / "conditions.csv").write_text("hue,shape\n0,0\n")
    npz(tmp_path, samples=VALUES).rename(tmp_path / "samples.npy")
    with pytest.raises(CompbenchError, match="samples.npy cannot be read \\(it is not one array\\)"):
        read_pool(tmp_path, SPACE, VECTOR)


def test_a_file_that_says_it_is_huge_is_not_unpacked(tmp_path, monkeypatch) -> None:
    path = npz(tmp_path, conditions=CONDITIONS, samples=VALUES)
    monkeypatch.setattr("compbench.store.samples.MOST_BYTES", 10)
    with pytest.raises(CompbenchError, match="more than 10 bytes"):
        read_pool(path, SPACE, VECTOR)
    assert zipfile.is_zipfile(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (None, "conditions.csv cannot be read"),
        ("hue,shape\n", "has no rows"),
        ("hue\n0\n", "has no column 'shape'"),
        ("hue,shape\nred,1\n", "whole numbers"),
        ("hue,shape\n0\n", "whole numbers"),
        ("hue,shape\n0," + "1" * 140_000 + "\n", "is not a table of comma-separated values \\(field larger"),
        ("hue,shape\n0,1\n", "samples.npy cannot be read"),
        ("file,hue,shape\nnone.png,0,1\n", "none.png cannot be read: there is no such file"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(tmp_path, table, said) -> None:
    if table is not None:
        (tmp_path / "conditions.csv").write_text(table)
    with pytest.raises(CompbenchError, match=said):
        read_pool(tmp_path, SPACE, IMAGE)


def test_a_missing_file_is_one_line(tmp_path) -> None:
    with pytest.raises(CompbenchError, match="there is no such file"):
        read_pool(tmp_path / "none.npz", SPACE, VECTOR)


def test_a_recorder_notes_known_entries_and_leaves_free_ones_nan() -> None:
    recorder = Recorder()
    mask = torch.tensor([[True, False]])
    recorder.note(Request(torch.tensor([[0, 1]]), torch.zeros(1, 2), torch.ones(1, 2), mask), "seen", torch.ones(1, 2))
    recorder.note(asked((2, 1)), "heldout", torch.zeros(1, 2))
    found = recorder.arrays("conditions", "known", "stream")
    assert found["conditions"].tolist() == [[0, 1], [2, 1]]
    assert found["stream"].tolist() == ["seen", "heldout"]
    assert numpy.isnan(found["known"]).tolist() == [[False, True], [True, True]]
