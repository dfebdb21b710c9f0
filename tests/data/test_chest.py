"""Chest radiographs: the published label sets, the phantom's findings, and NIH's files read or refused with one line."""

import pytest
import torch
from PIL import Image
from torch import Generator

from compbench.api.interfaces import Source, TaskContext
from compbench.data import chest_files
from compbench.data.chest_findings import FINDINGS, feasible, label_counts, words
from compbench.data.chest_images import OfficialRadiographs, PhantomRadiographs
from compbench.data.chest_phantom import NUM_STYLES, SIGNS, ChestPhantom, random_styles
from compbench.system.errors import CompbenchError


def context(folder, kind: str = "embedded") -> TaskContext:
    return TaskContext(torch.device("cpu"), "fp32", 0, folder, folder, Source(kind, "", ""))


def only(*names: str) -> torch.Tensor:
    return torch.tensor([[int(finding in names) for finding in FINDINGS]])


def test_the_sample_has_5606_label_sets_of_which_54_are_feasible_as_in_the_paper() -> None:
    counts = label_counts()
    assert sum(counts.values()) == 5606
    found = feasible(counts)
    assert len(found) == 54
    assert counts[(0,) * 14] == 3044
    assert counts[tuple(only("Effusion", "Infiltration")[0].tolist())] == 69
    assert words(found[0]) == "No Finding"
    assert min(counts[labels] for labels in found) / 5606 >= 0.001


def test_most_have_three_findings_or_fewer_and_hernia_is_rarest() -> None:
    """The paper: about 99 % have three or fewer.  Hernia occurs in 13 of 5,606."""
    counts = label_counts()
    few = sum(count for labels, count in counts.items() if sum(labels) <= 3)
    assert few / 5606 > 0.97
    each = [sum(count for labels, count in counts.items() if labels[k]) for k in range(14)]
    assert min(each) == each[FINDINGS.index("Hernia")] == 13
    assert max(each) == each[FINDINGS.index("Infiltration")]


@pytest.mark.parametrize("name", FINDINGS)
def test_each_finding_shows_and_leaves_most_of_the_image_as_it_is(name: str) -> None:
    phantom, styles = ChestPhantom(side=64), random_styles(40, Generator().manual_seed(1))
    without, with_it = (phantom(only(*names).expand(40, -1), styles).int() for names in ((), (name,)))
    changed = (without - with_it).abs() > 24
    share = changed.flatten(1).float().mean(1)
    assert share.min() > 0.002  # eight pixels at least
    assert share.max() < (0.5 if name in ("Emphysema", "Edema") else 0.25)


def test_findings_are_placed_for_themselves() -> None:
    """Where a mass alone and a nodule alone change nothing, both together change nothing."""
    phantom, styles = ChestPhantom(side=64), random_styles(20, Generator().manual_seed(2))
    none, mass, nodule, both = (
        phantom(only(*names).expand(20, -1), styles).int() for names in ((), ("Mass",), ("Nodule",), ("Mass", "Nodule"))
    )
    untouched = (mass == none) & (nodule == none)
    assert (both - none)[untouched].abs().max() <= 1
    apart = (mass != none) & (nodule == none)
    assert (both - mass)[apart].abs().max() <= 1


def test_a_finding_changes_sides() -> None:
    phantom, styles = ChestPhantom(side=64), random_styles(2, Generator().manual_seed(3))[:1].repeat(2, 1)
    position = 16 + 4 * FINDINGS.index("Effusion")
    styles[:, position] = torch.tensor([0.2, 0.8])
    change = (phantom(only("Effusion").expand(2, -1), styles).float() - phantom(only().expand(2, -1), styles).float())[:, 0]
    left, right = change[:, :, :32].sum((1, 2)), change[:, :, 32:].sum((1, 2))
    assert left[0] > 10 * right[0]
    assert right[1] > 10 * left[1]


def test_every_finding_but_the_large_heart_has_a_sign() -> None:
    assert set(SIGNS) | {"Cardiomegaly"} == set(FINDINGS)


def test_an_image_does_not_depend_on_its_batch() -> None:
    phantom, styles = ChestPhantom(side=32), random_styles(54, Generator().manual_seed(0))
    labels = torch.tensor(feasible(label_counts()))
    assert (phantom(labels, styles)[40:42].int() - phantom(labels[40:42], styles[40:42]).int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("labels", "styles", "said"),
    [
        (torch.zeros(2, 13, dtype=torch.long), torch.zeros(2, NUM_STYLES), "must be findings"),
        (torch.zeros(2, 14, dtype=torch.long), torch.zeros(3, NUM_STYLES), "must be findings"),
        (torch.full((1, 14), 2), torch.zeros(1, NUM_STYLES), "must lie in"),
        (torch.zeros(1, 14, dtype=torch.long), torch.full((1, NUM_STYLES), -0.1), "must lie in"),
    ],
)
def test_wrong_shapes_and_values_are_refused(labels, styles, said: str) -> None:
    with pytest.raises(CompbenchError, match=said):
        ChestPhantom(side=32)(labels, styles)


