import pytest
import torch

from compbench.data import mpi3d_renderer, shapes3d_renderer
from compbench.data.mpi3d_renderer import MPI3DRenderer
from compbench.data.shapes3d_renderer import Shapes3DRenderer, hue_colour, light_buffers, trace
from compbench.system.errors import CompbenchError


def test_shapes3d_horizon_and_wall_stand_where_the_protocol_measured_them() -> None:
    surface = trace(0, shapes3d_renderer.CUBE, 7)
    rays = shapes3d_renderer.SAMPLES**2
    wall = surface.wall.view(64, 64, rays).float().mean(-1)[:, 5]
    first, last = wall.nonzero()[0].item(), wall.nonzero()[-1].item()
    assert (first, last) == (17, 40)


def test_shapes3d_corner_stands_at_column_44_at_the_first_orientation() -> None:
    surface = trace(0, shapes3d_renderer.CUBE, 0)
    row = surface.facing.view(64, 64, -1)[25, :, 0]
    assert (row == 1).nonzero()[0].item() in (44, 45)


@pytest.mark.parametrize(("shape", "rows", "width"), [(0, (28, 57), 29), (2, (24, 53), 29), (3, (8, 53), 22)])
def test_shapes3d_largest_objects_have_their_measured_size(shape: int, rows: tuple[int, int], width: int) -> None:
    surface = trace(7, shape, 7)
    mask = surface.object.view(64, 64, -1).float().mean(-1) > 0.5
    found = mask.any(1).nonzero()
    assert abs(found[0].item() - rows[0]) <= 1
    assert abs(found[-1].item() - rows[1]) <= 1
    assert abs(int(mask.any(0).sum()) - width) <= 2


def test_shapes3d_a_hue_changes_only_its_own_material(shapes3d: Shapes3DRenderer) -> None:
    images = shapes3d(torch.tensor([[0, 3, 6, 4, 1, 5], [1, 3, 6, 4, 1, 5]]))
    surface = trace(4, 1, 5)
    no_floor = ~surface.floor.view(64, 64, -1).any(-1)
    assert torch.equal(images[0][:, no_floor], images[1][:, no_floor])
    assert not torch.equal(images[0], images[1])


def test_shapes3d_fast_path_is_the_plain_sum_of_materials(shapes3d: Shapes3DRenderer) -> None:
    light = light_buffers(3, 2, 11)  # (5, 4096)
    colours = [hue_colour(0.2), hue_colour(0.5), hue_colour(0.9), shapes3d_renderer.SKY, (1.0, 1.0, 1.0)]
    plain = torch.zeros(3, 4096)
    for channel in range(3):
        for material in range(5):
            plain[channel] += colours[material][channel] * light[material]
    expected = (plain * 255).clamp(0, 255).view(3, 64, 64)
    found = shapes3d(torch.tensor([[2, 5, 9, 3, 2, 11]]))[0].float()
    assert (found - expected).abs().max() <= 1.0


class TracedOnDemand(MPI3DRenderer):
    """The renderer of which only those cases are traced that are asked for: all of them take ten seconds."""

    def __init__(self) -> None:
        arms, sprites = torch.zeros(3, 40, 40, 4096, dtype=torch.uint8), torch.zeros(6, 2, 3, 40, 40, 2, 256, dtype=torch.uint8)
        self._install({"arms": arms, "sprites": sprites}, torch.device("cpu"))
        self._there: set[tuple[int, ...]] = set()

    def __call__(self, conditions: torch.Tensor) -> torch.Tensor:
        asked = {tuple(row) for row in conditions[:, 1:6].tolist() if len(row) == 5 and max(row) < 40}
        for shape, size, camera, _, horizontal in asked - self._there:
            tips = mpi3d_renderer.tip(torch.tensor(horizontal), torch.arange(40))
            self._arms[camera, horizontal] = as_bytes(mpi3d_renderer.arm_coverage(camera, tips))
            layers = mpi3d_renderer.object_layers(shape, size, camera, horizontal)
            self._sprites[shape, size, camera, horizontal] = as_bytes(layers)
        self._there |= asked
        return super().__call__(conditions)


def as_bytes(shares: torch.Tensor) -> torch.Tensor:
    return (shares * 255).round().to(torch.uint8)


@pytest.fixture(scope="module")
def mpi3d() -> MPI3DRenderer:
    return TracedOnDemand()


def test_mpi3d_each_case_is_traced_into_its_own_place(monkeypatch) -> None:
    def arm(camera: int, tips: torch.Tensor) -> torch.Tensor:
        return ((80 * camera + 40 + tips[:, :1] + tips[:, 1:2] / 2) / 255).expand(40, 4096)

    def layers(shape: int, size: int, camera: int, horizontal: int) -> torch.Tensor:
        own = 107 * shape + 61 * size + 29 * camera + 3 * horizontal
        return ((own + torch.arange(40) * 5)[:, None, None] % 256 / 255).expand(40, 2, 256)

    monkeypatch.setattr(mpi3d_renderer, "arm_coverage", arm)
    monkeypatch.setattr(mpi3d_renderer, "object_layers", layers)
    found = MPI3DRenderer().buffers()
    for camera, horizontal in ((0, 0), (1, 7), (2, 39)):
        tips = mpi3d_renderer.tip(torch.tensor(horizontal), torch.arange(40))
        assert torch.equal(found["arms"][camera, horizontal], as_bytes(arm(camera, tips)))
        for shape, size in ((0, 1), (5, 0)):
            expected = as_bytes(layers(shape, size, camera, horizontal))
            assert torch.equal(found["sprites"][shape, size, camera, horizontal], expected)


