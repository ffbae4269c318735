"""Records that are kept: what goes in comes out, and every number that is built is in them."""

import json
import re
import tarfile
from html import unescape
from statistics import fmean

import pytest

from annealtune.errors import ConfigError
from annealtune.studies.records import read_study
from annealtune.studies.report.joint_table import PAPER
from tests.studies.conftest import PAPER_RESNET34, PAPER_VGG16, write_study
from tools import results

METHODS = ("scheduled-sgd", *results.COLUMNS.values())
KINDS = {
    "sgd-sa-paper-text": "sgd-sa",
    "sgd-sa-paper-code": "sgd-sa",
    "self-tuned-sgd": "self-tuned",
}
MARKS = "".join(
    f"<!-- built: {name} -->\nold\n<!-- end -->\n"
    for name in ("table-1", "vgg16", "resnet34", "figure-1", "records")
)


def paper_like(path, net, seeds):
    """A study like that of a net of Table 1, no two numbers of which are the same."""
    runs = {
        method: {
            seed: {
                "accuracy": 0.5 + 0.03 * place + 0.0111 * seed,
                "loss": 0.9 - 0.07 * place + 0.0123 * seed,
                "epochs": 6,
            }
            for seed in range(seeds)
        }
        for place, method in enumerate(METHODS)
    }
    return write_study(
        path,
        runs,
        kinds=KINDS,
        name=f"regime-cifar10-{net}",
        experiment={"data": "cifar10", "model": f"{net}-w8", "validate_on": "test"},
    )


@pytest.fixture
def built(tmp_path):
    """Two studies, kept, and what was built from their records alone."""
    studies = {
        net: paper_like(tmp_path / net, net, seeds)
        for net, seeds in (("vgg16", 2), ("resnet34", 1))
    }
    for net in studies:
        results.keep(tmp_path / net, tmp_path / "records" / net)
    page = tmp_path / "paper.md"
    page.write_text(f"# Title\n\n{MARKS}")
    results.build(tmp_path / "records", tmp_path / "pages", page)
    return studies, tmp_path / "pages", page.read_text()


