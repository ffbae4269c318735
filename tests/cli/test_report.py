"""`annealtune report` as a user types it: what it prints, where it writes, what it refuses."""

import sys

import pytest
import tomli_w


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


def test_a_directory_that_is_no_study(refused, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert "is not a study directory" in refused("report", path)


def test_the_report_needs_no_torch(run_cold, study):
    """A study can be looked at where torch takes seconds to load, or was never installed."""
    program = (
        "import sys; from pathlib import Path\n"
        "from annealtune.cli.studies import report\n"
        "heavy = {'torch', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "report(Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_cold(sys.executable, "-c", program, study)
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
    assert "is not a study directory" in missing.stderr
