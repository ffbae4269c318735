"""`annealtune report` as a user types it: what it prints, where it writes, what it refuses."""

import shutil
import sys
from pathlib import Path

import pytest
import tomli_w

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
        "format": 1,
        "name": "planned",
        "command": "annealtune study planned.toml",
        "vary": "seed",
        "seeds": [0],
        "methods": [{"label": "sgd", "config": {"method": "sgd"}}],
        "experiment": {},
        "environment": {},
    }
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_text(tomli_w.dumps(facts))
    return tmp_path / "study"


def test_the_path_of_the_page_is_printed(annealtune, study, tmp_path):
    code, out, err = annealtune("report", "study")
    assert (code, out.split()) == (0, ["study/report/index.html"]), err
    code, out, err = annealtune("report", "study", "--out", "a/b")
    assert (code, out.split()) == (0, ["a/b/index.html"]), err
    assert (tmp_path / "a" / "b" / "table.csv").is_file()


def test_what_is_neither_a_run_nor_a_study(refused, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        told = refused("report", path)
        assert "is neither a run directory" in told
        assert "config.toml" in told
        assert "study.toml" in told


def test_the_page_of_a_run(annealtune, lone_run):
    code, out, err = annealtune("report", "run")
    assert (code, out.split()) == (0, ["run/report/index.html"]), err
    assert (lone_run / "report" / "figures" / "hero.svg").is_file()


def test_without_files_of_figures(annealtune, lone_run, tmp_path):
    code, _, err = annealtune("report", "run", "--out", "page", "--no-figures")
    assert code == 0, err
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["index.html"]


def test_several_runs_are_compared(annealtune, lone_run, tmp_path):
    shutil.copytree(lone_run, tmp_path / "other")
    code, out, err = annealtune("report", "run", "other", "--no-figures")
    assert (code, out.split()) == (0, ["comparison/index.html"]), err
    assert "2 runs compared" in (tmp_path / "comparison" / "index.html").read_text()


def test_several_studies_share_a_page(annealtune, study, tmp_path):
    shutil.copytree(study, tmp_path / "other")
    code, out, err = annealtune("report", "study", "other", "--no-figures")
    assert (code, out.split()) == (0, ["overview/index.html"]), err
    assert (tmp_path / "overview" / "index.html").is_file()


def test_a_page_about_several_runs_overwrites_no_other(annealtune, lone_run, tmp_path):
    shutil.copytree(lone_run, tmp_path / "other")
    words = ("report", "run", "other", "--no-figures")
    pages = [annealtune(*words)[1].strip() for _ in range(3)]
    assert pages == [f"comparison{number}/index.html" for number in ("", "-2", "-3")]
    _, out, _ = annealtune(*words, "--out", "comparison")
    assert out.strip() == "comparison/index.html"


def test_a_page_about_several_studies_overwrites_no_other(annealtune, study, tmp_path):
    shutil.copytree(study, tmp_path / "other")
    words = ("report", "study", "other", "--no-figures")
    pages = [annealtune(*words)[1].strip() for _ in range(2)]
    assert pages == ["overview/index.html", "overview-2/index.html"]


def test_one_run_twice_is_one_run(annealtune, lone_run):
    code, out, err = annealtune("report", "run", "run", "--no-figures")
    assert (code, out.split()) == (0, ["run/report/index.html"]), err


def test_a_run_and_a_study_are_refused(refused, lone_run, study):
    told = refused("report", "study", "run")
    assert "study is a study and run is a run" in told
    assert "give two commands" in told


def test_open_shows_the_page(opened, run_cold, lone_run):
    done = run_cold(
        sys.executable, "-m", "annealtune", "report", lone_run, "--open", "--no-figures"
    )
    assert done.returncode == 0, done.stderr
    assert opened.read_text().strip() == (lone_run / "report" / "index.html").as_uri()


def test_the_report_needs_no_torch(run_cold, study, lone_run):
    """A run can be looked at where torch takes seconds to load, or was never installed."""
    program = (
        "import sys; from pathlib import Path\n"
        "from annealtune.cli.report import report\n"
        "heavy = {'torch', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "report([Path(sys.argv[1])])\n"
        "report([Path(sys.argv[2])])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_cold(sys.executable, "-c", program, study, lone_run)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_program_itself(program, tiny, place, run_cold, tmp_path):
    with tiny.open("a") as file:
        file.write('[methods.wild]\nmethod = "sgd"\nlr = 1e30\n')
    words = ["study", tiny, "--methods", "wild,sgd", "--seeds", "0", "--out", "study"]
    assert program(*words).code == 1  # one run fails
    report = [sys.executable, "-m", "annealtune", "report"]
    done = run_cold(*report, place / "study", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "out" / "index.html")
    assert done.stderr == ""
    missing = run_cold(*report, tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
    assert "is neither a run directory" in missing.stderr
