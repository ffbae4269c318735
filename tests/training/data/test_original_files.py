"""Fashion-MNIST and CIFAR-10 in their original formats, whole, packed, missing and damaged."""

import gzip

import pytest

from annealtune.errors import DataError
from annealtune.training.data import cifar10, fashion_mnist, load

from .conftest import published


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
        assert server.requests == 1


class TestCIFAR10:
    @pytest.mark.parametrize("folder", [".", "cifar-10-batches-bin"])
    def test_the_unpacked_batches_are_read(self, tiny_cifar, tmp_path, folder) -> None:
        files, _, batches = tiny_cifar
        write(tmp_path / folder, batches)
        data = cifar10.load(tmp_path, **files)
        assert data.train_inputs.shape == (20, 3, 32, 32)
        assert data.test_inputs.shape == (4, 3, 32, 32)
        second = batches["data_batch_2.bin"]
        assert int(data.train_targets[4]) == second[0]
        assert data.train_inputs[4].numpy().tobytes() == second[1 : cifar10.RECORD]
        assert data.test_inputs[0].numpy().tobytes() == batches["test_batch.bin"][1:3073]
        assert data.train_inputs.is_contiguous()

    def test_the_archive_gives_the_same(self, tiny_cifar, tmp_path) -> None:
        files, archive, batches = tiny_cifar
        write(tmp_path / "packed", {"cifar-10-binary.tar.gz": archive})
        write(tmp_path / "unpacked", batches)
        packed = cifar10.load(tmp_path / "packed", **files)
        unpacked = cifar10.load(tmp_path / "unpacked", **files)
        assert packed.train_inputs.equal(unpacked.train_inputs)
        assert packed.test_targets.equal(unpacked.test_targets)
        assert [path.name for path in (tmp_path / "packed").iterdir()] == ["cifar-10-binary.tar.gz"]

    def test_the_archive_is_downloaded(self, tiny_cifar, tmp_path, server) -> None:
        files, archive, _ = tiny_cifar
        server.content = archive
        files["archive"] = published("cifar-10-binary.tar.gz", archive, server.address)
        assert len(cifar10.load(tmp_path, download=True, **files).train_targets) == 20
        assert len(cifar10.load(tmp_path, **files).train_targets) == 20

    def test_a_flipped_byte_in_a_batch_is_found(self, tiny_cifar, tmp_path) -> None:
        files, _, batches = tiny_cifar
        damaged = b"\x05" + batches["data_batch_4.bin"][1:]
        write(tmp_path, {**batches, "data_batch_4.bin": damaged})
        found = published("", damaged).digest
        with pytest.raises(DataError, match=f"data_batch_4.bin is damaged.*found {found}"):
            cifar10.load(tmp_path, **files)

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
        with pytest.raises(DataError, match=r"looked for [^,]*data_batch_3.bin, [^,]*tar.gz"):
            load("cifar10", data_dir=tmp_path)
