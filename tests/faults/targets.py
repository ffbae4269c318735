"""What the fuzzer calls: each target damages one real file and lets the program read it."""

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import tomllib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
from annealtune.studies.listing import list_directory

from annealtune.errors import AnnealtuneError, printable
from annealtune.studies.plan import make_plan
from annealtune.studies.records import read_lone_run, read_study
from annealtune.training import load, run
from annealtune.training.config import assign, from_values, read_toml
from annealtune.training.data import cifar10, fashion_mnist, image_folder
from annealtune.training.data.download import PublishedFile
from annealtune.training.describe import describe_run
from annealtune.training.input_files import read_inputs
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.seal import sealed_text, unsealed
from annealtune.training.task import Task

from .mutations import damage_bytes, damage_data, damage_json, damage_toml
from .seeds import METHODS, NUMBERS, UNFINISHED, archive, idx, packed, picture, published

EXPERIMENTS = Path(__file__).parents[2] / "src" / "annealtune" / "experiments"
RECORDS = ("metrics.jsonl", "moves.jsonl", "result.json", "best.json", "task.json", "config.toml")


def _damage(random: Random, path: Path) -> None:
    content = path.read_bytes()
    if path.suffix == ".toml":
        content = damage_toml(random, content, tomllib.loads)
    elif path.suffix in (".json", ".jsonl"):
        content = damage_json(random, content)
    else:
        content = damage_bytes(random, content)
    path.write_bytes(content)


def _damaged_run(random: Random, seeds: Path, place: Path, names: Sequence[str]) -> Path:
    target = place / "run"
    shutil.copytree(seeds / "runs" / random.choice([*METHODS, *UNFINISHED]), target)
    kind = random.random()
    if kind < 0.6:
        _unseal(target)
    elif kind < 0.8:
        _forge(random, random.choice([*target.glob("seal.json"), *target.glob("*/step-*.json")]))
        return target
    for _ in range(random.choice([1, 1, 2])):
        _damage(random, random.choice([target / n for n in names if (target / n).exists()]))
    return target


def _unseal(run: Path) -> None:
    """Make a run one of an earlier version, which had no seal: else every change is noticed."""
    (run / "seal.json").unlink(missing_ok=True)
    shutil.rmtree(run / "checkpoints")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("\nseal = 2\n", "\n"))


def _forge(random: Random, path: Path) -> None:
    """Change what a seal or a manifest says, with a digest that fits."""
    facts = damage_data(random, unsealed(path.read_bytes(), path.name))
    if isinstance(facts, dict):
        with contextlib.suppress(TypeError, ValueError, RecursionError):  # nothing that JSON knows
            path.write_bytes(sealed_text(facts))


def config(random: Random, seeds: Path, place: Path) -> None:
    """From a TOML file or an assignment to a config and back, and to the plan of a study."""
    files = [*sorted(EXPERIMENTS.glob("*.toml")), *sorted((seeds / "runs").glob("*/config.toml"))]
    path = place / "experiment.toml"
    path.write_bytes(random.choice(files).read_bytes())
    _damage(random, path)
    values = read_toml(path)
    if random.random() < 0.2:
        text = f"sgd.lr={random.choice(['[' * 500, '9' * 5000, '1e999', '{}', '', '{ low = 0 }'])}"
        assign(values, damage_bytes(random, text.encode()).decode(errors="replace"))
    try:
        found = from_values(values, str(path))
    except AnnealtuneError:
        make_plan(values, name="fuzzed")
        raise
    again = from_values(tomllib.loads(found.to_toml()))
    assert again.to_toml() == found.to_toml()
    make_plan(values, name="fuzzed")


def records(random: Random, seeds: Path, place: Path) -> None:
    """What a run has written, and its model."""
    path = _damaged_run(random, seeds, place, [*RECORDS, "best.safetensors"])
    if random.random() < 0.3:
        _renew_digest(path)
    list_directory(place)
    read_lone_run(path)
    directory = RunDirectory(path)
    for read in (directory.metrics.read, directory.moves.read, directory.result, directory.task):
        read()
    load(path)


def _renew_digest(path: Path) -> None:
    """Make the digest of the weights right again, as somebody would who has changed them."""
    try:
        facts = json.loads((path / "best.json").read_bytes())
        facts["sha256"] = hashlib.sha256((path / "best.safetensors").read_bytes()).hexdigest()
        (path / "best.json").write_text(json.dumps(facts))
    except (ValueError, TypeError, RecursionError):  # best.json is what is damaged
        return


def manifest(random: Random, seeds: Path, place: Path) -> None:
    """A checkpoint and its manifest, and a run that goes on from it."""
    path = place / "run"
    shutil.copytree(seeds / "runs" / random.choice([*UNFINISHED]), path)
    checkpoints = path / "checkpoints"
    stem = sorted(checkpoints.glob("*.json"))[-1]
    facts = unsealed(stem.read_bytes(), stem.name)
    weights = checkpoints / facts["file"]
    kind = random.randrange(4)
    if kind == 0:
        _damage(random, stem)
    elif kind == 3:
        _forge(random, stem)
    elif kind == 1:
        _damage(random, weights)
    else:  # whole, with the right digest, but not what a run has saved
        try:
            content = _saved(damage_data(random, torch.load(weights, weights_only=True)))
        except RecursionError:  # deeper than torch can write
            content = b""
        if random.random() < 0.2:
            content = damage_bytes(random, content)
        digest = hashlib.sha256(content).hexdigest()
        facts |= {"bytes": len(content), "sha256": digest}
        facts["file"] = f"{stem.stem}-{digest[:12]}.pt"
        (checkpoints / facts["file"]).write_bytes(content)
        stem.write_bytes(sealed_text(facts))
    run(read_config(path), path)


