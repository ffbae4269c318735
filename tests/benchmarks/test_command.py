"""The command lines of the benchmarks: what is run, what is recorded, what is shown."""

import itertools
import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import records as files
from benchmarks.quality import __main__ as command
from benchmarks.quality import page
from benchmarks.quality.methods import at_rate
from benchmarks.quality.oracle import tried_rates
from benchmarks.records import Key, RecordsError

ROOT = Path(__file__).parents[2]
FILES = [path for path in (ROOT / "benchmarks").rglob("*.py") if path.stem != "__main__"]


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: path.stem)
def test_every_benchmark_can_be_imported(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    import_module(".".join(parts).removesuffix(".__init__"))


def parse(*arguments):
    return command._parser().parse_args(arguments)


def write(path, known):
    for record in known.values():
        files.append(path, record)


class TestRecords:
    def test_they_are_read_as_they_were_written_and_the_last_counts(self, tmp_path, three):
        path = tmp_path / "new" / "quality.jsonl"
        assert files.read(path) == {}
        write(path, three)
        assert files.read(path) == three
        three.put("low", "self-tuned", 2.0)
        write(path, three)
        assert files.read(path) == three

    def test_a_line_that_was_cut_off_is_left_out_and_replaced(self, tmp_path, three):
        path = tmp_path / "quality.jsonl"
        write(path, three)
        whole = path.read_bytes()
        *others, last = three
        for cut in (1, 20, len(json.dumps(three[last]))):
            path.write_bytes(whole[:-cut])
            assert list(files.read(path)) == others
            files.append(path, three[last])
            assert path.read_bytes() == whole

    @pytest.mark.parametrize("broken", ["{", "", "17", '{"task": "digits", "seed": 0}'])
    def test_another_broken_line_is_named(self, tmp_path, three, broken):
        path = tmp_path / "quality.jsonl"
        write(path, three)
        path.write_text(f"{broken}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
        with pytest.raises(RecordsError, match=r"quality\.jsonl, line 1"):
            files.read(path)
        with pytest.raises(SystemExit, match="line 1"):
            command.main(["--results", str(tmp_path)])
        assert not (tmp_path / "pages").exists()


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "field", "values"),
        [
            ((), "task", {"digits", "graph"}),  # a sealed one is not run by accident
            (("--half", "sealed"), "task", {"cancer"}),
            (("--tasks", "graph,deep"), "task", {"graph"}),
            (("--seeds", "1,7"), "seed", {1}),
            (("--bases", "sgd"), "base", {"sgd"}),
            (("--length-factor", "10"), "length_factor", {10}),
            (("--methods", "dog"), "method", {"dog"}),
            (("--methods", "held"), "method", {"held-at-0.003", "held-at-0.01"}),
        ],
    )
    def test_each_leaves_what_it_names(self, arguments, field, values):
        methods = ("held-at-0.003", "held-at-0.01", "cosine-at-0.01", "held-centre", "dog")
        fields = (("digits", "graph", "cancer"), (0, 1), ("adamw", "sgd"), methods, ("",), (1, 10))
        keys = itertools.starmap(Key, itertools.product(*fields))
        found = filter(command._filter(parse(*arguments)), keys)
        assert {getattr(key, field) for key in found} == values

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (["--tasks", "digits,digit"], "digit;"),
            (["--tasks", "digits,cancer"], "cancer"),
            (["--seeds", "0,-1"], "'0,-1'"),
            (["--vary", "beleif=1"], "beleif"),
        ],
    )
    def test_mistakes_are_told(self, tmp_path, capsys, arguments, named):
        with pytest.raises(SystemExit):
            command.main([*arguments, "--results", str(tmp_path)])
        assert named in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


def test_a_variant_is_of_ours_alone(tmp_path, records):
    arguments = ("--results", str(tmp_path), "--tasks", "graph", "--vary", "grace=3")
    expected = [
        Key("graph", seed, base, "self-tuned", "grace=3")
        for base, seeds in (("adamw", 5), ("sgd", 3))
        for seed in range(seeds)
    ]
    assert command._missing(parse(*arguments)) == expected
    records.put("graph", "self-tuned", 1.0, variant="grace=3", seed=2)
    records.put("graph", "self-tuned", 1.0, seed=1)  # as it is: another run
    write(tmp_path / "quality.jsonl", records)
    expected.remove(Key("graph", 2, "adamw", "self-tuned", "grace=3"))
    assert command._missing(parse(*arguments)) == expected


def test_the_page_and_the_tables_follow_the_records(tmp_path, three):
    write(tmp_path / "quality.jsonl", three)
    text = tmp_path / "quality.md"
    text.write_text("before\n<!-- tables -->\nof last week\n<!-- end of tables -->\nafter\n")
    for _ in range(2):
        command.build(tmp_path)
        built = text.read_text(encoding="utf-8")
        assert built == (
            f"before\n<!-- tables -->\n\n{page.markdown(three)}\n<!-- end of tables -->\nafter\n"
        )
    assert (tmp_path / "pages" / "quality.html").read_text(encoding="utf-8") == page.render(three)


def test_what_is_missing_is_run_once(tmp_path, records, capsys, monkeypatch):
    """A grid of one task over SGD without one run: that is made, and no second one."""
    pytest.importorskip("sklearn")  # it has the digits
    key = Key("digits", 0, "sgd", "held-at-0.1")
    for seed, rate in itertools.product(range(3), tried_rates({}, "digits", "sgd")):
        score = 0.2 + abs(rate - 0.3)
        records.put("digits", at_rate("held", rate), score, base="sgd", seed=seed)
    del records[key]
    path = tmp_path / "quality.jsonl"
    write(path, records)
    arguments = ["--tasks", "digits", "--methods", "held", "--bases", "sgd"]
    arguments += ["--results", str(tmp_path), "--cache", str(tmp_path / "cache")]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the command sets
    command.main(arguments)
    known = files.read(path)
    assert known.keys() - records.keys() == {key}
    assert known[key]["cost"] == known[key]["budget"] == 1200
    assert 0 < known[key]["test"] < 0.6  # it starts at log 10
    assert "1 of 1: digits, seed 0, sgd, held-at-0.1: test" in capsys.readouterr().out
    before = path.read_bytes()
    command.main(arguments)
    assert path.read_bytes() == before
