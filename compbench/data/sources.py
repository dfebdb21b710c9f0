"""Official data files: where they come from, what they must look like, who made them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple


class SourceFile(NamedTuple):
    """One file.  Where we know no hash with certainty it is "", and the first use records the one it finds."""

    name: str
    urls: tuple[str, ...]
    size: int = 0
    sha256: str = ""
    md5: str = ""


class DataSource(NamedTuple):
    """A data set's official files."""

    name: str
    summary: str
    files: tuple[SourceFile, ...]
    licence: str
    citation: str


MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _mnist(name: str, size: int, sha256: str, md5: str) -> SourceFile:
    return SourceFile(name, tuple(mirror + name for mirror in MNIST_MIRRORS), size, sha256, md5)


SOURCES: dict[str, DataSource] = {
    source.name: source
    for source in (
        DataSource(
            "shapes3d",
            "480,000 images 64x64 of a room, all combinations of 6 factors",
            (SourceFile("3dshapes.h5", ("https://storage.googleapis.com/3d-shapes/3dshapes.h5",)),),
            "Apache-2.0",
            "Burgess & Kim, 3D Shapes Dataset, 2018",
        ),
        DataSource(
            "mpi3d-real",
            "1,036,800 photographs 64x64 of a robot arm, all combinations of 7 factors",
            (
                SourceFile(
                    "mpi3d_real.npz",
                    (
                        "https://storage.googleapis.com/disentanglement_dataset/Final_Dataset/mpi3d_real.npz",
                        "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/real.npz",
                    ),
                ),
            ),
            "CC BY 4.0",
            "Gondal et al., On the Transfer of Inductive Bias from Simulation to the Real World, NeurIPS 2019",
        ),
        DataSource(
            "mnist",
            "70,000 handwritten digits 28x28",
            (
                _mnist(
                    "train-images-idx3-ubyte.gz",
                    9912422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                ),
                _mnist(
                    "train-labels-idx1-ubyte.gz",
                    28881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "d53e105ee54ea40749a09fcbcd1e9432",
                ),
                _mnist(
                    "t10k-images-idx3-ubyte.gz",
                    1648877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "9fb629c4189551a2d022fa330f9573f3",
                ),
                _mnist(
                    "t10k-labels-idx1-ubyte.gz",
                    4542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    "ec29112dd5afa0611ce80d1b7f02629c",
                ),
            ),
            "stated by none of the mirrors",
            "LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998",
        ),
        DataSource(
            "inception",
            "the Inception network whose features FID is defined by (clean-fid's copy)",
            (
                SourceFile(
                    "inception-2015-12-05.pt",
                    ("https://nvlabs-fi-cdn.nvidia.com/stylegan2-ada-pytorch/pretrained/metrics/inception-2015-12-05.pt",),
                    95_607_719,
                    "f58cb9b6ec323ed63459aa4fb441fe750cfe39fafad6da5cb504a16f19e958f4",
                ),
            ),
            "see clean-fid",
            "Parmar et al., On Aliased Resizing and Surprising Subtleties in GAN Evaluation, CVPR 2022",
        ),
    )
}


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_sha256(path: Path, file: SourceFile) -> str:
    """The file's hash: from the note beside it if the note is newer, else measured and noted (12 GB take a while)."""
    note = path.with_name(path.name + ".sha256")
    if note.is_file() and note.stat().st_mtime >= path.stat().st_mtime:
        return note.read_text().split()[0]
    digest = file_sha256(path)
    note.write_text(f"{digest}  {path.name}\n")
    return digest
