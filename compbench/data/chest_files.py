"""NIH's chest radiographs as they are published: a table of labels, and a folder of images.

`chest/` in the data folder has `Data_Entry_2017.csv`, the images in any subfolder (`images_001/images/...`), and optionally
`test_list.txt` with the images that are kept for testing.  Without that list, the images of one patient in five are kept.
"""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import NamedTuple

from compbench.data.chest_findings import FINDINGS
from compbench.system.errors import CompbenchError

TABLE, TEST_LIST = "Data_Entry_2017.csv", "test_list.txt"
COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
TEST_EVERY = 5


class Entry(NamedTuple):
    """One radiograph: its file's name, its label set (14), and whether it is a test image."""

    image: str
    labels: tuple[int, ...]
    test: bool


def is_here(folder: Path) -> bool:
    """Whether the table of labels is in the data folder."""
    return (folder / "chest" / TABLE).is_file()


def read_table(folder: Path) -> list[Entry]:
    """All radiographs of the table.

    Raises:
        CompbenchError: the table is missing or damaged, lacks a column, or has a label that is not one of the findings.
    """
    path = folder / "chest" / TABLE
    try:
        test_path = path.with_name(TEST_LIST)
        test = set(test_path.read_text("utf-8").split()) if test_path.is_file() else None
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise CompbenchError(f"{path} has no column '{missing[0]}'; it must be NIH's own table of labels.")
            entries = [_entry(row, f"{path}, line {reader.line_num}", test) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CompbenchError(f"{path} cannot be read ({error}); put NIH's table there or use --source embedded.") from error
    if not entries:
        raise CompbenchError(f"{path} lists no radiographs; put NIH's table there or use --source embedded.")
    return entries


def _entry(row: dict[str, str | None], where: str, test: set[str] | None) -> Entry:
    image, found, patient = (row[name] for name in COLUMNS)
    if not image or not found or not patient:
        raise CompbenchError(f"{where}: the line is cut off; put NIH's whole table there.")
    names = set(found.split("|")) - {"No Finding"}
    if unknown := sorted(names - set(FINDINGS)):
        raise CompbenchError(f"{where}: '{unknown[0]}' is none of the 14 findings ({', '.join(FINDINGS)}).")
    held = image in test if test is not None else _fifth(patient)
    return Entry(image, tuple(int(name in names) for name in FINDINGS), held)


def _fifth(patient: str) -> bool:
    return int(hashlib.sha256(patient.encode()).hexdigest(), 16) % TEST_EVERY == 0


def find_images(folder: Path, entries: list[Entry]) -> list[Path]:
    """The file of each radiograph.

    Raises:
        CompbenchError: images are missing; the message says how many, and which is the first.
    """
    lying = {path.name: path for path in (folder / "chest").rglob("*.png")}
    missing = [entry.image for entry in entries if entry.image not in lying]
    if missing:
        raise CompbenchError(
            f"{len(missing)} of {len(entries)} images of {TABLE} are not below {folder / 'chest'} (the first: {missing[0]}); "
            "unpack all of NIH's archives there or use --source embedded."
        )
    return [lying[entry.image] for entry in entries]


def fingerprint(folder: Path) -> str:
    """SHA-256 of the table and the list of test images, 32 hex digits, in place of a hash of 45 GB of images."""
    digest = hashlib.sha256()
    for name in (TABLE, TEST_LIST):
        path = folder / "chest" / name
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:32]
