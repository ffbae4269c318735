"""Downloads, against a web server on this machine."""

import hashlib
import threading

import pytest

from annealtune.errors import DataError
from annealtune.training.data.download import PublishedFile, fetch


@pytest.fixture
def file(server) -> PublishedFile:
    digest = hashlib.sha256(server.content).hexdigest()
    return PublishedFile("big.bin", f"sha256:{digest}", f"{server.address}/big.bin", 3_000_000)


def test_a_file_arrives_whole_and_once(server, file, tmp_path) -> None:
    for _ in range(2):
        target = fetch(file, tmp_path / "new" / "folder")
        assert target.read_bytes() == server.content
        assert not target.with_name("big.bin.part").exists()
    assert server.requests == 1


@pytest.mark.parametrize("fault", ["cut", "changed", "endless"])
def test_what_is_not_the_published_file_never_gets_its_name(server, file, tmp_path, fault) -> None:
    right = server.content
    if fault == "cut":
        server.stop_at = 1_200_000
    elif fault == "changed":
        server.content = b"?" + right[1:]
    else:
        server.content = right + b"!" * 5_000_000
    with pytest.raises(DataError, match="run the same command again"):
        fetch(file, tmp_path)
    assert not (tmp_path / "big.bin").exists()
    assert (tmp_path / "big.bin.part").stat().st_size <= 3_000_001  # the disk is not filled
    server.content, server.stop_at = right, None
    assert fetch(file, tmp_path).read_bytes() == right


def test_no_server_at_all(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = PublishedFile("big.bin", "sha256:0", "http://127.0.0.1:9/big.bin", 10)
    with pytest.raises(DataError, match=r"failed: URLError.*run the same command again"):
        fetch(file, tmp_path)


def test_two_at_a_time_fetch_it_once(server, file, tmp_path) -> None:
    threads = [threading.Thread(target=fetch, args=(file, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "big.bin").read_bytes() == server.content
    assert server.requests == 1
