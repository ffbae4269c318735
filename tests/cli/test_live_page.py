"""`annealtune train --open`: the page of a run while it goes on."""

import json
import re
import sys

import pytest

from annealtune.cli.live_page import LivePage
from annealtune.training import run
from annealtune.training.config import from_values
from annealtune.training.progress import Progress

TINY = {"method": "adamw", "model": "mlp", "train_size": 100, "epochs": 3, "threads": 1}
REFRESH = '<meta http-equiv="refresh"'


def without_seconds(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    return [{k: v for k, v in r.items() if not k.endswith("_seconds")} for r in records]


def test_it_is_there_from_the_start_and_refreshes_until_the_end(tmp_path):
    seen = []

    class Looking(Progress):
        def epoch(self, record):
            seen.append((tmp_path / "run" / "report" / "index.html").read_text())

    page = LivePage(Looking(), tmp_path / "run")
    run(from_values(TINY, "test"), tmp_path / "run", progress=page)
    assert len(seen) == 3
    assert all(REFRESH in text for text in seen)
    assert "no epoch is complete yet" in seen[0]
    last = page.page.read_text()
    assert REFRESH not in last
    assert re.search(r"reached \d+\.\d % test accuracy", last)


def test_it_changes_nothing_of_the_run(tmp_path):
    run(from_values(TINY, "test"), tmp_path / "plain")
    run(
        from_values(TINY, "test"),
        tmp_path / "shown",
        progress=LivePage(Progress(), tmp_path / "shown"),
    )
    plain, shown = tmp_path / "plain", tmp_path / "shown"
    assert without_seconds(plain) == without_seconds(shown)
    name = "best.safetensors"
    assert (plain / name).read_bytes() == (shown / name).read_bytes()


def test_a_page_that_cannot_be_written_stops_nothing_and_is_told_once(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report").write_text("in the way")
    page = LivePage(Progress(), tmp_path / "run")
    result = run(from_values(TINY, "test"), tmp_path / "run", progress=page)
    assert result["epochs"] == 3
    told = capsys.readouterr().err
    assert told.count("the page of the run could not be written, training goes on") == 1
    assert page.page is None


@pytest.mark.parametrize("flag", ["--report", "--open"])
def test_a_run_that_is_finished_already_has_its_page_written_once(
    annealtune, monkeypatch, tmp_path, flag
):
    shown = []
    monkeypatch.setattr("annealtune.cli.report.show", shown.append)
    run(from_values(TINY, "test"), tmp_path / "run")
    code, out, err = annealtune("train", "--resume", "--out", tmp_path / "run", flag)
    assert code == 0, err
    page = tmp_path / "run" / "report" / "index.html"
    assert f"page: {page}" in out
    assert REFRESH not in page.read_text()
    assert shown == ([page] if flag == "--open" else [])


def test_the_page_of_a_run_that_went_on_is_shown_once(tmp_path):
    shown = []
    page = LivePage(Progress(), tmp_path / "run", shown.append)
    run(from_values(TINY, "test"), tmp_path / "run", progress=page)
    page.finish()
    assert shown == [page.page]


@pytest.mark.slow
def test_train_opens_it_and_says_where_it_is(opened, run_cold, tmp_path):
    flags = ["--model", "mlp", "--train-size", "100", "--epochs", "1", "--method", "adamw"]
    train = [sys.executable, "-m", "annealtune", "train", *flags]
    done = run_cold(*train, "--out", "run", "--open")
    assert done.returncode == 0, done.stderr
    assert opened.read_text().strip() == (tmp_path / "run" / "report" / "index.html").as_uri()
    assert "page: run/report/index.html" in done.stdout
    done = run_cold(*train, "--out", "other")
    assert "see it: annealtune report other --open" in done.stdout
    assert not (tmp_path / "other" / "report").exists()
    assert 'command = "annealtune train --model mlp' in (tmp_path / "run/config.toml").read_text()
