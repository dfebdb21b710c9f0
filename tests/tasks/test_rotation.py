import gzip
import random
import struct

import pytest
import torch

from compbench.api.interfaces import Source, TaskContext
from compbench.data.digit import first_digit, mnist_files, read_idx, rotations
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks.rotation import Settings, all_images, choose, judge, make_task


def idx(array: torch.Tensor) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + bytes(array.flatten().tolist())


@pytest.fixture
def mnist(tmp_path):
    """Three images of MNIST's format, the second a 4."""
    images = torch.arange(3 * 28 * 28).remainder(256).view(3, 28, 28)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(torch.tensor([7, 4, 4]))))
    return tmp_path, images


def test_quarter_turns_are_exact_and_counter_clockwise() -> None:
    image = torch.rand(28, 28)
    for turned, degrees in zip(rotations(image, torch.tensor([0, 90, 180, 270])), range(4), strict=True):
        torch.testing.assert_close(turned, image.rot90(degrees), rtol=0, atol=1e-5)


def test_the_first_4_is_read_from_mnists_files_where_they_are(mnist) -> None:
    folder, images = mnist
    assert torch.equal(first_digit(folder, official=True), images[1].float() / 255)
    assert choose(folder, "auto").kind == "official"
    assert choose(folder, "embedded").kind == "embedded"


def test_without_files_the_embedded_digit_is_taken_and_official_refused(tmp_path) -> None:
    assert mnist_files(tmp_path) is None
    assert choose(tmp_path, "auto")[:2] == ("embedded", "digits")
    with pytest.raises(CompbenchError, match="--source embedded"):
        choose(tmp_path, "official")


@pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda content: b"\1" + content[1:], lambda content: b""])
def test_a_damaged_idx_file_is_one_line(tmp_path, spoil) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(spoil(idx(torch.zeros(2, 3, 3, dtype=torch.long))))
    with pytest.raises(CompbenchError, match="is not an IDX file of MNIST"):
        read_idx(path)


@pytest.mark.parametrize("shape", [(0, 28, 28), (2**32 - 1,) * 3, (1, 28, 28)], ids=["none", "huge", "gzip"])
def test_a_header_of_nothing_or_too_much_and_damaged_gzip_are_one_line(tmp_path, shape) -> None:
    header = struct.pack(">HBB3I", 0, 8, 3, *shape)
    content = bytearray(gzip.compress(header + random.Random(0).randbytes(784)))
    path = tmp_path / "train-images-idx3-ubyte.gz"
    if shape[0] == 1:
        content[40:80] = bytes(byte ^ 0x5A for byte in content[40:80])
    path.write_bytes(bytes(content))
    with pytest.raises(CompbenchError, match="is not an IDX file of MNIST"):
        read_idx(path)


@pytest.mark.parametrize(
    ("images", "labels", "said"), [((3, 28, 28), [1, 1, 1], "has no label 4"), ((3, 28), [1, 4, 1], "has no images of 28 x 28")]
)
def test_files_without_a_four_are_one_line(tmp_path, images, labels, said) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(torch.zeros(images, dtype=torch.long)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(torch.tensor(labels)))
    with pytest.raises(CompbenchError, match=said):
        choose(tmp_path, "auto")


def test_true_images_score_full_marks_and_the_blend_one(tmp_path) -> None:
    images, settings = all_images(tmp_path, "embedded"), Settings()
    perfect = judge(lambda c, stream: 2 * images[c[:, 0], None] - 1, images, settings)
    scores = {score.name: score.value for score in perfect.scores}
    assert (scores["heldout_accuracy"], scores["seen_accuracy"], scores["heldout_mse"]) == (1, 1, pytest.approx(0, abs=1e-9))

    def blend(condition, stream):
        share = ((condition[:, 0] - 159) / 42.0).clamp(0, 1)[:, None, None]
        return 2 * ((1 - share) * images[159] + share * images[201])[:, None] - 1

    assert {s.name: s.value for s in judge(blend, images, settings).scores}["heldout_mse_blend"] == pytest.approx(1, rel=1e-4)


def test_the_arc_is_held_out_of_the_training_data(tmp_path) -> None:
    task = make_task(Settings())
    context = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, Source("embedded", "digits", ""))
    problem = task.open(context).problem(task.budgets["smoke"])
    assert problem.federation.sizes == (360 - 41,)
    angles = problem.federation.pooled().condition[:, 0]
    assert not ((angles >= 160) & (angles <= 200)).any()


@pytest.mark.parametrize("name", ["cnn-decoder", "mlp-decoder", "pixel-decoder", "transformer-decoder"])
def test_every_decoder_is_given_an_angle_whose_ends_meet(tmp_path, name: str) -> None:
    method, task = Registry().load("methods", name), make_task(Settings())
    context = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, Source("embedded", "digits", ""))
    problem = task.open(context).problem(task.budgets["smoke"])
    encoding = method.build(method.settings(), problem).encoding
    before, at, after = encoding(torch.tensor([[359], [0], [1]]))
    torch.testing.assert_close((at - before).norm(), (after - at).norm())
    assert encoding.num_outputs == 2


@pytest.mark.parametrize("arc", [(10, 9), (0, 359)])
def test_an_arc_of_nothing_or_everything_is_refused(arc) -> None:
    with pytest.raises(CompbenchError, match="must hold out some of the 360 angles"):
        make_task(Settings(first=arc[0], last=arc[1]))
