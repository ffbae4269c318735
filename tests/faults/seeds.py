"""Real files to damage: runs, a study, pictures and arrays, made as a user would make them."""

import gzip
import hashlib
import io
import shutil
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tomli_w
from PIL import Image

from annealtune.studies.plan import make_plan
from annealtune.studies.records import run_path
from annealtune.training.config import from_values
from annealtune.training.data.download import PublishedFile
from annealtune.training.storage.provenance import describe_provenance
from annealtune.training.task import Task

TINY = {
    "model": "mlp-w8",
    "train_size": 200,
    "batch_size": 2,
    "epochs": 2,
    "threads": 1,
    "device": "cpu",
}
NUMBERS = Task("regression", (4,), "float32", (1,))
METHODS = ("self-tuned", "sgd-sa")
# Of the second the number of epochs may be raised; the third is left with a state of its own.
UNFINISHED = {"unfinished": "sgd-sa", "unfinished-plain": "sgd", "unfinished-tuned": "self-tuned"}


def make_runs(folder: Path) -> None:
    """Train one run of each method, finished, and two that were left after their first epoch."""
    from annealtune.errors import RunStoppedError
    from annealtune.training import run
    from annealtune.training.stopping import StopRequest

    for method in METHODS:
        run(from_values({**TINY, "method": method, "self-tuned": {}}), folder / method)
    for name, method in UNFINISHED.items():
        try:
            config = from_values({**TINY, "method": method, "batch_size": 20})
            run(config, folder / name, stop=StopRequest(1))
        except RunStoppedError:
            continue
        raise AssertionError("the run did not stop")


def make_seeds(folder: Path) -> Path:
    """Make runs and a study below a folder and return it."""
    make_runs(folder / "runs")
    make_study(folder / "study", folder / "runs")
    return folder


def make_study(folder: Path, runs: Path) -> None:
    """Write the study that the finished runs could come from."""
    plan = make_plan(TINY, name="seeds", command="annealtune study", methods=METHODS, seeds=[0])
    facts = {
        "format": 1,
        "name": plan.name,
        "command": plan.command,
        "vary": plan.vary,
        "seeds": list(plan.seeds),
        "experiment": plan.experiment(),
        "environment": describe_provenance(),
        "methods": [{"label": label, "config": plan.config_of(label)} for label in plan.methods],
    }
    folder.mkdir()
    (folder / "study.toml").write_text(tomli_w.dumps(facts))
    (folder / "search.json").write_text('{"rungs": [{"epochs": 1, "pruned": [3], "kept": [0]}]}')
    for method in METHODS:
        shutil.copytree(runs / method, run_path(folder, method, 0))


def picture(ending: str, size: tuple[int, int] = (8, 8)) -> bytes:
    """Return a small picture in the format of an ending, with text in it where it can have any."""
    from PIL.PngImagePlugin import PngInfo

    target = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    options = {}
    if ending == "png":
        options["pnginfo"] = PngInfo()
        options["pnginfo"].add_text("Comment", "made by hand", zip=True)
    form = {"jpg": "JPEG"}.get(ending, ending.upper())
    Image.fromarray(pixels).save(target, form, **options)
    return target.getvalue()


def idx(array: np.ndarray) -> bytes:
    """Return an array in the format of Fashion-MNIST, not packed."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def packed(content: bytes) -> bytes:
    """Return bytes as a gzip file, the same each time."""
    return gzip.compress(content, mtime=0)


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a tar file that is not packed."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def published(path: Path, content: bytes) -> PublishedFile:
    """Write a file, and return how it would be published."""
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return PublishedFile(path.name, f"sha256:{digest}", "", len(content))


def picture_folder(folder: Path, content: bytes | None) -> Path:
    """Two classes of good pictures, and one that is given."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(4):
            (folder / label / f"{number}.png").write_bytes(picture("png"))
    if content is not None:
        (folder / "cat" / "0.png").write_bytes(content)
    return folder
