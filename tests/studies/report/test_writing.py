"""Where a report is written, and what stands in its way."""

from collections.abc import Callable
from pathlib import Path

import pytest

from annealtune.errors import ConfigError, RunError
from annealtune.studies.records import Study
from annealtune.studies.report.writing import write_report


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
