"""One look for all figures."""

from annealtune.studies.report.figures.style import label


def test_a_label_is_short() -> None:
    assert len(label("x" * 200)) == 36
