"""Archives and pictures that were made to harm: refused, in bounded memory and time."""

import io
import os
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from annealtune.errors import DataError
from annealtune.training.data import cifar10, fashion_mnist, image_folder
from annealtune.training.data.download import PublishedFile
from annealtune.training.input_files import read_inputs
from annealtune.training.task import Task

from .seeds import NUMBERS, archive, idx, packed, picture, picture_folder, published

# --- Archives ---

BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
BATCH = bytes(cifar10.RECORD)


def read_archive(folder: Path, content: bytes) -> None:
    parts = tuple(published(folder / "scratch", BATCH) for _ in BATCHES)
    parts = tuple(
        PublishedFile(name, part.digest) for name, part in zip(BATCHES, parts, strict=True)
    )
    whole = published(folder / "cifar-10-binary.tar.gz", content)
    cifar10.load(folder, publication=cifar10.Publication(whole, parts))


def test_a_tar_header_of_eight_exabytes(tmp_path):
    entry = tarfile.TarInfo("x/data_batch_1.bin")
    entry.size = 2**63 - 1
    header = entry.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(DataError):
        read_archive(tmp_path, packed(header + BATCH))


def test_a_batch_without_end_is_read_to_its_limit_only(tmp_path):
    bomb = archive({f"x/{name}": bytes(40_000_000) for name in BATCHES[:1]})
    with pytest.raises(DataError, match=r"damaged|does not contain"):
        read_archive(tmp_path, packed(bomb))


@pytest.mark.parametrize("start", ["/tmp/annealtune-out/", "../../../annealtune-out/"])
def test_names_that_lead_out_of_an_archive_lead_nowhere(tmp_path, start):
    read_archive(tmp_path, packed(archive({f"{start}{name}": BATCH for name in BATCHES})))
    assert not Path("/tmp/annealtune-out").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"cifar-10-binary.tar.gz", "scratch"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(fashion_mnist.LARGEST + 1), "unpacks to more than"),
        (b"", "not an IDX file"),
        (idx(np.zeros((0, 28, 28))), "not an IDX file"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2**31, 2**31, 2**31), "not an IDX file"),
        (b"\0\0\x08\xff", "not an IDX file"),
        (idx(np.full((3,), 200)), "do not hold it"),
    ],
)
def test_idx_files_that_are_none(tmp_path, content, message):
    gz = packed(content)
    files = [published(tmp_path / str(number), gz) for number in range(4)]
    with pytest.raises(DataError, match=message):
        fashion_mnist.load(tmp_path, files=files)


def test_what_is_published_is_fetched_over_https_with_a_strong_digest():
    files = [*fashion_mnist.FILES, cifar10.PUBLICATION.archive]
    assert all(file.url.startswith("https://") for file in files)
    everything = [*files, *cifar10.PUBLICATION.batches]
    assert {file.algorithm for file in everything} == {"sha256"}
    assert {len(file.digest) for file in everything} == {len("sha256:") + 64}


# --- Pictures ---


def chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png(*chunks: bytes, size: tuple[int, int] = (8, 8)) -> bytes:
    header = chunk(b"IHDR", struct.pack(">2I5B", *size, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


PICTURES = {
    "pixels without end": png(chunk(b"IDAT", zlib.compress(b"")), size=(60_000, 60_000)),
    "text without end": png(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(5_000_000)))),
    "profile without end": png(chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(5_000_000)))),
    "cut": picture("png")[:-30],
    "nothing": b"",
    "a program": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(x) (w) file closefile\n",
    "a negative size": b"BM" + struct.pack("<3I", 54, 0, 54) + struct.pack("<I2i", 40, -8, -8),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_that_are_none(tmp_path, name):
    with pytest.raises(DataError, match=r"0\.png cannot be read as a picture"):
        image_folder.load(picture_folder(tmp_path, PICTURES[name]), image_size=(8, 8))


def test_the_good_pictures_are_read(tmp_path):
    assert len(image_folder.load(picture_folder(tmp_path, None)).train_targets) == 6


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["folder", "input"])
def test_a_pipe_among_pictures_is_refused_and_not_waited_for(tmp_path, place):
    pipe = picture_folder(tmp_path, None) / "cat" / "9.png"
    os.mkfifo(pipe)
    images = Task.of_images(channels=3, image_size=(8, 8), classes=2)
    with pytest.raises(DataError, match=r"9\.png is not a file"):
        image_folder.load(tmp_path) if place == "folder" else list(read_inputs(pipe, images, 2))


@pytest.mark.parametrize("size", [(2**31 - 1, 2**31 - 1), (2**31 - 1, 1000)])
def test_an_image_size_that_no_memory_holds(tmp_path, size):
    with pytest.raises(DataError, match="GiB, this machine has"):
        image_folder.load(picture_folder(tmp_path, None), image_size=size)


def test_an_array_that_no_memory_holds(tmp_path):
    target = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 4)}
    np.lib.format.write_array_header_1_0(target, header)
    (tmp_path / "x.npy").write_bytes(target.getvalue())
    with pytest.raises(DataError, match="cannot be read as an array"):
        list(read_inputs(tmp_path / "x.npy", NUMBERS, 2))
