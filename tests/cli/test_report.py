"""`annealtune report` as a user types it: what it prints, where it writes, what it refuses."""

import shutil
import sys
from pathlib import Path

import pytest

from annealtune.studies.records import sealed_toml
from annealtune.training import run
from annealtune.training.config import from_values

TINY = {"method": "adamw", "model": "mlp", "train_size": 100, "epochs": 1, "threads": 1}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    run(from_values(TINY, "test"), path)
    return path


@pytest.fixture
def lone_run(finished, tmp_path):
    """A finished run in a directory of this test."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def study(tmp_path):
    """A study whose only run has not begun."""
    facts = {
        "name": "planned",
        "command": "annealtune study planned.toml",
        "vary": "seed",
        "seeds": [0],
        "methods": [{"label": "sgd", "config": {"method": "sgd"}}],
        "environment": {},
    }
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_bytes(sealed_toml(facts))
    return tmp_path / "study"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["study"], "study/report/index.html"),
        (["study", "--out", "a/b"], "a/b/index.html"),
        (["run"], "run/report/index.html"),
        (["run", "--no-figures"], "run/report/index.html"),
        (["study", "others", "--no-figures"], "overview/index.html"),
    ],
)
def test_the_path_of_the_page_is_printed(annealtune, study, lone_run, tmp_path, words, page):
    shutil.copytree(study, tmp_path / "others")
    code, out, err = annealtune("report", *words)
    assert (code, out.split()) == (0, [page]), err
    assert (tmp_path / page).is_file()
    if words[0] == "run":
        assert (tmp_path / page).with_name("figures").is_dir() == (words == ["run"])


def test_what_is_refused(refused, lone_run, study):
    assert refused("report", "nowhere").startswith("nowhere: ")
    assert refused("report", "study", "run").startswith("run: ")


def test_open_shows_the_page(opened, annealtune, lone_run):
    assert annealtune("report", "run", "--open", "--no-figures")[0] == 0
    assert opened == [(lone_run / "report" / "index.html").as_uri()]


def test_the_report_needs_no_torch(run_cold, study, lone_run):
    """A run can be looked at where torch takes seconds to load, or was never installed."""
    program = (
        "import sys; from pathlib import Path\n"
        "from annealtune.cli.report import report\n"
        "heavy = {'torch', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "report([Path(sys.argv[1])])\n"
        "report([Path(sys.argv[2])])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_cold(sys.executable, "-c", program, study, lone_run)
    assert done.returncode == 0, done.stderr
