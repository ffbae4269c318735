"""Inputs from files: what is read, and what is refused before a model sees it."""

import numpy as np
import pytest
import torch
from PIL import Image

from annealtune.errors import DataError
from annealtune.training.prediction import read_inputs
from annealtune.training.task import Task

TABLE = Task("regression", (3,), "float32", (1,))
TEXT = Task("tokens", (4,), "int64", (4, 9), vocabulary=9)
GREY = Task(
    "classification", (1, 2, 3), "uint8", (2,), ("a", "b"), mean=(0.5,), std=(1.0,), scale=255
)
COLOUR = Task("classification", (3, 2, 3), "uint8", (2,), ("a", "b"), scale=255)
DIGITS = Task("classification", (1, 2, 3), "uint8", (2,), ("a", "b"), scale=16)
FLOAT_IMAGES = Task("classification", (1, 2, 3), "float32", (2,), ("a", "b"))


def read(path, task, batch_size=100, image_size=None):
    batches = list(read_inputs(path, task, batch_size, image_size))
    return [name for names, _ in batches for name in names], torch.cat([b for _, b in batches])


class TestTables:
    @pytest.mark.parametrize(
        "text",
        [
            "1,2,3\n4,5,6\n",
            "1,2,3\n4,5,6",
            "age,sex,bmi\n1,2,3\n4,5,6\n",
            "\ufeffage,sex,bmi\r\n1,2,3\r\n\r\n4,5,6\r\n",
            '"1", 2 ,3e0\n4.0,"5",6\n',
        ],
    )
    def test_with_a_header_and_without(self, tmp_path, text):
        (tmp_path / "t.csv").write_text(text, encoding="utf-8", newline="")
        names, inputs = read(tmp_path / "t.csv", TABLE)
        assert names == ["0", "1"]
        assert inputs.dtype == torch.float32
        assert inputs.tolist() == [[1, 2, 3], [4, 5, 6]]

    def test_a_row_may_be_an_image_or_a_text(self, tmp_path):
        (tmp_path / "t.csv").write_text("0,1,2,3,4,255\n")
        assert read(tmp_path / "t.csv", GREY)[1].tolist() == [[[[0, 1, 2], [3, 4, 255]]]]
        (tmp_path / "t.csv").write_text("0,8,2,3\n")
        assert read(tmp_path / "t.csv", TEXT)[1].tolist() == [[0, 8, 2, 3]]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "holds no row of numbers"),
            ("a,b,c\n", "holds no row of numbers"),
            ("1,2\n", "line 1: must have 3 columns.*no target, got 2"),
            ("1,2,3\n1,2,3,4\n", "line 2: must have 3 columns.*got 4"),
            ("1;2;3\n", "separated by commas, got '1;2;3'"),
            ("age,sex,bmi\n1,male,3\n", "line 2, column sex: must be a number, got 'male'"),
            ("1,2,3\n1,,3\n", "line 2, column 2: must be a number, got ''"),
            ("1,2,3\nnan,2,3\n", "NaN or infinity in sample 1"),
            ("1,2,1e999\n", "NaN or infinity in sample 0"),
            ("1,2,1e300\n", "NaN or infinity in sample 0"),
        ],
    )
    def test_what_is_refused(self, tmp_path, text, message):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(DataError, match=message) as caught:
            read(tmp_path / "t.csv", TABLE)
        assert str(tmp_path / "t.csv") in str(caught.value)

    def test_what_is_no_text(self, tmp_path):
        (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00\x01,2,3")
        with pytest.raises(DataError, match=r"cannot be read as .csv"):
            read(tmp_path / "t.csv", TABLE)


class TestArrays:
    @pytest.mark.parametrize(
        ("task", "array", "expected"),
        [
            (TABLE, np.arange(6.0).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
            (TABLE, np.arange(3), [[0, 1, 2]]),
            (TEXT, np.array([[0, 1, 8, 3]], dtype=np.int32), [[0, 1, 8, 3]]),
            (GREY, np.full((1, 2, 3), 7, np.uint8), [[[[7] * 3] * 2]]),
            (GREY, np.full((2, 2, 3), 7, np.int64), [[[[7] * 3] * 2]] * 2),
            (GREY, np.full((1, 1, 2, 3), 7.0), [[[[7] * 3] * 2]]),
        ],
    )
    def test_of_samples_or_of_one(self, tmp_path, task, array, expected):
        np.save(tmp_path / "a.npy", array)
        inputs = read(tmp_path / "a.npy", task)[1]
        assert inputs.tolist() == expected
        assert str(inputs.dtype) == f"torch.{task.input_type}"

    @pytest.mark.parametrize(
        ("task", "array", "message"),
        [
            (TABLE, np.zeros((2, 4)), r"shape \(samples, 3\), got \(2, 4\)"),
            (TABLE, np.zeros(()), r"got \(\)"),
            (TABLE, np.zeros((0, 3)), "holds no sample"),
            (TABLE, np.array(["a", "b", "c"]), "array of numbers, got <U1"),
            (TABLE, np.zeros(3, complex), "array of numbers, got complex128"),
            (TABLE, np.array([1, np.nan, 2]), "NaN or infinity in sample 0"),
            (TEXT, np.array([[0, 1, 9, 3]]), "tokens must be whole numbers in 0..8.*from 0 to 9"),
            (TEXT, np.array([[0, 1, -1, 3]]), "from -1 to 3"),
            (TEXT, np.array([[0, 1, 1.5, 3]]), "whole numbers"),
            (GREY, np.full((1, 1, 2, 3), 0.5), "pixels must be whole numbers in 0..255"),
            (GREY, np.full((1, 1, 2, 3), 256), "from 256 to 256"),
            (GREY, np.full((1, 1, 2, 3), np.nan), "whole numbers"),
            (DIGITS, np.full((1, 1, 2, 3), 17), "in 0..16, as in training, got values from 17"),
        ],
    )
    def test_what_is_refused(self, tmp_path, task, array, message):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(DataError, match=message):
            read(tmp_path / "a.npy", task)

    def test_objects_are_never_unpickled(self, tmp_path):
        np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match="cannot be read as an array"):
            read(tmp_path / "a.npy", TABLE)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
    def test_what_is_no_array(self, tmp_path, content):
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"a.npy"):
            read(tmp_path / "a.npy", TABLE)


