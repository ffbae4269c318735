"""Fashion-MNIST and CIFAR-10 in their original formats, whole, packed, missing and damaged."""

import gzip

import numpy as np
import pytest

from annealtune.errors import DataError
from annealtune.training.data import cifar10, fashion_mnist, load

from .conftest import idx, pack, published


def write(folder, contents) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


class TestFashionMNIST:
    @pytest.mark.parametrize("folder", [".", "fashion-mnist", "FashionMNIST/raw"])
    def test_the_four_files_are_read(self, tiny_fashion, tmp_path, folder) -> None:
        files, contents = tiny_fashion
        write(tmp_path / folder, contents)
        data = fashion_mnist.load(tmp_path, files=files)
        assert data.train_inputs.shape == (12, 1, 28, 28)
        assert data.test_targets.tolist() == [0, 1, 2, 3, 4]
        pixels = gzip.decompress(contents["train-images-idx3-ubyte.gz"])[16:]
        assert data.train_inputs.numpy().tobytes() == pixels

    def test_a_flipped_byte_is_found(self, tiny_fashion, tmp_path) -> None:
        files, contents = tiny_fashion
        write(tmp_path, contents)
        name = "t10k-labels-idx1-ubyte.gz"
        damaged = bytearray(contents[name])
        damaged[-1] ^= 1
        (tmp_path / name).write_bytes(damaged)
        expected, found = files[3].digest, published(name, bytes(damaged)).digest
        message = f"{tmp_path / name} is damaged.*expected {expected}, found {found}; delete it"
        with pytest.raises(DataError, match=message):
            fashion_mnist.load(tmp_path, files=files)

    def test_the_public_loader_takes_the_published_files_only(self, tiny_fashion, tmp_path) -> None:
        write(tmp_path, tiny_fashion[1])
        with pytest.raises(DataError, match="expected sha256:3aede38d61863908ad"):
            load("fashion-mnist", data_dir=tmp_path)

    def test_only_what_is_missing_is_downloaded(self, tiny_fashion, tmp_path, server) -> None:
        files, contents = tiny_fashion
        name = "train-labels-idx1-ubyte.gz"
        server.content = contents[name]
        files = tuple(published(file.name, contents[file.name], server.address) for file in files)
        folder = tmp_path / "fashion-mnist"
        write(folder, {key: content for key, content in contents.items() if key != name})
        with pytest.raises(DataError, match=f"looked for {folder / name}"):
            fashion_mnist.load(tmp_path, files=files)
        assert len(fashion_mnist.load(tmp_path, download=True, files=files).train_targets) == 12
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "content",
        [
            b"plain text",
            gzip.compress(b"no header"),
            gzip.compress(b""),
            gzip.compress(b"\0\0\x08\x01\0\0\0\x09too few"),
            gzip.compress(b"\0\0\x08\x03\0\0"),
            idx(np.zeros(20))[:-9],
        ],
        ids=["text", "no header", "empty", "short", "short header", "cut gzip"],
    )
    def test_another_format_is_refused(self, tiny_fashion, tmp_path, content) -> None:
        files, contents = tiny_fashion
        name = files[0].name
        write(tmp_path, {**contents, name: content})
        with pytest.raises(DataError, match=f"{name} is not"):
            fashion_mnist.load(tmp_path, files=(published(name, content), *files[1:]))


