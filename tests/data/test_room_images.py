"""Rooms: objects stand where they should, fast pictures are the plain ones, a user's folders are read or refused."""

import pytest
import torch
from PIL import Image
from torch import Generator

from compbench.api.interfaces import Source, TaskContext
from compbench.data import rooms_renderer, rooms_scene
from compbench.data.class_folders import ROOMS, class_files, fingerprint, read_pictures
from compbench.data.room_images import FolderRooms, cached_renderer
from compbench.data.rooms_renderer import NUM_STYLES, OBJECTS, RoomsRenderer, random_styles
from compbench.system.errors import CompbenchError


@pytest.fixture(scope="module")
def renderer() -> RoomsRenderer:
    return RoomsRenderer(side=32)


def selections(count: int) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(2)] * 3).repeat(count, 1)


def test_a_box_is_met_where_the_camera_sees_it() -> None:
    room = rooms_scene.rooms()[0]._replace(yaw=0.0, eye=1.0, focal=1.0)
    box = rooms_scene.Box((-1.0, 4.0, 0.5), (1.0, 5.0, 1.5))
    direction = torch.tensor([[0.0, 1.0, 0.0], [0.24, 1.0, 0.12], [0.26, 1.0, 0.0], [0.0, 1.0, 0.13], [0.0, -1.0, 0.0]])
    met, _ = rooms_scene.boxes_hit([box], room, direction)
    assert met.tolist() == [True, True, False, False, False]


def test_every_ray_leaves_the_room_through_one_of_its_planes() -> None:
    for room in rooms_scene.rooms():
        points, plane = rooms_scene.walls(room, rooms_scene.rays(room, 16))
        offsets = torch.tensor([room.left, room.right, room.depth, 0.0, room.height])[plane]
        axes = torch.tensor([0, 0, 1, 2, 2])[plane]
        torch.testing.assert_close(points.gather(1, axes[:, None])[:, 0], offsets, atol=1e-4, rtol=0)
        inside = (points[:, 0] > room.left - 1e-3) & (points[:, 0] < room.right + 1e-3) & (points[:, 2] > -1e-3)
        assert bool(inside.all())


def test_furniture_never_stands_in_furniture() -> None:
    for room in rooms_scene.rooms():
        nearest = min(box.low[1] for pose in range(24) for box in rooms_scene.couch(room, pose))
        farthest = max(box.high[1] for pose in range(24) for box in rooms_scene.table(room, pose))
        assert farthest <= nearest + 1e-6 or farthest - nearest < 0.06


@pytest.mark.parametrize("position", range(3))
def test_every_object_shows_in_every_room_and_pose(renderer: RoomsRenderer, position: int) -> None:
    covered = renderer.buffers()[OBJECTS[position]].float()
    layers = covered[:, :, :1] if position != 1 else covered
    pixels = (layers.sum(2) > 128).sum(-1)  # (rooms, poses) of 1024
    assert int(pixels.min()) >= 6


def test_a_painting_and_a_couch_hide_nothing_of_each_other_and_a_table_hides_couches(renderer: RoomsRenderer) -> None:
    """What makes couch and painting nearly factorised, and couch and table not."""
    couch, painting, table = (renderer.buffers()[name].float() for name in ("couch", "painting", "table"))
    whole = {"couch": couch[:, :, 0], "painting": painting.sum(2), "table": table[:, :, 0]}

    def shared(other: str) -> float:
        both = torch.einsum("rip,rjp->rij", (whole["couch"] > 128).float(), (whole[other] > 128).float())
        return (both > 0).float().mean().item()

    assert shared("painting") < 0.15
    assert shared("table") > 0.5


def test_an_object_changes_no_pixel_far_from_it(renderer: RoomsRenderer) -> None:
    style = random_styles(1, Generator().manual_seed(3))
    style[:, 5] = 0.9  # as it is, not mirrored
    empty, hung = renderer(torch.tensor([[0, 0, 0], [0, 1, 0]]), style.expand(2, -1)).int()
    room, pose = int(style[0, 0] * 12), int(style[0, 2] * 24)
    painted = renderer.buffers()["painting"][room, pose].float().sum(0).view(32, 32) > 0
    assert torch.equal(empty[:, ~painted], hung[:, ~painted])
    assert not torch.equal(empty, hung)


