"""Tiny data sets in the original formats, the real ones where they are, and a web server."""

import gzip
import hashlib
import io
import os
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annealtune.training.data import cifar10
from annealtune.training.data.download import PublishedFile

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data(tmp_path_factory) -> Path:
    """The real Fashion-MNIST and CIFAR-10, if they are on this machine."""
    if "ANNEALTUNE_DATA" in os.environ:
        return Path(os.environ["ANNEALTUNE_DATA"])
    if not (SHARED / "unpack").exists():
        pytest.skip("the real data is not here: set ANNEALTUNE_DATA to its folder")
    target = tmp_path_factory.mktemp("real")
    subprocess.run([sys.executable, SHARED / "unpack", target], check=True, capture_output=True)
    return target


class Handler(BaseHTTPRequestHandler):
    """Serves ``server.content``, with the faults that the test switched on."""

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.stop_at])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch) -> Iterator[ThreadingHTTPServer]:
    """A web server on the loopback with one file."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content = np.random.default_rng(0).bytes(3_000_000)
    server.requests = 0
    server.stop_at = None
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def published(name: str, content: bytes, url: str = "") -> PublishedFile:
    digest = hashlib.sha256(content).hexdigest()
    return PublishedFile(name, f"sha256:{digest}", f"{url}/{name}", len(content))


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def tiny_fashion() -> tuple[tuple[PublishedFile, ...], dict[str, bytes]]:
    """Twelve training and five test images in Fashion-MNIST's format: what is published, and it."""
    draw = np.random.default_rng(1)
    contents = {
        "train-images-idx3-ubyte.gz": idx(draw.integers(0, 256, (12, 28, 28))),
        "train-labels-idx1-ubyte.gz": idx(np.arange(12) % 10),
        "t10k-images-idx3-ubyte.gz": idx(draw.integers(0, 256, (5, 28, 28))),
        "t10k-labels-idx1-ubyte.gz": idx(np.arange(5)),
    }
    return tuple(published(name, content) for name, content in contents.items()), contents


@pytest.fixture
def tiny_cifar() -> tuple[dict[str, Any], bytes, dict[str, bytes]]:
    """Six batches of four records in CIFAR-10's format: what is published, archive, batches."""
    draw = np.random.default_rng(2)
    records = draw.integers(0, 256, (6, 4, cifar10.RECORD), dtype=np.uint8)
    records[:, :, 0] %= 10
    names = [batch.name for batch in cifar10.BATCHES]
    batches = {name: part.tobytes() for name, part in zip(names, records, strict=True)}
    archive = pack({f"{cifar10.FOLDER}/{name}": content for name, content in batches.items()})
    files = {
        "archive": published("cifar-10-binary.tar.gz", archive),
        "batches": tuple(published(name, content) for name, content in batches.items()),
    }
    return files, archive, batches


def pack(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
