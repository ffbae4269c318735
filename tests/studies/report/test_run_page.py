"""The page of one run and of several, from real runs and from what is left of broken ones."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from annealtune.annealing.race import rate_text
from annealtune.studies.records import RunRecord, read_lone_run
from annealtune.studies.report.figures.runs import races_of
from annealtune.studies.report.run_page import write_run_report
from annealtune.training import run
from annealtune.training.config import from_values

TASK = {"data": "digits", "model": "mlp", "train_size": 320, "batch_size": 32, "threads": 1}
METHODS = ("self-tuned", "sgd-sa", "ssa", "adamw")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    """A finished run of every kind of method; enough steps for a race."""
    place = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        epochs = 24 if method == "self-tuned" else 3
        config = from_values({**TASK, "method": method, "epochs": epochs}, "test")
        run(config, place / method, command="annealtune train --method 'x y'")
    return {method: read_lone_run(place / method) for method in METHODS}


@pytest.fixture
def page_of(parse: Any, tmp_path: Path) -> Any:
    def page_of(run: RunRecord, **options: Any) -> Any:
        return parse(write_run_report(run, tmp_path / "page", **{"figures": False, **options}))

    return page_of


def unfinished(run: RunRecord, epochs: int) -> RunRecord:
    changes: dict[str, Any] = {"status": "unfinished", "result": None}
    return dataclasses.replace(
        run, metrics=run.metrics[:epochs], moves=run.moves[:epochs], **changes
    )


class TestOneRun:
    @pytest.mark.parametrize("method", METHODS)
    def test_any_method(self, runs: Any, page_of: Any, method: str) -> None:
        run = runs[method]
        page = page_of(run)
        assert f"test accuracy {100 * run.result['test_accuracy']:.2f} %" in page.text
        assert f"best epoch {run.result['best_epoch']} of {run.config['epochs']}" in page.text
        assert ('id="races"' in page.source) == (method == "self-tuned")
        assert ('id="moves"' in page.source) == (method in ("sgd-sa", "ssa"))
        assert 'id="panel-hero"' in page.source
        assert "annealtune train --method 'x y'" in page.text

    def test_every_arm_is_in_the_figure_and_in_the_table(self, runs: Any, page_of: Any) -> None:
        run = runs["self-tuned"]
        (race,) = races_of(run)
        page = page_of(run)
        assert 'id="panel-race-1"' in page.source
        assert f"learning rate found {rate_text(race.rate)}" in page.text
        for arm, losses in enumerate(race.losses):
            assert f"{race.name(arm)} {race.scores[arm]:.4g} {len(losses)} " in page.text
        assert f"won: {race.reason}" in page.text
        assert f"extra steps of races {race.extra_steps} (" in page.text

    def test_looks_at_averaged_and_last_weights(self, runs: Any, page_of: Any) -> None:
        run = runs["self-tuned"]
        assert "without averaging" in page_of(run).source
        lines = [
            {k: v for k, v in line.items() if not k.startswith("last_weights")}
            for line in run.metrics
        ]
        without = dataclasses.replace(run, metrics=tuple(lines))
        assert "without averaging" not in page_of(without).source

    def test_every_figure_is_a_file_too(self, runs: Any, page_of: Any) -> None:
        page = page_of(runs["self-tuned"], figures=True)
        links = [link for each in page.all("a") if not (link := each["href"]).startswith("#")]
        assert len(links) == 4  # hero and race, as svg and pdf
        assert all((page.path.parent / link).is_file() for link in links)


class TestWhateverIsThere:
    def test_an_unfinished_run_can_be_continued(self, runs: Any, page_of: Any) -> None:
        page = page_of(unfinished(runs["self-tuned"], 4))
        assert "--resume" in page.text

    def test_before_the_first_epoch(self, runs: Any, page_of: Any) -> None:
        page = page_of(unfinished(runs["self-tuned"], 0))
        assert page.all("svg") == []
        assert "state not finished" in page.text

    @pytest.mark.parametrize("method", ["self-tuned", "sgd-sa"])
    def test_a_run_with_losses_alone(self, runs: Any, page_of: Any, method: str) -> None:
        """As a regression has it."""

        def without(record: dict[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in record.items() if not k.endswith("accuracy")}

        run = runs[method]
        lines = tuple(map(without, run.metrics))
        page = page_of(dataclasses.replace(run, metrics=lines, result=without(run.result)))
        assert f"test loss {run.result['test_loss']:.4g}" in page.text
        assert "accuracy" not in page.text.lower().replace("accuracy, loss and learning rate", "")

    def test_numbers_that_are_not_known(self, runs: Any, page_of: Any) -> None:
        run = runs["sgd-sa"]
        lines = tuple({"epoch": line["epoch"], "rate": None} for line in run.metrics)
        assert "test accuracy" in page_of(dataclasses.replace(run, metrics=lines)).text

    def test_a_rate_that_ends_at_zero(self, runs: Any, page_of: Any) -> None:
        run = runs["adamw"]
        lines = tuple({**line, "rate": 0.1 * (line["epoch"] < 3)} for line in run.metrics)
        assert 'id="panel-hero"' in page_of(dataclasses.replace(run, metrics=lines)).source

    def test_text_is_text(self, runs: Any, page_of: Any) -> None:
        evil = "<script>alert(1)</script> $x$"
        config = {**runs["adamw"].config, "model": evil}
        page = page_of(dataclasses.replace(runs["adamw"], path=Path(evil), config=config))
        assert evil in page.text
        assert "<script>alert" not in page.source