def test_the_pool_has_every_label_set_and_the_published_shares(tmp_path) -> None:
    made = PhantomRadiographs(32, 4000, context(tmp_path))
    stored, labels, decode = made.training
    assert len(labels.unique(dim=0)) == 244
    assert (labels.sum(1) == 0).float().mean().item() == pytest.approx(3044 / 5606, abs=0.05)
    images = decode(stored[:5])
    assert images.shape == (5, 1, 32, 32)
    assert -1 <= images.min() < images.max() <= 1


@pytest.fixture
def official(tmp_path):
    """NIH's layout: 60 images of ten patients, three label sets; Effusion's images are light, the others dark."""
    folder = tmp_path / "chest"
    (folder / "images_001" / "images").mkdir(parents=True)
    lines = ["Image Index,Finding Labels,Follow-up #,Patient ID"]
    for number in range(60):
        labels = ("No Finding", "Effusion", "Mass|Pleural_Thickening")[number % 3]
        name = f"{number:08}_000.png"
        Image.new("L", (40, 40), 200 if labels == "Effusion" else 20).save(folder / "images_001" / "images" / name)
        lines.append(f"{name},{labels},0,{number // 6}")
    (folder / chest_files.TABLE).write_text("\n".join(lines) + "\n")
    (folder / chest_files.TEST_LIST).write_text("\n".join(f"{number:08}_000.png" for number in range(48, 60)) + "\n")
    return tmp_path


def test_official_images_go_with_their_labels_and_test_images_are_not_trained_on(official) -> None:
    made = OfficialRadiographs(32, context(official, "official"))
    assert made.feasible.tolist() == sorted(
        only(*names)[0].tolist() for names in ((), ("Effusion",), ("Mass", "Pleural_Thickening"))
    )
    stored, labels, decode = made.training
    assert len(stored) == 48
    light = decode(stored)[:, 0, 0, 0] > 0
    assert torch.equal(light, labels[:, FINDINGS.index("Effusion")] == 1)
    asked = made.feasible.repeat(4, 1)
    images = made.of(asked, Generator().manual_seed(0))
    assert torch.equal(images[:, 0, 0, 0] > 100, asked[:, FINDINGS.index("Effusion")] == 1)


def test_scaled_images_are_kept_and_a_damaged_cache_is_made_again(official) -> None:
    ctx = context(official, "official")
    first = OfficialRadiographs(32, ctx).training.stored
    (kept,) = official.rglob("*.safetensors")
    kept.write_bytes(b"damaged")
    assert torch.equal(OfficialRadiographs(32, ctx).training.stored, first)


def test_without_a_list_patients_are_either_trained_on_or_tested_on(official) -> None:
    (official / "chest" / chest_files.TEST_LIST).unlink()
    entries = chest_files.read_table(official)
    by_patient = {}
    for number, entry in enumerate(entries):
        by_patient.setdefault(number // 6, set()).add(entry.test)
    assert all(len(found) == 1 for found in by_patient.values())
    assert {True, False} == set().union(*by_patient.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("Finding Labels", "Labels"), "has no column 'Finding Labels'"),
        (lambda text: text.replace("Effusion", "Cold", 1), "line 3: 'Cold' is none of the 14 findings"),
        (lambda text: text.splitlines()[0] + "\n", "lists no radiographs"),
        (lambda text: text[: text.rindex("_000.png") + 2], "line 61: the line is cut off"),
    ],
)
def test_a_wrong_table_is_one_clear_line(official, change, said: str) -> None:
    table = official / "chest" / chest_files.TABLE
    table.write_text(change(table.read_text()))
    with pytest.raises(CompbenchError, match=said) as caught:
        chest_files.read_table(official)
    assert "\n" not in str(caught.value)


def test_missing_and_damaged_images_are_named(official) -> None:
    image = next((official / "chest").rglob("00000007_000.png"))
    image.write_bytes(image.read_bytes()[:30])
    with pytest.raises(CompbenchError, match=r"00000007_000\.png cannot be read as a picture"):
        OfficialRadiographs(32, context(official, "official"))
    image.unlink()
    with pytest.raises(CompbenchError, match=r"1 of 60 images .*the first: 00000007_000\.png"):
        OfficialRadiographs(32, context(official, "official"))


def test_a_feasible_label_set_without_a_test_image_is_named(official) -> None:
    listed = official / "chest" / chest_files.TEST_LIST
    listed.write_text("\n".join(f"{number:08}_000.png" for number in range(48, 60) if number % 3 != 1))
    with pytest.raises(CompbenchError, match="no test image has the label set Effusion"):
        OfficialRadiographs(32, context(official, "official"))