def test_fast_pictures_are_the_plain_compositing(renderer: RoomsRenderer) -> None:
    """One picture of couch and table, layer by layer in plain arithmetic."""
    style = random_styles(1, Generator().manual_seed(4))
    style[:, 5] = 0.9
    buffers = {name: tensor.double() / 255 for name, tensor in renderer.buffers().items()}
    room = int(style[0, 0] * 12)
    colours = rooms_renderer.ground_colours(style)[0].double()  # (M, 3)
    image = sum(colours[m][:, None] * buffers["ground"][room, m][None] for m in range(5))
    for position, palette in ((0, rooms_renderer.FABRICS), (2, rooms_renderer.WOODS)):
        coverage, light, dark = buffers[OBJECTS[position]][room, int(style[0, 1 + position] * 24)]
        first, second = style[0, 14 + 2 * position].item(), style[0, 15 + 2 * position].item()
        colour = torch.tensor(palette[int(first * len(palette))]).double() * (0.8 + 0.4 * second)
        image = image * (1 - dark) * (1 - coverage) + colour[:, None] * light
    expected = (image * (0.82 + 0.3 * style[0, 4].item())).clamp(0, 255).view(3, 32, 32)
    found = renderer(torch.tensor([[1, 0, 1]]), style)[0].double()
    assert (found - expected).abs().max() <= 1.0


def test_a_picture_does_not_depend_on_its_batch(renderer: RoomsRenderer) -> None:
    styles = random_styles(40, Generator().manual_seed(0))
    objects = selections(5)
    assert torch.equal(renderer(objects, styles)[17:19], renderer(objects[17:19], styles[17:19]))


def test_pictures_vary_beside_their_objects(renderer: RoomsRenderer) -> None:
    images = renderer(torch.zeros(200, 3, dtype=torch.long), random_styles(200, Generator().manual_seed(1)))
    assert len(torch.unique(images.flatten(1), dim=0)) == 200


@pytest.mark.parametrize(
    ("objects", "styles", "words"),
    [
        (torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, NUM_STYLES), "must be objects"),
        (torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3), "must be objects"),
        (torch.full((2, 3), 2), torch.zeros(2, NUM_STYLES), "must lie in"),
        (torch.zeros(2, 3, dtype=torch.long), torch.ones(2, NUM_STYLES), "must lie in"),
    ],
)
def test_wrong_shapes_and_values_are_refused(renderer: RoomsRenderer, objects, styles, words: str) -> None:
    with pytest.raises(CompbenchError, match=words):
        renderer(objects, styles)


def test_a_damaged_cache_is_made_again_and_other_buffers_are_refused(tmp_path) -> None:
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, Source("embedded", "", ""))
    first = cached_renderer(8, ctx)
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(b"damaged")
    again = cached_renderer(8, ctx)
    assert all(torch.equal(first.buffers()[name], again.buffers()[name]) for name in first.buffers())
    with pytest.raises(CompbenchError, match="not buffers"):
        RoomsRenderer.from_buffers({"ground": torch.zeros(1, 5, 4)})


@pytest.fixture
def own_pictures(tmp_path):
    """Folders of the four classes, each of one shade, wide pictures of 20 x 12 pixels."""
    for shade, name in enumerate(ROOMS["painting"]):
        (tmp_path / "rooms" / name).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (20, 12), (40 * shade, number, 0)).save(tmp_path / "rooms" / name / f"{number:02}.png")
    return tmp_path


def test_a_users_pictures_are_read_by_class_and_one_in_five_is_the_referees(own_pictures) -> None:
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, own_pictures, own_pictures, Source("official", "", ""))
    rooms = FolderRooms("painting", 32, ctx)
    classes = torch.arange(4).repeat(50)
    train, reference = rooms.training(classes, Generator().manual_seed(0)), rooms.reference(classes, Generator().manual_seed(0))
    for images in (train, reference):
        assert images.shape == (200, 3, 32, 32)
        assert torch.equal(images[:, 0, 0, 0].long(), 40 * classes)
    assert set(reference[:, 1, 0, 0].tolist()) == {0, 5, 10}
    assert not set(train[:, 1, 0, 0].tolist()) & {0, 5, 10}


def test_what_is_wrong_with_a_users_pictures_is_said(own_pictures) -> None:
    folder = own_pictures / "rooms"
    before = fingerprint(class_files(folder, ROOMS["painting"]))
    with pytest.raises(CompbenchError, match="no folder .*coffee_table"):
        class_files(folder, ROOMS["table"])
    broken = folder / "couch" / "03.png"
    Image.new("RGB", (20, 12), (1, 1, 1)).save(broken)
    assert fingerprint(class_files(folder, ROOMS["painting"])) != before
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(CompbenchError, match=r"03\.png cannot be read as a picture"):
        fingerprint(class_files(folder, ROOMS["painting"]))
    with pytest.raises(CompbenchError, match=r"03\.png cannot be read as a picture"):
        read_pictures([broken], 32)
    for path in sorted((folder / "empty").iterdir())[:5]:
        path.unlink()
    with pytest.raises(CompbenchError, match="holds 7 pictures"):
        class_files(folder, ROOMS["painting"])
