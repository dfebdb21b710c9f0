"""The renderers against what a training step needs, as ratios within one run.  Run with: pytest -m slow tests/benchmarks"""

import time

import pytest
import torch

from compbench.data import concepts_renderer, dsprites_renderer, mpi3d_renderer, shapes3d_renderer, sprites_renderer
from compbench.data.chest_findings import feasible, label_counts
from compbench.data.chest_phantom import ChestPhantom
from compbench.data.chest_phantom import random_styles as chest_styles
from compbench.data.concepts_renderer import ConceptsRenderer
from compbench.data.dsprites_renderer import DSpritesRenderer
from compbench.data.mpi3d_renderer import MPI3DRenderer
from compbench.data.rooms_renderer import RoomsRenderer, random_styles
from compbench.data.shapes3d_renderer import Shapes3DRenderer, light_buffers
from compbench.data.sprites_renderer import SpritesRenderer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["shapes3d", "mpi3d"])
def test_images_per_second_of_one_core(benchmark, name: str) -> None:
    torch.set_num_threads(1)
    renderer = {"shapes3d": Shapes3DRenderer, "mpi3d": MPI3DRenderer}[name]()
    sizes = {"shapes3d": shapes3d_renderer.SIZES, "mpi3d": mpi3d_renderer.SIZES}[name]
    conditions = torch.stack([torch.randint(size, (64,)) for size in sizes], dim=1)
    benchmark(renderer, conditions)
    benchmark.extra_info["images_per_second"] = 64 / benchmark.stats.stats.median
    assert benchmark.extra_info["images_per_second"] > {"shapes3d": 2000, "mpi3d": 500}[name]


@pytest.mark.parametrize("name", ["concepts", "dsprites", "two-sprites"])
def test_small_pictures_per_second_of_one_core(benchmark, name: str) -> None:
    torch.set_num_threads(1)
    renderer = {
        "concepts": lambda: ConceptsRenderer(colour_signal=0.7, size_signal=3.0),
        "dsprites": DSpritesRenderer,
        "two-sprites": lambda: SpritesRenderer(side=64),
    }[name]()
    module = {"concepts": concepts_renderer, "dsprites": dsprites_renderer, "two-sprites": sprites_renderer}[name]
    conditions = torch.stack([torch.randint(size, (64,)) for size in module.SIZES], dim=1)
    benchmark(renderer, conditions)
    benchmark.extra_info["images_per_second"] = 64 / benchmark.stats.stats.median
    assert benchmark.extra_info["images_per_second"] > 2000


def test_buffers_beat_ray_casting_each_image_a_hundredfold(benchmark) -> None:
    torch.set_num_threads(1)
    renderer = Shapes3DRenderer()
    conditions = torch.stack([torch.randint(size, (64,)) for size in shapes3d_renderer.SIZES], dim=1)
    start = time.process_time()
    for scale, shape, orientation in conditions[:8, 3:].tolist():
        light_buffers(scale, shape, orientation)
    plain = (time.process_time() - start) / 8
    benchmark(renderer, conditions)
    ratio = plain / (benchmark.stats.stats.median / 64)
    benchmark.extra_info["ratio"] = ratio
    assert ratio > 30


def test_rooms_per_second_of_one_core(benchmark) -> None:
    torch.set_num_threads(1)
    renderer = RoomsRenderer()
    objects, styles = torch.randint(2, (64, 3)), random_styles(64, torch.Generator().manual_seed(0))
    benchmark(renderer, objects, styles)
    benchmark.extra_info["images_per_second"] = 64 / benchmark.stats.stats.median
    assert benchmark.extra_info["images_per_second"] > 2000


def test_radiographs_per_second_of_one_core(benchmark) -> None:
    """Every feasible label set once: more findings an image than the data have."""
    torch.set_num_threads(1)
    phantom, labels = ChestPhantom(), torch.tensor(feasible(label_counts()))
    benchmark(phantom, labels, chest_styles(len(labels), torch.Generator().manual_seed(0)))
    benchmark.extra_info["images_per_second"] = len(labels) / benchmark.stats.stats.median
    assert benchmark.extra_info["images_per_second"] > 2000
