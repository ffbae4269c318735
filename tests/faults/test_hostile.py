"""Files and words that were made to harm: refused with an error of ours, nothing executed."""

import contextlib
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import socket
import struct
import sys
import tarfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from annealtune import cli
from annealtune.errors import AnnealtuneError, ConfigError, DataError, RunError, printable
from annealtune.studies.records import read_lone_run, read_study
from annealtune.studies.report.run_page import write_run_report
from annealtune.training import load, run
from annealtune.training.config import assign, from_values, read_toml
from annealtune.training.data import cifar10, fashion_mnist, image_folder
from annealtune.training.data import load as load_data
from annealtune.training.data.download import fetch
from annealtune.training.data.published import PublishedFile
from annealtune.training.describe import describe_run
from annealtune.training.input_files import read_inputs
from annealtune.training.plain_data import parse_json, parse_toml
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.seal import sealed_text, unsealed
from annealtune.training.task import Task

from .seeds import archive, idx, make_runs, make_study, packed, picture

ESCAPE = "\x1b[31mred\x07\x9b2J"
NUMBERS = Task("regression", (4,), "float32", (1,))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_runs(folder / "runs")
    make_study(folder / "study", folder / "runs")
    return folder


@pytest.fixture
def unfinished(made, tmp_path):
    return Path(shutil.copytree(made / "runs" / "unfinished", tmp_path / "run"))


@pytest.fixture
def finished(made, tmp_path):
    return Path(shutil.copytree(made / "runs" / "sgd-sa", tmp_path / "run"))


def published(path: Path, content: bytes) -> PublishedFile:
    path.write_bytes(content)
    return PublishedFile(path.name, f"sha256:{hashlib.sha256(content).hexdigest()}")


# --- Nothing is executed ---


class Creates:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def canary(tmp_path):
    """The file that code in a pickle would make, and that pickle."""
    path = tmp_path / "canary"
    poison = pickle.dumps(Creates(path))
    pickle.loads(poison)
    assert path.exists()  # else the tests below could not fail
    path.unlink()
    return path, poison


def as_array(poison, _, folder):
    target = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        target, {"descr": "|O", "fortran_order": False, "shape": (1,)}
    )
    (folder / "x.npy").write_bytes(target.getvalue() + poison)
    list(read_inputs(folder / "x.npy", NUMBERS, 2))


def as_checkpoint(poison, run_dir, _):
    """With the right digest: whoever can write the one can write the other."""
    [manifest, *_] = sorted((run_dir / "checkpoints").glob("*.json"), reverse=True)
    digest = hashlib.sha256(poison).hexdigest()
    facts = json.loads(manifest.read_text()) | {"bytes": len(poison), "sha256": digest}
    facts["file"] = f"{manifest.stem}-{digest[:12]}.pt"
    (run_dir / "checkpoints" / facts["file"]).write_bytes(poison)
    for other in (run_dir / "checkpoints").glob("*.json"):
        other.unlink()
    manifest.write_text(json.dumps(facts))
    run(RunDirectory(run_dir).config(), run_dir, stop=StopRequest(after_epoch=1))


def as_weights(poison, run_dir, _):
    facts = json.loads((run_dir / "best.json").read_text())
    (run_dir / "best.safetensors").write_bytes(poison)
    facts["sha256"] = hashlib.sha256(poison).hexdigest()
    (run_dir / "best.json").write_text(json.dumps(facts))
    load(run_dir)


def as_record(poison, run_dir, _):
    (run_dir / "metrics.jsonl").write_bytes(poison + b"\n")
    describe_run(run_dir)


def as_config(poison, run_dir, _):
    (run_dir / "config.toml").write_bytes(poison)
    describe_run(run_dir)


def as_cifar(poison, _, folder):
    (folder / "cifar-10-batches-py").mkdir()
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(poison)
    load_data("cifar10", data_dir=folder)


def as_picture(poison, _, folder):
    picture_folder(folder, poison)
    image_folder.load(folder)