@pytest.mark.parametrize("name", ["shapes3d", "mpi3d"])
def test_an_image_does_not_depend_on_its_batch(name: str, request: pytest.FixtureRequest) -> None:
    renderer = request.getfixturevalue(name)
    sizes = {"shapes3d": shapes3d_renderer.SIZES, "mpi3d": mpi3d_renderer.SIZES}[name]
    generator = torch.Generator().manual_seed(0)
    conditions = torch.stack([torch.randint(size, (40,), generator=generator) for size in sizes], dim=1)
    assert torch.equal(renderer(conditions)[17:19], renderer(conditions[17:19]))


@pytest.mark.parametrize("name", ["shapes3d", "mpi3d"])
def test_buffers_give_the_same_renderer(name: str, request: pytest.FixtureRequest) -> None:
    renderer = request.getfixturevalue(name)
    kind = {"shapes3d": Shapes3DRenderer, "mpi3d": MPI3DRenderer}[name]
    condition = torch.zeros(1, 6 if name == "shapes3d" else 7, dtype=torch.long)
    expected = renderer(condition)
    assert torch.equal(kind.from_buffers(renderer.buffers())(condition), expected)


@pytest.mark.parametrize("name", ["shapes3d", "mpi3d"])
def test_a_value_out_of_range_is_refused(name: str, request: pytest.FixtureRequest) -> None:
    renderer = request.getfixturevalue(name)
    width = 6 if name == "shapes3d" else 7
    with pytest.raises(CompbenchError, match="must lie in"):
        renderer(torch.full((1, width), 40))
    with pytest.raises(CompbenchError, match="must be"):
        renderer(torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.parametrize(("camera", "row"), [(0, 12), (1, 20), (2, 31)])
def test_mpi3d_arc_has_its_measured_row(mpi3d: MPI3DRenderer, camera: int, row: int) -> None:
    images = mpi3d(torch.tensor([[0, 0, 0, camera, 0, 0, 39], [0, 0, 0, camera, 1, 0, 39]])).int()
    changed = (images[0] != images[1]).any(0)[:, 24]  # beside the post
    assert abs(changed.nonzero()[0].item() - row) <= 1
    assert 3 <= int(changed.sum()) <= 5


def test_mpi3d_object_colour_changes_only_the_object(mpi3d: MPI3DRenderer) -> None:
    images = mpi3d(torch.tensor([[0, 1, 1, 1, 0, 10, 10], [2, 1, 1, 1, 0, 10, 10]]))
    changed = (images[0] != images[1]).any(0)
    rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
    assert rows[-1] - rows[0] < 16
    assert columns[-1] - columns[0] < 16
    assert 60 < int(changed.sum()) < 200


def test_mpi3d_every_value_of_every_factor_shows(mpi3d: MPI3DRenderer) -> None:
    for factor, size in enumerate(mpi3d_renderer.SIZES):
        conditions = torch.tensor([[2, 1, 1, 1, 0, 12, 12]] * size)
        conditions[:, factor] = torch.arange(size)
        assert len(torch.unique(mpi3d(conditions).flatten(1), dim=0)) == size


@pytest.mark.slow
@pytest.mark.parametrize("shape", range(6))
def test_mpi3d_poses_differ_and_move_smoothly(shape: int, mpi3d: MPI3DRenderer) -> None:
    """The object turns rigidly with the arm: no step of an axis changes the picture twice as much as its usual step."""
    for axis, fixed in ((5, [2, shape, 1, 1, 0, 0, 30]), (6, [2, shape, 1, 1, 0, 33, 0])):
        conditions = torch.tensor([fixed] * 40)
        conditions[:, axis] = torch.arange(40)
        images = mpi3d(conditions).float()
        steps = (images[1:] - images[:-1]).abs().sum((1, 2, 3))
        assert steps.max() < 2 * steps.median()
        assert steps.min() > 0


@pytest.mark.slow
def test_mpi3d_has_hardly_two_combinations_with_one_picture() -> None:
    """Of a cube's and a cylinder's 9,600 poses at most ten look like another: where the arm stands upright."""
    mpi3d = MPI3DRenderer()
    axes = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    seen: set[bytes] = set()
    for shape in (1, 2):
        for camera in range(3):
            head = torch.tensor([2, shape, 1, camera, 0]).expand(len(axes), 5)
            seen |= {image.numpy().tobytes() for image in mpi3d(torch.cat([head, axes], dim=1))}
    assert 9_600 - len(seen) <= 10
