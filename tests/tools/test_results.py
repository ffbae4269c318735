"""Records that are kept: what goes in comes out, and every number that is built is in them."""

import dataclasses
import itertools
import json
import re
import shutil
import tomllib
from statistics import fmean, stdev

import pytest
import tomli_w

from annealtune.errors import ConfigError
from annealtune.studies.records import read_facts, read_study, sealed_toml
from annealtune.studies.report.study_page import write_report
from annealtune.training.provenance import cpu_name
from tools import results
from tools.paper_tables import CLAIMS, fill

TEXT, BASE, VGG = "sgd-sa-paper-text", "scheduled-sgd", "regime-cifar10-vgg16"
TABLES = ("table-1", "table-1-best", "table-1-paper", *CLAIMS, "figure-1", "records")
MARKS = "".join(f"<!-- built: {name} -->\nold\n<!-- end -->\n" for name in TABLES)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where the study of the first test is kept for the others."""
    return tmp_path_factory.mktemp("store") / "s"


@pytest.fixture
def made(program, tiny, place, store):
    """A study that has been run, and its record."""
    if not store.exists():
        methods = f"{BASE},{TEXT},self-tuned"
        done = program("study", tiny, "--methods", methods, "--seeds", "0,1", "--out", store)
        assert done.code == 0, done.err
    shutil.copytree(store, place / "s")
    assert results.keep([place / "s"], place / "records" / "kept") == (6, 6)
    return place


def block(text, name):
    [found] = re.findall(rf"<!-- built: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    _, _, *rows = [line.strip("| ").split(" | ") for line in found.splitlines()]
    return [[cell.strip("*") for cell in row] for row in rows]


def recorded(place, method, key):
    """The numbers of every epoch of the runs of a method, straight from their files."""
    runs = sorted((place / "s" / "runs").glob(f"{method}-seed*"))
    lines = [(run / "metrics.jsonl").read_text().splitlines() for run in runs]
    return [[json.loads(line)[key] for line in each] for each in lines]


def last(place, method, key):
    return [curve[-1] for curve in recorded(place, method, key)]


def test_a_study_comes_back_as_it_was(made):
    before, after = read_study(made / "s"), results.read_kept(made / "records" / "kept")
    for old, new in zip(before.runs, after.runs, strict=True):
        assert new.status == "finished"
        assert (new.config, new.result) == (old.config, old.result)
        assert (new.metrics, new.moves) == (old.metrics, old.moves)
        assert new.metrics
    assert after.of(TEXT)[0].moves
    assert (after.methods, after.seeds) == (before.methods, before.seeds)


def test_the_page_shows_the_numbers_of_the_records(made):
    (made / "paper.md").write_text(MARKS)
    results.build(made / "records", made / "pages", made / "paper.md")
    [page] = (made / "pages").glob("*/index.html")
    text = page.read_text(encoding="utf-8")
    for method in (BASE, TEXT, "self-tuned"):
        for accuracy in last(made, method, "validation_accuracy"):
            assert f"{100 * accuracy:.2f}" in text
    assert (made / "pages" / "index.html").is_file()
    [row] = block((made / "paper.md").read_text(), "records")
    assert f"{TEXT} 0, 1" in row[1]


def test_the_curves_of_the_page_are_the_epochs_of_the_records(made):
    study = dataclasses.replace(results.read_kept(made / "records" / "kept"), name=VGG)
    text = write_report(study, made / "pages", figures=False).read_text(encoding="utf-8")
    for panel, key in {
        "figure-2-training": "train_eval_accuracy",
        "figure-4-validation-loss": "validation_loss",
        "figure-4-validation-accuracy": "validation_accuracy",
        "accept-probability": "accept_probability",
        "accept-temperature": "temperature",
        "accept-worsening-moves": "accepted_worsening",
    }.items():
        [points] = re.findall(rf'id="panel-{panel}".*?data-points=\'([^\']*)\'', text, re.DOTALL)
        shown = {name.removesuffix(", accepted"): texts for name, *_, texts in json.loads(points)}
        for method in (TEXT,) if panel.startswith("accept") else (BASE, TEXT):
            means = [fmean(epoch) for epoch in zip(*recorded(made, method, key), strict=True)]
            found = [
                float(re.fullmatch(r"epoch \d+: (\S+)( %)?", each)[1]) for each in shown[method]
            ]
            factor = 100 if key.endswith(("accuracy", "probability")) else 1
            assert found == pytest.approx([factor * mean for mean in means], rel=1e-3)


def test_the_tables_of_the_paper_are_counted_from_the_records(made):
    study = dataclasses.replace(results.read_kept(made / "records" / "kept"), name=VGG)
    text = fill(MARKS, [study])

    def of(name, method="the text's method"):
        return {row[0]: row[1:] for row in block(text, name)}[method][0]

    assert of("loss", "the script's method") == "no record yet"
    ours, base = (last(made, method, "validation_paper_loss") for method in (TEXT, BASE))
    won = sum(a < b for a, b in zip(ours, base, strict=True))
    assert of("loss") == f"{won} of 2 seeds; {fmean(ours):.6f} against {fmean(base):.6f}"
    ours, base = (last(made, method, "validation_accuracy") for method in (TEXT, BASE))
    assert of("accuracy").endswith(f"{100 * fmean(ours):.2f} % against {100 * fmean(base):.2f} %")
    assert of("best-seed") == f"{100 * max(ours):.2f} % against {100 * max(base):.2f} %"
    assert of("seed") == f"{100 * stdev(ours):.2f} % against {100 * stdev(base):.2f} %"
    ours, base = (last(made, method, "train_eval_accuracy") for method in (TEXT, BASE))
    assert of("training") == f"{100 * fmean(ours):.2f} % against {100 * fmean(base):.2f} %"
    ours, base = (
        [max(a - b for a, b in itertools.pairwise(curve)) for curve in recorded(made, method, key)]
        for method, key in ((TEXT, "validation_accuracy"), (BASE, "validation_accuracy"))
    )
    sizes = [max(0.0, *each) for each in (ours, base)]
    assert re.findall(r"(-?[\d.]+) points", of("drops")) == [f"{100 * size:.2f}" for size in sizes]
    curves = recorded(made, TEXT, "accept_probability")
    assert re.findall(r"\d\.\d+", of("probability")) == [
        f"{fmean(curve[at] for curve in curves):.3f}" for at in (0, 0, -1)
    ]
    refused = fmean(1 - fmean(curve) for curve in recorded(made, TEXT, "acceptance_rate"))
    assert of("accept-test").startswith(f"{100 * refused:.2f} % of all moves refused")
    joint = {(row[0], row[1]): row[2:] for row in block(text, "table-1")}
    keys = ("validation_paper_loss", "validation_accuracy")
    pairs = zip(*(last(made, TEXT, key) for key in keys), strict=True)
    for seed, (loss, accuracy) in enumerate(pairs):
        assert joint[TEXT, str(seed)][:2] == [f"{loss:.6f}", f"{100 * accuracy:.2f} %"]
    assert joint["sgd-sa, the paper", "best"][:2] == ["0.001084", "86.76 %"]
    best = {(row[0], row[1]): row[2:] for row in block(text, "table-1-best")}
    for seed, curve in enumerate(recorded(made, TEXT, "validation_accuracy")):
        assert best[TEXT, str(seed)][1] == f"{100 * max(curve):.2f} %"
    theirs = {(row[0], row[1]): row[2:] for row in block(text, "table-1-paper")}
    assert theirs["sgd-sa, the paper", "0"] == ["0.001127", "86.44 %", "0.001306", "82.55 %"]
    assert text.count("No records yet.") == 1  # of SSA


def test_only_finished_runs_are_kept(made):
    for run in (made / "s" / "runs").glob("self-tuned-*"):
        (run / "result.json").unlink()
    (made / "s" / "runs" / f"{TEXT}-seed1" / "result.json").unlink()
    folder = made / "records" / "fewer"
    assert results.keep([made / "s"], folder) == (3, 3)
    study = results.read_kept(folder)
    assert (study.methods, study.seeds) == ((BASE, TEXT), (0, 1))
    assert [(run.method, run.seed) for run in study.runs] == [(BASE, 0), (BASE, 1), (TEXT, 0)]
    shutil.copytree(made / "s", made / "begun")
    for result in (made / "begun" / "runs").glob("*/result.json"):
        result.unlink()
    assert results.keep([made / "begun", made / "s"], folder) == (0, 3)
    with pytest.raises(ConfigError):
        results.keep([made / "begun"], made / "none")
    assert not (made / "none").exists()


def part_of(made, name, method, seed):
    """A study with one of the runs alone, as if it had been made by itself."""
    shutil.copytree(made / "s", made / name)
    for run in (made / name / "runs").iterdir():
        if run.name != f"{method}-seed{seed}":
            shutil.rmtree(run)
    facts = read_facts(made / name)
    facts["methods"] = [each for each in facts["methods"] if each["label"] == method]
    (made / name / "study.toml").write_bytes(sealed_toml({**facts, "seeds": [seed]}))
    return made / name


def test_runs_that_come_one_by_one_are_one_record(made):
    folder = made / "records" / "merged"
    parts = [part_of(made, "a", BASE, 0), part_of(made, "b", TEXT, 1), part_of(made, "c", TEXT, 0)]
    assert results.keep(parts[:1], folder) == (1, 1)
    assert results.keep(parts[1:], folder) == (2, 3)
    study = results.read_kept(folder)
    assert (study.methods, study.seeds) == ((BASE, TEXT), (0, 1))
    assert f"--methods {BASE},{TEXT} --seeds 0,1 " in study.command
    whole = {(run.method, run.seed): run for run in read_study(made / "s").runs}
    assert [(run.method, run.seed) for run in study.runs] == [(BASE, 0), (TEXT, 0), (TEXT, 1)]
    for run in study.runs:
        same = whole[run.method, run.seed]
        assert (run.metrics, run.moves, run.result) == (same.metrics, same.moves, same.result)


def test_a_run_that_comes_again_must_be_the_same(made):
    folder = made / "records" / "kept"
    packed, plan = ((folder / name).read_bytes() for name in (results.PACKED, results.STUDY))
    metrics = made / "s" / "runs" / f"{TEXT}-seed1" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]

    def write(key, factor):
        changed = [{**line, key: line[key] * factor} for line in lines]
        metrics.write_text("".join(json.dumps(line) + "\n" for line in changed))
        (metrics.parent / "SHA256SUMS").unlink(missing_ok=True)

    write("training_seconds", 2)  # another machine
    assert results.keep([made / "s"], folder) == (0, 6)
    write("validation_loss", 1.01)
    with pytest.raises(ConfigError, match=f"{TEXT}-seed1"):
        results.keep([made / "s"], folder)
    facts = read_facts(made / "s")
    for method in facts["methods"]:
        method["config"]["batch_size"] += 1
    (made / "s" / "study.toml").write_bytes(sealed_toml(facts))
    with pytest.raises(ConfigError, match="batch_size"):
        results.keep([made / "s"], folder)
    assert [(folder / name).read_bytes() for name in (results.PACKED, results.STUDY)] == [
        packed,
        plan,
    ]


def test_every_run_tells_how_it_was_made(made):
    first, second = part_of(made, "a", BASE, 0), part_of(made, "b", TEXT, 0)
    config = second / "runs" / f"{TEXT}-seed0" / "config.toml"
    told = tomllib.loads(config.read_text())
    told["environment"] |= {"commit": "1" * 40, "torch": "9.9"}
    del told["environment"]["cpu"]
    config.write_text(tomli_w.dumps(told))
    (config.parent / "SHA256SUMS").unlink(missing_ok=True)
    folder = made / "records" / "merged"
    results.keep([first, second], folder)
    made_with = [run.config["environment"] for run in results.read_kept(folder).runs]
    assert made_with[0]["cpu"] == cpu_name()
    assert made_with[1]["torch"] == "9.9"
    rows = block(fill(MARKS, [results.read_kept(folder)]), "records")
    assert [row[1] for row in rows] == [f"{BASE} 0", f"{TEXT} 0"]
    assert rows[1][2].endswith("1" * 12)
    assert f"cpu {cpu_name()}" in rows[0][3]
    assert "torch 9.9" in rows[1][3]
    assert "cpu not recorded" in rows[1][3]