READERS = [as_array, as_checkpoint, as_weights, as_record, as_config, as_cifar, as_picture]


@pytest.mark.parametrize("form", ["pickle", "torch"])
@pytest.mark.parametrize("read", READERS)
def test_a_pickle_is_never_unpickled(read, form, canary, unfinished, tmp_path):
    path, poison = canary
    if form == "torch":
        target = io.BytesIO()
        torch.save({"format": 1, "model": Creates(path)}, target)
        poison = target.getvalue()
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(AnnealtuneError):
        read(poison, unfinished, folder)
    assert not path.exists()


def test_a_factory_is_code_by_intent(tmp_path, monkeypatch):
    """What ``package.module:factory`` names is run: that is what it is for, and documented."""
    (tmp_path / "chosen_code.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = from_values({"data": "chosen_code:factory"})  # checked, not imported
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="has no 'factory'"):
        load_data(config.data)
    assert (tmp_path / "ran").exists()
    security = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    assert "package.module:factory" in security


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


def picture_folder(folder: Path, content: bytes | None) -> Path:
    """Two classes of good pictures, and one that is given."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(4):
            (folder / label / f"{number}.png").write_bytes(picture("png"))
    if content is not None:
        (folder / "cat" / "0.png").write_bytes(content)
    return folder


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


# --- TOML and JSON ---

TOMLS = {
    "deep lists": "x = " + "[" * 100_000,
    "deep lists that end": "x = " + "[" * 300 + "]" * 300,
    "deep tables": "x = " + "{a = " * 50_000,
    "a long key": ".".join("a" * 300_000) + " = 1",
    "a long key in a table": "x = { " + ".".join("a" * 300_000) + " = 1 }",
    "a long header": "[" + ".".join("a" * 300_000) + "]",
    "a long number": "epochs = " + "9" * 5000,
    "a number of 65 bits": f"epochs = {2**64}",
    "many tables": "".join(f"[t{number}]\n" for number in range(100_000)),
    "many keys": "".join(f"k{number} = 1\n" for number in range(100_000)),
    "a megabyte": f'x = "{"y" * 5_000_000}"',
    "a long word": f'method = "{"y" * 1_000_000}"',
    "a NUL": 'data = "a\\u0000b"',
    "no text": "\udcff\udcfe",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", TOMLS)
def test_toml_bombs(tmp_path, name):
    path = tmp_path / "x.toml"
    path.write_bytes(TOMLS[name].encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        from_values(read_toml(path), str(path))
    assert len(str(caught.value)) < 11_000


def test_of_many_faults_ten_are_told_and_the_others_counted():
    with pytest.raises(ConfigError, match=r"\.\.\. and 15 more$") as caught:
        from_values({f"k{number}": 1 for number in range(25)})
    assert str(caught.value).count("unknown key") == 10


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, "1e999"])
def test_an_assignment_that_is_a_bomb(value):
    values = {}
    assign(values, f"sgd.lr={value}")
    with pytest.raises(ConfigError):
        from_values({**values, "method": "sgd"})


JSONS = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 40 + b"]" * 40,
    b"9" * 5000,
    b"%d" % 2**64,
    b"1e999",
    b"NaN",
    b'"\\ud800"',
    b'"a\\u0000b"',
    b"\xff",
    b"",
]


@pytest.mark.parametrize("content", JSONS)
def test_json_bombs_are_value_errors(content):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(content)


@pytest.mark.parametrize("content", [*JSONS, b"{}", b"[]"])
@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("result.json", describe_run),
        ("metrics.jsonl", describe_run),
        ("moves.jsonl", describe_run),
        ("best.json", load),
        ("task.json", load),
    ],
)
def test_records_that_are_bombs(finished, content, file, read):
    (finished / file).write_bytes(content + b"\n")
    with pytest.raises(RunError, match=file.replace(".", r"\.")):
        read(finished)


@pytest.mark.parametrize("content", JSONS)
def test_manifests_that_are_bombs(unfinished, content):
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        manifest.write_bytes(content)
    with pytest.raises(RunError, match="no checkpoint can be used"):
        RunDirectory(unfinished).checkpoints.load(lambda _: None)


@pytest.mark.parametrize("file", ["../../secret", "/etc/hostname", "a\x1bb"])
def test_a_manifest_that_names_another_file(unfinished, file):
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        facts = unsealed(manifest.read_bytes(), manifest.name)
        manifest.write_bytes(sealed_text({**facts, "file": file}))
    with pytest.raises(RunError, match=r"outside of the checkpoints|is missing"):
        RunDirectory(unfinished).load(lambda _: None)


FORGED = {
    "epoch: must be an integer, got '1'": {"epoch": "1"},
    "config: must be TOML: ": {"config": "[["},
    "config: must be a string, got None": {"config": None},
    "files: must be a table, got 3": {"files": 3},
    "must seal metrics.jsonl, moves.jsonl, task.json too": {"files": {}},
    "must match ^[a-z]+": {"files": {"../../secret.json": [0, ""]}},
    "files.task.json: must be a list, got 'x'": {"files": {"task.json": "x"}},
    "best.epoch: must be there": {"best": {}},
    "more: must not be there, got 1": {"more": 1},
}


@pytest.mark.parametrize("rule", FORGED)
def test_a_seal_with_the_right_digest_that_is_none(finished, unfinished, rule):
    path = finished / "seal.json"
    path.write_bytes(sealed_text({**unsealed(path.read_bytes(), path.name), **FORGED[rule]}))
    with pytest.raises(RunError, match=f"seal.json is damaged: .*{re.escape(rule)}"):
        describe_run(finished)
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        facts = {**unsealed(manifest.read_bytes(), manifest.name), **FORGED[rule]}
        manifest.write_bytes(sealed_text(facts))
    for read in (describe_run, lambda path: RunDirectory(path).load(lambda _: None)):
        with pytest.raises(RunError, match=f"step-.* is damaged: .*{re.escape(rule)}"):
            read(unfinished)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("file", ["metrics.jsonl", "result.json", "task.json"])
def test_a_pipe_in_place_of_a_record_is_not_waited_for(finished, file):
    (finished / file).unlink()
    os.mkfifo(finished / file)
    with pytest.raises(RunError, match="is not a file"):
        describe_run(finished) if file != "task.json" else load(finished)


def test_what_is_plain_passes():
    text = "a = [1, 2.5, inf]\n[b.c]\nd = 'x'\nf = 9223372036854775807\n"
    assert parse_toml(text)["b"]["c"]["f"] == 2**63 - 1
    assert parse_json(b'{"a": [1, null, "\\u00e9"]}') == {"a": [1, None, "é"]}


# --- Names, words and messages ---


def outcome(monkeypatch, capfd, *words: str) -> tuple[int, str]:
    """Run the program; return its code and all that it wrote."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["annealtune", *words])
    code = cli._run(list(words), debug=False)
    written = capfd.readouterr()
    return code, written.out + written.err


