"""Numbers of samples of image tasks, and training settings of their judges, by preset."""

from __future__ import annotations

from compbench.metrics.judge import JudgeSettings
from compbench.tasks.image_evaluation import Sizes

SIZES = {"smoke": Sizes(40, 0, 0), "quick": Sizes(320, 0, 0), "standard": Sizes(480, 0, 0), "paper": Sizes(0, 100, 10_000)}

DIGIT_SIZES = {"smoke": Sizes(50, 0, 0), "quick": Sizes(300, 0, 0), "standard": Sizes(500, 0, 0), "paper": Sizes(0, 100, 10_000)}
"""Sizes for coloured digits, which are small enough to request more of them."""

JUDGES = {
    ("shapes3d", "smoke"): JudgeSettings(width=16, num_steps=30, batch_size=64),
    ("shapes3d", "quick"): JudgeSettings(width=24, num_steps=700, batch_size=64),
    ("shapes3d", "standard"): JudgeSettings(width=24, num_steps=1400, batch_size=64),
    ("shapes3d", "paper"): JudgeSettings(width=64, num_steps=4000, batch_size=256),
    ("mpi3d", "smoke"): JudgeSettings(width=16, num_steps=30, batch_size=64),
    ("mpi3d", "quick"): JudgeSettings(width=24, num_steps=2200, batch_size=64, learning_rate=4e-3),
    ("mpi3d", "standard"): JudgeSettings(width=32, num_steps=6000, batch_size=64, learning_rate=3e-3),
    ("mpi3d", "paper"): JudgeSettings(width=64, num_steps=20_000, batch_size=256),
    ("cmnist", "smoke"): JudgeSettings(width=16, num_steps=60, batch_size=64),
    ("cmnist", "quick"): JudgeSettings(width=24, num_steps=1200, batch_size=128),
    ("cmnist", "standard"): JudgeSettings(width=24, num_steps=2400, batch_size=128),
    ("cmnist", "paper"): JudgeSettings(width=64, num_steps=6000, batch_size=256),
}
"""Judge training on MPI3D, whose objects are 8 to 12 pixels wide: a judge needs three times as long to classify six shapes."""