def save(path, pixels, mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).convert(mode).save(path)


class TestPictures:
    def test_one_of_them(self, tmp_path):
        save(tmp_path / "a.png", [[1, 2, 3], [4, 5, 6]])
        names, inputs = read(tmp_path / "a.png", GREY)
        assert names == ["a.png"]
        assert inputs.tolist() == [[[[1, 2, 3], [4, 5, 6]]]]

    def test_a_folder_flat_or_not(self, tmp_path):
        for number, name in enumerate(
            ("b.png", "a.png", "cats/z.bmp", "dogs/y.png", ".hidden/n.png")
        ):
            save(tmp_path / name, np.full((2, 3), number))
        (tmp_path / "notes.txt").write_text("not a picture")
        names, inputs = read(tmp_path, GREY, batch_size=3)
        assert names == ["a.png", "b.png", "cats/z.bmp", "dogs/y.png"]
        assert inputs[:, 0, 0, 0].tolist() == [1, 0, 2, 3]

    def test_grey_ones_for_a_model_of_colours(self, tmp_path):
        save(tmp_path / "a.png", np.full((2, 3), 9))
        assert read(tmp_path, COLOUR)[1].tolist() == [[[[9] * 3] * 2] * 3]

    def test_they_are_resized_only_if_the_run_did(self, tmp_path):
        save(tmp_path / "a.png", np.full((4, 4), 9))
        with pytest.raises(DataError, match=r"a.png is 4x4, but the model was trained on 2x3"):
            read(tmp_path, GREY)
        assert read(tmp_path, GREY, image_size=(2, 3))[1].tolist() == [[[[9] * 3] * 2]]

    @pytest.mark.parametrize(
        ("task", "message"),
        [
            (TABLE, r"not trained on pictures but on float32 samples of shape \(3,\)"),
            (FLOAT_IMAGES, "not trained on pictures but on float32"),
            (DIGITS, "in 0..16, as in training, got values from 200"),
        ],
    )
    def test_for_a_model_that_does_not_take_them(self, tmp_path, task, message):
        save(tmp_path / "a.png", np.full((2, 3), 200))
        with pytest.raises(DataError, match=message):
            read(tmp_path, task)

    def test_colour_for_a_model_of_greys(self, tmp_path):
        save(tmp_path / "a.png", np.full((2, 3), 9), mode="RGB")
        with pytest.raises(DataError, match=r"a.png is a colour picture"):
            read(tmp_path, GREY)

    @pytest.mark.parametrize("task", [GREY, COLOUR])
    def test_more_than_eight_bits_a_channel(self, tmp_path, task):
        Image.fromarray(np.full((2, 3), 40_000, dtype=np.uint16)).save(tmp_path / "a.png")
        with pytest.raises(DataError, match=r"a.png has the pixel type I;16"):
            read(tmp_path, task)

    @pytest.mark.parametrize("content", [b"", b"no picture", None])
    def test_damaged_ones(self, tmp_path, content):
        save(tmp_path / "a.png", np.arange(6).reshape(2, 3))
        whole = (tmp_path / "a.png").read_bytes()
        (tmp_path / "a.png").write_bytes(whole[:50] if content is None else content)
        with pytest.raises(DataError, match=r"a.png cannot be read as a picture"):
            read(tmp_path, GREY)

    def test_none_at_all(self, tmp_path):
        with pytest.raises(DataError, match="holds no picture"):
            read(tmp_path, GREY)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.csv", "there is no such file or folder"),
        ("notes.txt", r"must be a folder, .npy, .csv or a picture .*got .txt"),
        ("Makefile", "got no ending"),
    ],
)
def test_other_files(tmp_path, name, message):
    for written in ("notes.txt", "Makefile"):
        (tmp_path / written).write_text("1,2,3")
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, TABLE)