@pytest.mark.parametrize("place", ["before", "after"])
def test_no_message_steers_the_terminal(monkeypatch, capfd, tmp_path, made, place):
    monkeypatch.chdir(tmp_path)
    name = f"{ESCAPE}-run" if place == "before" else f"run-{ESCAPE}"
    shutil.copytree(made / "runs" / "sgd-sa", name)
    shutil.copytree(made / "study", f"study-{ESCAPE}")
    Path(f"skip-{ESCAPE}").mkdir()
    commands = [
        ("inspect", name),
        ("inspect", f"none-{ESCAPE}"),
        ("list", "."),
        ("list", f"study-{ESCAPE}"),
        ("report", name, "--no-figures"),
        ("train", f"none-{ESCAPE}.toml"),
        ("train", "--data", ESCAPE),
        ("train", "--data", "image-folder", "--data-dir", ESCAPE, "--out", name + "-2"),
        ("train", "--set", f"{ESCAPE}=1"),
        ("study", "--methods", ESCAPE),
        ("train", f"--{ESCAPE}"),
        (ESCAPE,),
        ("predict", name, ESCAPE),
    ]
    for words in commands:
        _, text = outcome(monkeypatch, capfd, *words)
        assert text, words
        assert text == printable(text), words
        assert "red" in text, words