def read_config(path: Path) -> object:
    """The config of a run."""
    return RunDirectory(path).config()


def _saved(state: object) -> bytes:
    target = io.BytesIO()
    torch.save(state, target)
    return target.getvalue()


def study(random: Random, seeds: Path, place: Path) -> None:
    """The directory of a study."""
    path = _damaged_study(random, seeds, place)
    list_directory(place)
    read_study(path)


def _damaged_study(random: Random, seeds: Path, place: Path) -> Path:
    path = place / "study"
    shutil.copytree(seeds / "study", path)
    if random.random() < 0.6:
        for run in (path / "runs").iterdir():
            _unseal(run)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    _damage(random, random.choice([path / "study.toml", path / "study.toml", *files]))
    return path


def inspect(random: Random, seeds: Path, place: Path) -> None:
    """``annealtune inspect``, and ``list``."""
    path = _damaged_run(random, seeds, place, RECORDS)
    for entry in list_directory(place).entries:
        json.dumps(entry.to_dict())
    for name, value in describe_run(path):
        printable(f"{name} {value}").encode()


def report(random: Random, seeds: Path, place: Path) -> None:
    """``annealtune report`` of a run or a study."""
    from annealtune.studies.report.run_page import write_run_report
    from annealtune.studies.report.study_page import write_report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matplotlib says of numbers is not a page
        if random.random() < 0.6:
            path = _damaged_run(random, seeds, place, RECORDS)
            page = write_run_report(read_lone_run(path), figures=False)
        else:
            page = write_report(read_study(_damaged_study(random, seeds, place)), figures=False)
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def data(random: Random, seeds: Path, place: Path) -> None:
    """Every reader of data, past the digest where there is one."""
    random.choice([_fashion, _cifar, _pictures, _pictures, _pictures, _array, _array, _table])(
        random, place
    )


def _fashion(random: Random, place: Path) -> None:
    contents = {
        "train-images": idx(np.zeros((12, 28, 28))),
        "train-labels": idx(np.arange(12) % 10),
        "test-images": idx(np.zeros((5, 28, 28))),
        "test-labels": idx(np.arange(5)),
    }
    name = random.choice(list(contents))
    inside = random.random() < 0.7
    if inside:
        contents[name] = damage_bytes(random, contents[name])
    gz = {key: packed(content) for key, content in contents.items()}
    if not inside:
        gz[name] = damage_bytes(random, gz[name])
    files = [published(place / key, content) for key, content in gz.items()]
    fashion_mnist.load(place, files=files)


def _cifar(random: Random, place: Path) -> None:
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    batch = bytes(range(256)) * 13
    batches = dict.fromkeys(names, batch[: cifar10.RECORD])
    tar = damage_bytes(random, archive({f"x/{name}": batches[name] for name in names}))
    content = gzip.compress(tar) if random.random() < 0.8 else damage_bytes(random, packed(tar))
    parts = tuple(
        PublishedFile(name, f"sha256:{hashlib.sha256(batches[name]).hexdigest()}") for name in names
    )
    whole = published(place / "cifar-10-binary.tar.gz", content)
    cifar10.load(place, publication=cifar10.Publication(whole, parts))


def _pictures(random: Random, place: Path) -> None:
    ending = random.choice(["png", "jpg", "bmp", "webp"])
    content = picture(ending)
    for label in ("cat", "dog"):
        (place / label).mkdir()
        for number in range(4):
            (place / label / f"{number}.{ending}").write_bytes(content)
    (place / "cat" / f"0.{ending}").write_bytes(damage_bytes(random, content))
    size = random.choice([None, (8, 8), (3, 5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of pictures that it reads all the same
        image_folder.load(place, image_size=size)


def _array(random: Random, place: Path) -> None:
    target = io.BytesIO()
    np.save(target, np.zeros((3, 4), random.choice(["f4", "f8", "i8", "u1", "?", "c8", "U3"])))
    (place / "x.npy").write_bytes(damage_bytes(random, target.getvalue()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(read_inputs(place / "x.npy", _task(random), 2))


def _table(random: Random, place: Path) -> None:
    text = "a,b,c,d\n1,2,3,4\n5,6,7.5,8\n"
    (place / "x.csv").write_bytes(damage_bytes(random, text.encode()))
    list(read_inputs(place / "x.csv", _task(random), 2))


def _task(random: Random) -> Task:
    if random.random() < 0.5:
        return NUMBERS
    return Task("tokens", (4,), "int64", (4, 9), vocabulary=9)


TARGETS: dict[str, Callable[[Random, Path, Path], None]] = {
    "config": config,
    "records": records,
    "manifest": manifest,
    "study": study,
    "data": data,
    "inspect": inspect,
    "report": report,
}
