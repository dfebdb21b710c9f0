import gzip

import pytest
import torch

from compbench.data.coloured_digits import FILES, NUM_REFERENCE, VARIANTS, coloured, embedded_digits, official_digits
from compbench.system.errors import CompbenchError


def test_a_colour_scales_each_channel() -> None:
    grey = torch.tensor([[[0, 255], [51, 102]]], dtype=torch.uint8)
    image = coloured(grey, torch.tensor([1]), [(0, 0, 0), (255, 100, 0)])[0]
    assert image.tolist() == [[[0, 255], [51, 102]], [[0, 100], [20, 40]], [[0, 0], [0, 0]]]


def test_embedded_digits_are_the_same_each_time_and_the_reference_is_of_other_writers_images() -> None:
    train, reference = embedded_digits()
    again, _ = embedded_digits()
    assert torch.equal(train.images, again.images)
    assert (len(train.images), len(reference.images)) == ((1797 - NUM_REFERENCE) * VARIANTS, NUM_REFERENCE * VARIANTS)
    assert set(train.labels.tolist()) == set(reference.labels.tolist()) == set(range(10))
    # Nearest class mean of the training digits: a real digit is recognised wherever it was turned and shifted to.
    means = torch.stack([train.images[train.labels == k].float().mean(0).flatten() for k in range(10)])
    found = torch.cdist(reference.images.flatten(1).float(), means).argmin(1)
    assert (found == reference.labels).float().mean() > 0.75


def test_without_all_four_files_official_digits_are_refused(tmp_path) -> None:
    with pytest.raises(CompbenchError, match=r"not all of train-images.*--source embedded"):
        official_digits(tmp_path)


def test_a_gzipped_file_that_is_not_mnists_is_named(tmp_path) -> None:
    for name in FILES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(CompbenchError, match="train-images-idx3-ubyte.gz is damaged"):
        official_digits(tmp_path)
