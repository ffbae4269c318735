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


def test_a_file_arrives_whole_and_progress_is_told(server, file, tmp_path) -> None:
    told = []
    target = fetch(file, tmp_path / "new" / "folder", lambda *news: told.append(news))
    assert target.read_bytes() == server.content
    assert told[-1] == ("big.bin", 3_000_000, 3_000_000)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert not target.with_name("big.bin.part").exists()


def test_a_file_that_is_there_is_not_fetched_again(server, file, tmp_path) -> None:
    fetch(file, tmp_path)
    fetch(file, tmp_path)
    assert server.requests == [None]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_stopped_is_resumed(server, file, tmp_path, ranges: bool) -> None:
    server.stop_at = 1_200_000
    with pytest.raises(DataError, match="1,200,000 of 3,000,000 bytes; run the same command again"):
        fetch(file, tmp_path)
    assert not (tmp_path / "big.bin").exists()
    assert (tmp_path / "big.bin.part").stat().st_size == 1_200_000

    server.stop_at, server.ranges = None, ranges
    told = []
    target = fetch(file, tmp_path, lambda *news: told.append(news[1]))
    assert target.read_bytes() == server.content
    assert server.requests[1] == "bytes=1200000-"
    assert (told[0] > 1_200_000) is ranges


def test_a_wrong_digest_is_refused_and_nothing_is_kept(server, file, tmp_path) -> None:
    right, server.content = server.content, b"?" + server.content[1:]
    found = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(
        DataError, match=f"expected {file.digest}, found sha256:{found}; what arrived was del"
    ):
        fetch(file, tmp_path)
    assert not (tmp_path / "big.bin").exists()
    assert not (tmp_path / "big.bin.part").exists()
    server.content = right
    assert fetch(file, tmp_path).read_bytes() == right


def test_a_server_that_sends_without_end_does_not_fill_the_disk(server, file, tmp_path) -> None:
    server.content += b"!" * 5_000_000
    seen = []
    with pytest.raises(DataError, match="expected sha256:"):
        fetch(file, tmp_path, lambda *news: seen.append(news[1]))
    assert max(seen) == 3_000_001


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
    assert server.requests == [None]
