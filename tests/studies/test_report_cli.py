"""`annealtune report` as a user types it: what it prints, where it writes, what it refuses."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from annealtune.errors import ConfigError, RunError
from annealtune.studies import report_command
from annealtune.studies.report import write_report
from annealtune.studies.results import Study


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer()
    report_command.register(app)

    @app.callback()
    def _several_commands() -> None:
        """As in the program, where there are others."""

    return app


def test_the_path_of_the_page_is_printed(
    app: typer.Typer, make_study: Callable[..., Study], tmp_path: Path
) -> None:
    study = make_study({"sgd": {0: None}})
    result = CliRunner().invoke(app, ["report", str(study.path)])
    assert result.exit_code == 0, result.output
    assert result.output.split() == [str(study.path / "report" / "index.html")]
    result = CliRunner().invoke(
        app, ["report", str(study.path), "--out", str(tmp_path / "a" / "b")]
    )
    assert result.output.split() == [str(tmp_path / "a" / "b" / "index.html")]
    assert (tmp_path / "a" / "b" / "table.csv").is_file()


def test_a_directory_that_is_no_study(app: typer.Typer, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        result = CliRunner().invoke(app, ["report", str(path)])
        assert isinstance(result.exception, ConfigError)
        assert "is no study directory" in str(result.exception)


def test_a_file_in_the_way(make_study: Callable[..., Study], tmp_path: Path) -> None:
    study = make_study({"sgd": {0: None}})
    file = tmp_path / "file"
    file.write_text("the user's own")
    for out in (file, file / "below"):
        with pytest.raises(ConfigError, match="a file is in the way; choose another --out"):
            write_report(study, out)
    assert file.read_text() == "the user's own"


def test_a_disk_that_refuses(make_study: Callable[..., Study], tmp_path: Path) -> None:
    study = make_study({"sgd": {0: None}})
    (tmp_path / "out" / "table.csv").mkdir(parents=True)  # cannot be replaced by a file
    with pytest.raises(RunError, match=r"table\.csv: cannot be written: .*choose another --out"):
        write_report(study, tmp_path / "out")
    assert not (tmp_path / "out" / "index.html").exists()  # the page comes last


def test_the_report_needs_no_torch(make_study: Callable[..., Study]) -> None:
    """A study can be looked at where torch takes seconds to load, or was never installed."""
    study = make_study({"sgd": {0: None}})
    program = (
        "import sys; from pathlib import Path\n"
        "from annealtune.studies import report_command\n"
        "heavy = {'torch', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "report_command.report(Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(study.path)],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )


@pytest.mark.slow
def test_the_program_itself(make_study: Callable[..., Study], tmp_path: Path) -> None:
    study = make_study({"sgd": {0: {}, 1: {"failure": "killed"}}})
    done = _program("report", str(study.path), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "out" / "index.html")
    assert done.stderr == ""
    missing = _program("report", str(tmp_path / "nowhere"))
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
    assert "is no study directory" in missing.stderr


def _program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "annealtune", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
