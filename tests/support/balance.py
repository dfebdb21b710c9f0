"""The order of tests: each worker of pytest-xdist begins with its share of the long ones, and short ones come last.

`--dist worksteal` cuts the collected tests into a block a worker, of equal counts, and a worker without work takes the latter
half of what another has left.  So the end of a block is done last, by whoever is free: a test of ten seconds there keeps one
core busy and leaves the other idle.  At the beginning of one block alone, the long tests would be the last that are left too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

LONG = {
    "test_planning.py": 18,
    "test_one_run.py": 30,
    "test_border.py": 15,
    "test_faults.py": 13,
    "test_gpu_layout.py": 9,
    "test_many.py": 9,
    "test_diagnose.py": 9,
    "test_sides.py": 9,
    "test_pool.py": 8,
    "test_hostile_plugins.py": 7,
    "test_counted.py": 7,
    "test_fit_cache.py": 7,
    "test_emoji.py": 6,
    "test_stacked_silos.py": 6,
    "test_shapes3d_composition.py": 6,
    "test_slurm.py": 5,
    "test_chest.py": 5,
    "test_example.py": 5,
    "test_dsprites.py": 4,
}
"""CPU seconds of the files whose dearest test takes 3 or more, or that wait for processes, on a machine with other work."""


def balanced(files: Sequence[str], num_workers: int) -> list[int]:
    """Places of the tests in the order in which they are to be collected.

    Args:
        files: the file name of each test.
        num_workers: number of blocks.

    Returns:
        each place once: a block after the other, a block's share of the long files before its short ones.
    """
    shares: list[list[str]] = [[] for _ in range(num_workers)]
    seconds = [0.0] * num_workers
    for name in sorted({*files} & LONG.keys(), key=lambda name: (-LONG[name], name)):
        lightest = seconds.index(min(seconds))
        shares[lightest].append(name)
        seconds[lightest] += LONG[name]
    short = iter([place for place, name in enumerate(files) if name not in LONG])
    order: list[int] = []
    for number, share in enumerate(shares):
        size = (len(files) - len(order)) // (num_workers - number)  # as pytest-xdist cuts
        block = [place for name in share for place, own in enumerate(files) if own == name]
        order += block + list(islice(short, max(0, size - len(block))))
    return order + list(short)
