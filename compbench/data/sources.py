"""Official data files: their origin, expected size and hash, licence and citation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from compbench.system.errors import CompbenchError


class SourceFile(NamedTuple):
    """One file.  A hash that is not known for certain is "", and the first use records the file's hash.

    Attributes:
        name: name in the data folder.
        urls: mirrors, tried in turn; only one if no hash is known, because nothing else verifies what it sends.
        size: bytes, 0 if not known for certain.
        sha256, md5: hexadecimal.
        about: approximate bytes if `size` is not known, for messages and for the check of free disk space.
        num_images: for an .npz without a known hash, the number of pictures 64x64x3 in its array `images`.
    """

    name: str
    urls: tuple[str, ...]
    size: int = 0
    sha256: str = ""
    md5: str = ""
    about: int = 0
    num_images: int = 0


class DataSource(NamedTuple):
    """A data set's official files."""

    name: str
    summary: str
    files: tuple[SourceFile, ...]
    licence: str
    citation: str


class InstalledSource(NamedTuple):
    """Data that a system package installs: compbench downloads nothing, and the data has no single right hash.

    Attributes:
        name, summary, licence, citation: as in `DataSource`.
        file: name of the file to look for.
        install: the command that installs it.
    """

    name: str
    summary: str
    file: str
    install: str
    licence: str
    citation: str


INSTALLED: dict[str, InstalledSource] = {
    "emoji": InstalledSource(
        "emoji",
        "a colour font: 1,065 drawings of people, all combinations of 71 roles, 3 persons and 5 skin tones",
        "NotoColorEmoji.ttf",
        "apt-get install fonts-noto-color-emoji",
        "OFL-1.1",
        "Google, Noto Color Emoji",
    ),
}

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
            (
                SourceFile(
                    "3dshapes.h5",
                    (
                        "https://storage.googleapis.com/3d-shapes/3dshapes.h5",
                        "https://storage.googleapis.com/storage/v1/b/3d-shapes/o/3dshapes.h5?alt=media",
                    ),
                    # Size and SHA-256 as TensorFlow Datasets pins them, MD5 as disent does.
                    267_573_662,
                    "0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785",
                    "099a2078d58cec4daad0702c55d06868",
                ),
            ),
            "Apache-2.0",
            "Burgess & Kim, 3D Shapes Dataset, 2018",
        ),
        DataSource(
            "mpi3d-real",
            "1,036,800 photographs 64x64 of a robot arm, all combinations of 7 factors",
            (
                SourceFile(
                    "mpi3d_real.npz",
                    # The authors' address since May 2024; the older bucket, disentanglement_dataset, is closed.  disent pins
                    # MD5 0f33f609918fb5c97996692f91129802 for the copy that lay there; nothing says that this is the same.
                    ("https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/real.npz",),
                    about=12_740_198_400,  # its pixels, if it is stored uncompressed
                    num_images=1_036_800,
                ),
            ),
            "CC BY 4.0",
            "Gondal et al., On the Transfer of Inductive Bias from Simulation to the Real World, NeurIPS 2019",
        ),
        DataSource(
            "dsprites",
            "737,280 black and white images 64x64 of a sprite, all combinations of 5 factors",
            (
                SourceFile(
                    "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
                    (
                        "https://github.com/google-deepmind/dsprites-dataset/raw/master/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
                    ),
                    md5="7da33b31b13a06f4b04a70402ce90c2e",  # as several loaders pin it; we know no published SHA-256
                    about=26_000_000,
                ),
            ),
            "Apache-2.0",
            "Matthey et al., dSprites: Disentanglement testing Sprites dataset, 2017",
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
            "the Inception network whose features define FID (clean-fid's copy)",
            (
                SourceFile(
                    "inception-2015-12-05.pt",
                    ("https://nvlabs-fi-cdn.nvidia.com/stylegan2-ada-pytorch/pretrained/metrics/inception-2015-12-05.pt",),
                    95_607_719,  # pinned, with the hash, by k-diffusion and others; not measured by us
                    "f58cb9b6ec323ed63459aa4fb441fe750cfe39fafad6da5cb504a16f19e958f4",
                ),
            ),
            "see clean-fid",
            "Parmar et al., On Aliased Resizing and Surprising Subtleties in GAN Evaluation, CVPR 2022",
        ),
    )
}


def file_hash(path: Path, algorithm: str = "sha256", *, progress: Callable[[int], None] = lambda done: None) -> str:
    """Hexadecimal hash of a file, read in blocks; `progress` gets the bytes done."""
    digest, done = hashlib.new(algorithm, usedforsecurity=algorithm != "md5"), 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            digest.update(block)
            done += len(block)
            progress(done)
    return digest.hexdigest()


def recorded_sha256(path: Path, file: SourceFile) -> str:
    """The file's hash: from the note next to it if that note is of this file, otherwise measured and noted (slow for 12 GB).

    Raises:
        CompbenchError: the file's hash is not published, and differs from the hash at its first use.
    """
    noted = noted_sha256(path)
    if noted and is_of(_note(path), path):
        return noted
    digest = file_hash(path)
    if noted and not file.sha256 and digest != noted:
        raise CompbenchError(
            f"{path} has SHA-256 {digest}, but was {noted} on its first use; fetch it again, "
            f"or delete {_note(path).name} if you replaced it on purpose."
        )
    note_sha256(path, digest)
    return digest


def noted_sha256(path: Path) -> str:
    """The hash in the note next to a file, which need not exist; "" if there is no note."""
    try:
        words = _note(path).read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return ""
    return words[0] if words and len(words[0]) == 64 else ""


def note_sha256(path: Path, digest: str) -> bool:
    """Write the note in the format of sha256sum.  False if the folder is not writable; a note is optional."""
    note = _note(path)
    part = note.with_name(f"{note.name}.{os.getpid()}.part")
    try:
        part.write_text(f"{digest}  {path.name}\n", "ascii")
        stamp(part, path)
        os.replace(part, note)
    except OSError:
        return False
    return True


def stamp(derived: Path, original: Path) -> None:
    """Give a derived file its original's modification time, by which `is_of` recognises it."""
    status = original.stat()
    os.utime(derived, ns=(status.st_atime_ns, status.st_mtime_ns))


def is_of(derived: Path, original: Path) -> bool:
    """Whether a derived file exists and was made from the original in its present form."""
    return derived.is_file() and derived.stat().st_mtime_ns == original.stat().st_mtime_ns


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
