"""The page of one run and of several, from real runs and from what is left of broken ones."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from annealtune.errors import ConfigError
from annealtune.studies.records import read_lone_run
from annealtune.studies.report.run_page import write_comparison, write_run_report
from annealtune.studies.report.run_story import RunStory
from annealtune.training import run
from annealtune.training.config import from_values
from annealtune.training.describe import describe_run

TASK = {"data": "digits", "model": "mlp", "train_size": 320, "batch_size": 32, "threads": 1}
METHODS = ("self-tuned", "sgd-sa", "ssa", "adamw")


class Page(HTMLParser):
    """What a reader sees, and where the page leads."""

    def __init__(self, path):
        super().__init__()
        self.links, self.metas, self._text, self._hidden = [], [], [], False
        self.source = path.read_text()
        self.feed(self.source)
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self._hidden = tag in ("style", "script", "title")
        self.links += [values[key] for key in ("href", "src") if key in values]
        if tag == "meta":
            self.metas.append(values)

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self._text.append(data)

    @property
    def refreshes(self):
        return any(meta.get("http-equiv") == "refresh" for meta in self.metas)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of every kind of method; enough steps for a race."""
    place = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        epochs = 24 if method == "self-tuned" else 3
        config = from_values({**TASK, "method": method, "epochs": epochs}, "test")
        run(config, place / method, command="annealtune train --method 'x y'")
    return place


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of a run without its seal, as earlier versions left it, to be changed."""

    def copied(method="self-tuned", name=None):
        leave_out = shutil.ignore_patterns("seal.json", "checkpoints")
        path = Path(shutil.copytree(runs / method, tmp_path / (name or method), ignore=leave_out))
        config = path / "config.toml"
        config.write_text(config.read_text().replace("\nseal = 2\n", "\n"))
        return path

    return copied


def page_of(directory, **options):
    return Page(write_run_report(read_lone_run(directory), figures=False, **options))


def rewrite(path, change):
    """Write every line of a file of records anew; None takes one away."""
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


class TestOneRun:
    def test_the_headline_says_what_the_records_say(self, copied):
        directory = copied()
        result = json.loads((directory / "result.json").read_text())
        (race,) = result["races"]
        extra = 100 * race["extra_steps"] / result["steps"]
        rate = float(f"{race['rate']:.3g}")
        page = page_of(directory)
        told = re.search(
            r"Found a learning rate of (\S+) in (\d+) steps and reached (\S+) % test accuracy; "
            r"the race cost (\d+) % extra steps\.",
            page.text,
        )
        assert float(told[1]) == rate
        assert int(told[2]) == race["minibatches"]
        assert float(told[3]) == pytest.approx(100 * result["test_accuracy"], abs=0.06)
        assert float(told[4]) == pytest.approx(extra, abs=0.6)
        assert "annealtune train --method 'x y'" in page.text
        assert not page.refreshes

    def test_every_arm_is_in_the_figure_and_in_the_table(self, copied):
        directory = copied()
        (race,) = RunStory(read_lone_run(directory)).races
        page = page_of(directory)
        assert 'id="panel-race-1"' in page.source
        for arm, losses in enumerate(race.losses):
            assert f"{race.name(arm)} {race.scores[arm]:.4g} {len(losses)} " in page.text
            assert f'"{race.name(arm)}"' in page.source.replace("&#34;", '"')  # by the mouse
        assert f"won: {race.reason}" in page.text

    def test_averaged_against_last_weights(self, copied):
        directory = copied()
        assert "Averaged against last weights" in page_of(directory).text
        rewrite(
            directory / "metrics.jsonl",
            lambda line: {k: v for k, v in line.items() if not k.startswith("last_weights")},
        )
        assert "Averaged against last weights" not in page_of(directory).text

    @pytest.mark.parametrize("method", METHODS)
    def test_any_method(self, copied, method):
        page = page_of(copied(method))
        assert re.search(r"reached \d+\.\d % test accuracy", page.text)
        assert ("Moves and settings" in page.text) == (method in ("sgd-sa", "ssa"))
        assert ("The race" in page.text) == (method == "self-tuned")
        assert 'id="panel-hero"' in page.source
        if method == "adamw":
            assert "with a learning rate of up to 1e-3" in page.text

    @pytest.mark.parametrize("method", ["self-tuned", "sgd-sa", "adamw"])
    def test_the_rate_is_named_as_inspect_names_it(self, copied, method):
        directory = copied(method)
        told = dict(describe_run(directory))["rate"]
        if method != "sgd-sa":
            told = told.split(",")[0]  # the last step's follows
        assert told.endswith(
            {"self-tuned": " found", "adamw": "1e-3 given"}.get(
                method, ", mean of the accepted moves of the last epoch"
            )
        )
        assert f"learning rate {told} " in page_of(directory).text

    def test_it_loads_nothing_and_its_links_are_alive(self, copied):
        path = write_run_report(read_lone_run(copied()))
        files = [link for link in Page(path).links if not link.startswith(("#", "data:"))]
        assert len(files) == 8  # hero, race, two of the average: as svg and pdf
        assert all((path.parent / file).is_file() for file in files)

    def test_the_same_records_give_the_same_bytes(self, copied, tmp_path):
        record = read_lone_run(copied())
        first, second = (write_run_report(record, tmp_path / name) for name in "ab")
        files = [p.relative_to(first.parent) for p in first.parent.rglob("*") if p.is_file()]
        assert len(files) == 9
        for file in files:
            assert (first.parent / file).read_bytes() == (second.parent / file).read_bytes(), file


class TestWhateverIsThere:
    def test_an_unfinished_run(self, copied):
        directory = copied()
        (directory / "result.json").unlink()
        rewrite(directory / "metrics.jsonl", lambda line: line if line["epoch"] < 5 else None)
        page = page_of(directory)
        assert re.search(r"is at \d+\.\d % validation accuracy after 4 of 24 epochs", page.text)
        assert "--resume" in page.text
        assert not page.refreshes

    def test_one_that_is_going_on_loads_itself_anew_until_it_is_finished(self, copied):
        directory = copied()
        assert not page_of(directory, is_live=True).refreshes
        (directory / "result.json").unlink()
        assert page_of(directory, is_live=True).refreshes

    def test_nothing_but_a_config(self, copied):
        directory = copied()
        for path in directory.iterdir():
            if path.is_file() and path.name != "config.toml":
                path.unlink()
        assert "no epoch is complete yet" in page_of(directory).text

    def test_a_damaged_run(self, copied):
        directory = copied()
        (directory / "metrics.jsonl").write_text("{}\nno JSON\n")
        assert "Failed: metrics.jsonl is damaged: line 2: " in page_of(directory).text

    @pytest.mark.parametrize("method", ["self-tuned", "sgd-sa"])
    def test_a_run_with_losses_alone(self, copied, method):
        """As a regression has it."""
        directory = copied(method)

        def without(record):
            return {k: v for k, v in record.items() if not k.endswith("accuracy")}

        rewrite(directory / "metrics.jsonl", without)
        result = json.loads((directory / "result.json").read_text())
        (directory / "result.json").write_text(json.dumps(without(result)))
        page = page_of(directory)
        assert f"reached a test loss of {result['test_loss']:.4g}" in page.text
        assert "accuracy" not in page.text

    def test_races_of_an_earlier_version_have_no_curves_but_a_table(self, copied):
        directory = copied()

        def older(line):
            new = ("losses", "number", "second")
            races = [{k: v for k, v in r.items() if k not in new} for r in line.get("races", ())]
            return {**line, "races": races} if races else line

        rewrite(directory / "metrics.jsonl", older)
        page = page_of(directory)
        assert "panel-race-1" not in page.source
        assert "won: " in page.text

    def test_numbers_that_are_not_known(self, copied):
        directory = copied("sgd-sa")
        rewrite(
            directory / "metrics.jsonl",
            lambda line: {k: v if k in ("epoch", "step") else None for k, v in line.items()},
        )
        assert "test accuracy" in page_of(directory).text

    def test_text_is_text(self, copied):
        directory = copied(name="<i>run & $x$")
        config = directory / "config.toml"
        config.write_text(config.read_text().replace('"mlp"', '"<script>alert(1)</script>"'))
        page = page_of(directory)
        assert "<i>run" not in page.source
        assert "<script>alert" not in page.source

    def test_a_directory_without_a_run(self, tmp_path):
        with pytest.raises(ConfigError, match="is not a run directory"):
            read_lone_run(tmp_path)


class TestSeveralRuns:
    def test_results_rates_and_options_side_by_side(self, runs, tmp_path):
        records = [read_lone_run(runs / method) for method in METHODS]
        page = Page(write_comparison(records, tmp_path / "out", figures=False))
        told = (
            "the learning rate of a run over H is the mean of the accepted moves of the last epoch"
        )
        assert told in page.text
        assert "4 runs compared" in page.text
        results = {m: json.loads((runs / m / "result.json").read_text()) for m in METHODS}
        for result in results.values():
            assert f"{100 * result['test_accuracy']:.2f} %" in page.text
        best = max(result["test_accuracy"] for result in results.values())
        assert f"<strong>{100 * best:.2f} %</strong>" in page.source
        assert "adamw.weight_decay" in page.text
        assert page.text.count("annealtune train --method 'x y'") == 4

    def test_runs_of_one_name_are_told_apart(self, copied, tmp_path):
        first = read_lone_run(copied("adamw", "one/same"))
        second = read_lone_run(copied("adamw", "two/same"))
        page = Page(write_comparison([first, second], tmp_path / "out", figures=False))
        assert "one/same, two/same" in page.text
        assert "all runs have the same options" in page.text

    def test_it_is_put_beside_the_runs(self, copied):
        records = [read_lone_run(copied("adamw", name)) for name in ("a", "b")]
        assert write_comparison(records, figures=False) == records[0].path.parent / (
            "comparison/index.html"
        )

    def test_runs_that_have_barely_begun(self, copied):
        directories = [copied("adamw", name) for name in ("a", "b")]
        for directory in directories:
            for name in ("metrics.jsonl", "result.json"):
                (directory / name).unlink()
        page = Page(write_comparison([*map(read_lone_run, directories)], figures=False))
        assert "no run has completed an epoch" in page.text

    def test_more_runs_than_names_fit_beside_a_figure(self, copied):
        records = [read_lone_run(copied("adamw", f"run-{n}")) for n in range(18)]
        page = Page(write_comparison(records, figures=False))
        assert "18 runs compared" in page.text


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(browser, runs, tmp_path, width, scheme):
    records = [read_lone_run(runs / method) for method in METHODS]
    pages = [write_run_report(each, tmp_path / each.method, figures=False) for each in records]
    for page in [*pages, write_comparison(records, tmp_path / "all", figures=False)]:
        browser.open(page, width, scheme)
        assert browser.errors == []
        assert browser.requests == [page.as_uri()]
        assert browser.run("return document.documentElement.scrollWidth") <= width