def block(text, name):
    [found] = re.findall(rf"<!-- built: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in found.splitlines()]
    return rows[0], [[cell.strip("*") for cell in row] for row in rows[2:]]


def test_a_study_comes_back_as_it_was(program, tiny, place):
    done = program(
        "study", tiny, "--methods", "sgd-sa-paper-code,sgd", "--seeds", "0", "--out", "s"
    )
    assert done.code == 0, done.err
    assert results.keep(place / "s", place / "kept") == 2
    before, after = read_study(place / "s"), results.read_kept(place / "kept")
    assert (after.methods, after.seeds, after.name) == (before.methods, before.seeds, before.name)
    assert (after.environment, after.configs) == (before.environment, before.configs)
    for old, new in zip(before.runs, after.runs, strict=True):
        assert new.status == "finished"
        assert (new.metrics, new.moves, new.result) == (old.metrics, old.moves, old.result)
        assert new.metrics
    assert after.of("sgd-sa-paper-code")[0].moves
    assert str(place / "s") not in str(after.command) + str([run.config for run in after.runs])
    packed = (place / "kept" / results.PACKED).read_bytes()
    results.keep(place / "s", place / "kept")
    assert (place / "kept" / results.PACKED).read_bytes() == packed


def test_a_changed_record_is_noticed(program, tiny, place):
    program("study", tiny, "--methods", "sgd", "--seeds", "0", "--out", "s")
    results.keep(place / "s", place / "kept")
    with tarfile.open(place / "kept" / results.PACKED) as archive:
        archive.extractall(place / "open", filter="data")
    [metrics] = (place / "open").rglob("metrics.jsonl")
    metrics.write_text(metrics.read_text().replace("0.", "1.", 1))
    with tarfile.open(place / "kept" / results.PACKED, "w:xz") as archive:
        archive.add(place / "open" / "runs", "runs")
    [run] = results.read_kept(place / "kept").runs
    assert run.status == "failed"
    assert run.metrics == ()


def test_only_finished_runs_are_kept(tmp_path):
    runs = {"sgd": {0: {}, 1: {"done": 2}, 2: None}, "adamw": {0: {"done": 1}, 1: None, 2: None}}
    write_study(tmp_path / "study", runs)
    assert results.keep(tmp_path / "study", tmp_path / "kept") == 1
    study = results.read_kept(tmp_path / "kept")
    assert [(run.method, run.seed, run.status) for run in study.runs] == [("sgd", 0, "finished")]


def test_nobody_learns_where_it_lay(tmp_path):
    command = f"annealtune reproduce table-1 --size regime --out {tmp_path} --jobs 2"
    write_study(tmp_path / "study", {"sgd": {0: {}}}, command=command)
    results.keep(tmp_path / "study", tmp_path / "kept")
    kept = results.read_kept(tmp_path / "kept").command
    assert kept == "annealtune reproduce table-1 --size regime --out studies --jobs 2"


def test_a_study_without_a_finished_run_is_refused(tmp_path):
    write_study(tmp_path / "study", {"sgd": {0: {"done": 1}}})
    with pytest.raises(ConfigError):
        results.keep(tmp_path / "study", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_the_joint_table_has_every_run_and_the_paper_s_numbers(built):
    studies, _, text = built
    titles, rows = block(text, "table-1")
    assert len(titles) == 10
    found = {(row[0], row[1]): row[2:] for row in rows}
    for net, first in (("vgg16", 0), ("resnet34", 4)):
        for run in studies[net].runs:
            last, best = run.metrics[-1], run.metrics[run.result["best_epoch"] - 1]
            numbers = [
                f"{last['validation_paper_loss']:.6f}",
                f"{100 * run.result['last_validation_accuracy']:.2f} %",
                f"{best['validation_paper_loss']:.6f}",
                f"{100 * run.result['best_validation_accuracy']:.2f} %",
            ]
            assert found[run.method, str(run.seed)][first : first + 4] == numbers
        for method in METHODS:
            runs = studies[net].of(method)
            top = max(run.result["last_validation_accuracy"] for run in runs)
            assert found[method, "best"][first + 1] == f"{100 * top:.2f} %"
    for net, table, first in (("vgg16", PAPER_VGG16, 0), ("resnet34", PAPER_RESNET34, 4)):
        for seed, line in enumerate(table.split("\n")[1:-1]):
            numbers = line.split()
            for place, method in enumerate(PAPER[net]):
                loss, accuracy = numbers[2 * place : 2 * place + 2]
                row = found[f"{method}, the paper", str(seed)]
                assert row[first : first + 4] == [loss, f"{accuracy} %", "n/a", "n/a"]
    assert found["sgd-sa, the paper", "best"][4] == "0.001231"


def test_the_claims_are_counted_from_the_records(built):
    studies, _, text = built
    titles, rows = block(text, "vgg16")
    assert titles[2:] == list(results.COLUMNS)
    of = studies["vgg16"].of
    for column, method in enumerate(results.COLUMNS.values(), 2):
        ours, base = of(method), of("scheduled-sgd")
        losses = [
            fmean(run.metrics[-1]["validation_paper_loss"] for run in each) for each in (ours, base)
        ]
        won = sum(
            a.metrics[-1]["validation_paper_loss"] < b.metrics[-1]["validation_paper_loss"]
            for a, b in zip(ours, base, strict=True)
        )
        assert rows[0][column] == f"{won} of 2 seeds; {losses[0]:.6f} against {losses[1]:.6f}"
        train = [fmean(run.metrics[-1]["train_eval_accuracy"] for run in e) for e in (ours, base)]
        ends = f"{100 * train[0]:.2f} % in the last epoch, against {100 * train[1]:.2f} %"
        assert rows[4][column] == ends
    text_column = 2
    chances = [run["accept_probability"] for run in of("sgd-sa-paper-text")[0].metrics]
    shown = rows[3][text_column]
    assert re.findall(r"\d\.\d+", shown) == [f"{chances[at]:.3f}" for at in (0, 2, -1)]
    # One seed has no deviation.
    assert {*block(text, "resnet34")[1][6][2:]} == {"needs two seeds"}


def test_every_point_of_a_curve_is_in_the_records(built):
    studies, pages, _ = built
    for net, study in studies.items():
        page = (pages / f"regime-cifar10-{net}" / "index.html").read_text()
        keys = {"curves-validation-loss": "validation_loss"}
        keys |= {"accept-temperature": "temperature", "accept-probability": "accept_probability"}
        keys |= {"curves-validation-accuracy": "validation_accuracy"}
        for name, key in keys.items():
            lines = points_of(page, name)
            recording = [m for m in METHODS if key in study.of(m)[0].metrics[0]]
            assert {line[0] for line in lines} == set(recording)
            for method, *_, texts in lines:
                told = {int(t.split()[1].rstrip(":")): t.partition(": ")[2] for t in texts}
                recorded = {
                    line["epoch"]: [run.metrics[place][key] for run in study.of(method)]
                    for place, line in enumerate(study.of(method)[0].metrics)
                }
                known = {e: values for e, values in recorded.items() if None not in values}
                assert told.keys() == known.keys()
                for epoch, values in known.items():
                    mean = fmean(values) * (100 if "%" in told[epoch] else 1)
                    shown = float(re.split("[ ,]", told[epoch])[0])
                    assert shown == pytest.approx(
                        mean, abs=0.0051 if "%" in told[epoch] else 0, rel=1e-3
                    )


def points_of(page, name):
    """The lines of a figure: name, colour, kind, places and what is told of each point."""
    figure = page[page.index(f'id="panel-{name}"') :]
    [found] = re.findall(r"<svg[^>]*? data-points='(.*?)'", figure[: figure.index("</svg>")])
    return json.loads(unescape(found))


def test_without_records_nothing_is_claimed(tmp_path):
    page = tmp_path / "paper.md"
    page.write_text(MARKS)
    assert results.build(tmp_path / "none", tmp_path / "pages", page) == []
    assert page.read_text() == MARKS.replace("old", "No records yet.")
    assert not (tmp_path / "pages").exists()


def test_the_committed_page_is_what_its_records_give():
    studies = [
        results.read_kept(each.parent) for each in results.RECORDS.glob(f"*/{results.PACKED}")
    ]
    text = results.PAPER_PAGE.read_text(encoding="utf-8")
    assert results.fill(text, sorted(studies, key=lambda each: each.path.name)) == text