def test_names_of_class_folders_are_spelled_out(tmp_path):
    picture_folder(tmp_path / "train", None)
    for name in ("cat", f"dog{ESCAPE}"):
        (tmp_path / "test" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="same classes") as caught:
        image_folder.load(tmp_path)
    assert "\x1b" not in str(caught.value)


def test_a_status_line_of_a_server_is_spelled_out(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 500 \x1b[31mred\x07\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(DataError, match=r"\\x1b\[31mred\\x07") as caught:
            fetch(PublishedFile("x", "sha256:0", url, 10), tmp_path)
        thread.join()
    assert "\x1b" not in str(caught.value)


def test_a_label_of_a_study_is_spelled_out_and_leads_nowhere(made, tmp_path):
    study = Path(shutil.copytree(made / "study", tmp_path / "study"))
    text = (study / "study.toml").read_text()
    (study / "study.toml").write_text(text.replace('"sgd-sa"', r'"../../\u001b[31m<script>"', 1))
    read = read_study(study)
    assert all(run.path.parent == study / "runs" for run in read.runs)


@pytest.mark.parametrize("seed", [2**63, "9" * 4000])
def test_a_seed_that_is_too_long(made, tmp_path, seed):
    study = Path(shutil.copytree(made / "study", tmp_path / "study"))
    text = (study / "study.toml").read_text()
    (study / "study.toml").write_text(text.replace("    0,\n", f"    {seed},\n", 1))
    with pytest.raises(ConfigError, match="64 bits"):
        read_study(study)


def test_html_in_names_is_text_on_a_page(finished, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    folder = tmp_path / evil
    shutil.copytree(finished, folder)
    (folder / "seal.json").unlink()  # as a run of an earlier version, so that it can be edited
    shutil.rmtree(folder / "checkpoints")
    config = (folder / "config.toml").read_text().replace("\nseal = 2\n", "\n")
    config = config.replace('method = "sgd-sa"', f'method = "{evil}"')
    (folder / "config.toml").write_text(config.replace('"digits"', f'"{evil}"'))
    page = write_run_report(read_lone_run(folder), tmp_path / "page", figures=False)
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "&lt;img" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--out="], "--out: must not be empty"),
        (["train", "--out", ""], "--out: must not be empty"),
        (["inspect", ""], "an argument: must not be empty"),
        (["train", "--out", os.fsdecode(b"a\xff")], r"'a\udcff': must be UTF-8"),
        (["inspect", os.fsdecode(b"a\xff")], r"'a\udcff': must be UTF-8"),
        (["train", "--pad", "4096"], "pad: "),
        (["train", "--model", "x" * 100_000], "letters more"),
        (["train", "--out", "y" * 5000], "name too long"),
        (["inspect", "y" * 5000], "name too long"),
        (["train", "--set", "=" * 5000], "must be KEY=VALUE"),
    ],
)
def test_words_that_are_refused(monkeypatch, capfd, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    code, text = outcome(monkeypatch, capfd, *words)
    assert code in (1, 2)
    assert message.lower() in text.lower()
    assert len(text) < 11_000
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_any_length_is_short_and_printable():
    text = str(RunError(f"{ESCAPE}{'x' * 1_000_000}\u202e"))
    assert len(text) < 11_000
    assert text == printable(text)
    with contextlib.suppress(RunError):
        raise RunError("short")
    assert str(RunError("as it is\n\tline")) == "as it is\n\tline"
