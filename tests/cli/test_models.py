"""The commands predict and export."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

TRAINING = Path(__file__).parents[1] / "training"


@pytest.fixture
def trained(annealtune, monkeypatch):
    """A run on a table, in the working directory."""
    monkeypatch.syspath_prepend(TRAINING)
    flags = ["--data", "own_factories:table", "--model", "mlp-w16", "--epochs", 1]
    code, out, err = annealtune("train", *flags, "--out", "run")
    assert code == 0, err
    assert out.startswith("test loss ")
    assert "accuracy" not in out + err
    np.save("new.npy", np.ones((3, 4)))
    yield "run"
    sys.modules.pop("own_factories", None)


class TestPredict:
    def test_writes_a_table(self, annealtune, trained):
        assert annealtune("predict", trained, "new.npy") == (
            0,
            "3 predictions: predictions.csv\n",
            "",
        )
        with Path("predictions.csv").open() as file:
            rows = list(csv.reader(file))
        assert rows[0] == ["input", "value"]
        assert len(rows) == 4
        assert rows[1][1] == rows[2][1] == rows[3][1]

    def test_pictures_are_resized_as_in_training(self, annealtune, refused):
        for part, count in (("train", 8), ("test", 2)):
            for name, grey in (("dark", 10), ("bright", 240)):
                Path(f"pictures/{part}/{name}").mkdir(parents=True)
                for number in range(count):
                    picture = Image.new("L", (10 + number, 12), grey + number)
                    picture.save(f"pictures/{part}/{name}/{number}.png")
        flags = ["--data", "image-folder", "--data-dir", "pictures", "--model", "small-cnn-w8"]
        flags += ["--image-size", 8, 8, "--epochs", 20, "--batch-size", 4, "--out", "run"]
        code, _, err = annealtune("train", *flags)
        assert code == 0, err
        Path("pictures").rename("moved")  # the run's data is not needed
        assert annealtune("predict", "run", "moved/test")[1] == "4 predictions: predictions.csv\n"
        with Path("predictions.csv").open() as file:
            rows = {row["input"]: row["class"] for row in csv.DictReader(file)}
        assert rows == {f"{name}/{n}.png": name for name in ("bright", "dark") for n in range(2)}
        Path("moved/test/dark/0.png").write_bytes(b"damaged")
        text = refused("predict", "run", "moved/test", "--force", code=1)
        assert "dark/0.png cannot be read as a picture" in text

    def test_overwrites_only_if_told(self, annealtune, refused, trained):
        Path("mine.csv").write_text("keep")
        flags = ["predict", trained, "new.npy", "--out", "mine.csv"]
        assert "must not overwrite mine.csv; take --force" in refused(*flags)
        assert Path("mine.csv").read_text() == "keep"
        assert annealtune(*flags, "--force", "--batch-size", 2)[0] == 0
        assert Path("mine.csv").read_text().startswith("input,value\n")

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["run", "missing.npy"], 1, "missing.npy: there is no such file or folder"),
            (["nowhere", "new.npy"], 2, "nowhere: is not a run directory"),
            (["run", "new.npy", "--out", "out.txt"], 2, "--out out.txt: must end in .csv"),
            (["run", "new.npy", "--out", "no/such/dir/out.csv"], 1, "out.csv: cannot be written"),
            (["run", "."], 1, "was not trained on pictures"),
        ],
    )
    def test_what_cannot_be_predicted(self, refused, trained, arguments, code, message):
        assert message in refused("predict", *arguments, code=code)

    def test_before_the_first_epoch_has_ended(self, refused, trained):
        for name in ("result.json", "seal.json", "best.json", "best.safetensors", "metrics.jsonl"):
            Path("run", name).unlink()
        for path in Path("run/checkpoints").iterdir():
            path.unlink()
        config = Path("run/config.toml")  # as an earlier version left it
        config.write_text(config.read_text().replace("\nseal = 2\n", "\n"))
        assert "has no best weights yet" in refused("predict", trained, "new.npy", code=1)


class TestExport:
    def test_writes_three_files(self, annealtune, refused, trained):
        code, out, err = annealtune("export", trained)
        assert code == 0, err
        expected = [f"run/export/model.{end}" for end in ("pt2", "safetensors", "json")]
        assert out.split() == expected
        assert all(Path(path).stat().st_size > 0 for path in expected)
        assert "must not overwrite run/export/model.pt2" in refused("export", trained)
        assert annealtune("export", trained, "--force")[0] == 0
        assert annealtune("export", trained, "--out", "elsewhere")[0] == 0

    def test_what_is_no_run(self, refused, tmp_path):
        assert "is not a run directory" in refused("export", "nowhere")


def test_inspect_and_evaluate_know_no_accuracy(annealtune, trained):
    for command in ("inspect", "evaluate"):
        code, out, err = annealtune(command, trained)
        assert code == 0, err
        assert "loss" in out
        assert "accuracy" not in out