class TestCIFAR10:
    @pytest.mark.parametrize("folder", [".", "cifar-10-batches-bin"])
    def test_the_unpacked_batches_are_read(self, tiny_cifar, tmp_path, folder) -> None:
        publication, _, batches = tiny_cifar
        write(tmp_path / folder, batches)
        data = cifar10.load(tmp_path, publication=publication)
        assert data.train_inputs.shape == (20, 3, 32, 32)
        assert data.test_inputs.shape == (4, 3, 32, 32)
        second = batches["data_batch_2.bin"]
        assert int(data.train_targets[4]) == second[0]
        assert data.train_inputs[4].numpy().tobytes() == second[1 : cifar10.RECORD]
        assert data.test_inputs[0].numpy().tobytes() == batches["test_batch.bin"][1:3073]
        assert data.train_inputs.is_contiguous()

    def test_the_archive_gives_the_same(self, tiny_cifar, tmp_path) -> None:
        publication, archive, batches = tiny_cifar
        write(tmp_path / "packed", {"cifar-10-binary.tar.gz": archive})
        write(tmp_path / "unpacked", batches)
        packed = cifar10.load(tmp_path / "packed", publication=publication)
        unpacked = cifar10.load(tmp_path / "unpacked", publication=publication)
        assert packed.train_inputs.equal(unpacked.train_inputs)
        assert packed.test_targets.equal(unpacked.test_targets)
        assert [path.name for path in (tmp_path / "packed").iterdir()] == ["cifar-10-binary.tar.gz"]

    def test_the_archive_is_downloaded(self, tiny_cifar, tmp_path, server) -> None:
        publication, archive, _ = tiny_cifar
        server.content = archive
        publication = cifar10.Publication(
            published("cifar-10-binary.tar.gz", archive, server.address), publication.batches
        )
        told = []
        data = cifar10.load(
            tmp_path, download=True, publication=publication, progress=lambda *n: told.append(n)
        )
        assert len(data.train_targets) == 20
        assert told[-1] == ("cifar-10-binary.tar.gz", len(archive), len(archive))
        assert len(cifar10.load(tmp_path, publication=publication).train_targets) == 20

    def test_a_flipped_byte_in_a_batch_is_found(self, tiny_cifar, tmp_path) -> None:
        publication, _, batches = tiny_cifar
        damaged = b"\x05" + batches["data_batch_4.bin"][1:]
        write(tmp_path, {**batches, "data_batch_4.bin": damaged})
        found = published("", damaged).digest
        with pytest.raises(DataError, match=f"data_batch_4.bin is damaged.*found {found}"):
            cifar10.load(tmp_path, publication=publication)

    def test_the_public_loader_takes_the_published_files_only(self, tiny_cifar, tmp_path) -> None:
        write(tmp_path, tiny_cifar[2])
        with pytest.raises(DataError, match="sha256:cee916563c9f80d84e3cc88"):
            load("cifar10", data_dir=tmp_path)
        write(tmp_path / "packed", {"cifar-10-binary.tar.gz": tiny_cifar[1]})
        with pytest.raises(DataError, match="sha256:c4a38c50a1bc5f3a1c5537"):
            load("cifar10", data_dir=tmp_path / "packed")

    @pytest.mark.parametrize(
        "name", ["cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "data_batch_1"]
    )
    def test_the_python_version_is_refused_unread(self, tmp_path, name) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"not even a pickle")
        with pytest.raises(DataError, match=r"pickles.*binary version, https.*binary.tar.gz"):
            load("cifar10", data_dir=tmp_path)

    def test_an_incomplete_folder_names_what_is_missing(self, tiny_cifar, tmp_path) -> None:
        batches = {k: v for k, v in tiny_cifar[2].items() if k != "data_batch_3.bin"}
        write(tmp_path / cifar10.FOLDER, batches)
        with pytest.raises(DataError, match=r"incomplete: data_batch_3.bin missing"):
            load("cifar10", data_dir=tmp_path)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (None, "does not contain test_batch.bin"),
            (b"\0" * 100, "records of 3073 bytes, got 100"),
        ],
    )
    def test_an_archive_with_another_content_is_refused(
        self, tiny_cifar, tmp_path, change, told
    ) -> None:
        publication, _, batches = tiny_cifar
        members = {f"x/{name}": content for name, content in batches.items()}
        del members["x/test_batch.bin"]
        archive = pack(members if change is None else {**members, "x/test_batch.bin": change})
        write(tmp_path, {"cifar-10-binary.tar.gz": archive})
        file = published("cifar-10-binary.tar.gz", archive)
        with pytest.raises(DataError, match=told):
            cifar10.load(tmp_path, publication=cifar10.Publication(file, publication.batches))

    def test_what_is_no_archive_is_refused(self, tiny_cifar, tmp_path) -> None:
        write(tmp_path, {"cifar-10-binary.tar.gz": b"no archive"})
        file = published("cifar-10-binary.tar.gz", b"no archive")
        with pytest.raises(DataError, match="cannot be read"):
            cifar10.load(tmp_path, publication=cifar10.Publication(file, tiny_cifar[0].batches))
