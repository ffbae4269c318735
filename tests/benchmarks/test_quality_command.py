"""python -m benchmarks.quality: what is run, what is recorded, what is said."""

import itertools
import json

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality import page
from benchmarks import records as files
from benchmarks.quality.methods import at_rate
from benchmarks.quality.oracle import tried_rates
from benchmarks.records import Key, RecordsError
from benchmarks.quality.tasks.catalogue import OPEN, SEALED, TASKS


@pytest.fixture
def parse():
    return lambda *arguments: command._parser().parse_args(arguments)


def write(path, known):
    for record in known.values():
        files.append(path, record)


class TestRecords:
    def test_they_are_read_as_they_were_written(self, tmp_path, three):
        path = tmp_path / "new" / "quality.jsonl"
        assert files.read(path) == {}
        write(path, three)
        assert files.read(path) == three
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [files.key_of(json.loads(line)) for line in lines] == list(three)

    def test_of_runs_made_again_the_last_counts(self, tmp_path, records):
        path = tmp_path / "quality.jsonl"
        for score in (3.0, 2.0):
            records.put("digits", "self-tuned", score)
            write(path, records)
        assert files.read(path) == records
        assert [run["test"] for run in files.read(path).values()] == [2.0]

    def test_a_line_that_was_cut_off_is_left_out_and_replaced(self, tmp_path, three):
        path = tmp_path / "quality.jsonl"
        write(path, three)
        whole = path.read_bytes()
        last = list(three)[-1]
        others = {key: run for key, run in three.items() if key != last}
        for cut in (1, 2, 20, len(json.dumps(three[last]))):
            path.write_bytes(whole[:-cut])
            assert files.read(path) == others
            files.append(path, three[last])
            assert path.read_bytes() == whole

    def test_a_file_that_is_nothing_but_a_piece_of_a_line(self, tmp_path, three):
        path = tmp_path / "quality.jsonl"
        path.write_bytes(b'{"task": "dig')
        assert files.read(path) == {}
        write(path, three)
        assert files.read(path) == three

    @pytest.mark.parametrize("broken", ["{", "", "17", '{"task": "digits", "seed": 0}', "[]"])
    def test_another_broken_line_is_named(self, tmp_path, three, broken, capsys):
        path = tmp_path / "quality.jsonl"
        write(path, three)
        lines = path.read_text(encoding="utf-8").splitlines()
        lines.insert(2, broken)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with pytest.raises(RecordsError, match=r"quality\.jsonl, line 3 is no record"):
            files.read(path)
        with pytest.raises(SystemExit, match=r"^error: .*line 3 is no record"):
            command.main(["--results", str(tmp_path), "--page-only"])
        assert not (tmp_path / "quality.html").exists()

    def test_what_is_no_json_is_not_written(self, tmp_path, three):
        path = tmp_path / "quality.jsonl"
        write(path, three)
        before = path.read_bytes()
        with pytest.raises(ValueError, match="JSON"):
            files.append(path, {**next(iter(three.values())), "test": float("nan")})
        assert path.read_bytes() == before


class TestOptions:
    def wanted(self, options):
        """The keys, of some of every kind, that are left by the options."""
        keys = [
            Key(task, seed, base, method, "", factor)
            for task in ("digits", "graph", "cancer")
            for seed in (0, 1)
            for base in ("adamw", "sgd")
            for method in ("held-at-0.003", "held-at-0.01", "cosine-at-0.01", "held-centre", "dog")
            for factor in (1.0, 10.0)
        ]
        return [key for key in keys if command._filter(options)(key)], keys

    def test_all_open_tasks_by_default(self, parse):
        found, keys = self.wanted(parse())
        assert found == [key for key in keys if key.task != "cancer"]

    def test_a_sealed_task_is_not_run_by_accident(self, tmp_path, capsys):
        with pytest.raises(SystemExit):
            command.main(["--tasks", "digits,cancer", "--results", str(tmp_path)])
        assert "cancer" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("arguments", "field", "values"),
        [
            (("--half", "sealed"), "task", {"cancer"}),
            (("--tasks", "graph,deep"), "task", {"graph"}),
            (("--seeds", "1,1,7"), "seed", {1}),
            (("--bases", "sgd"), "base", {"sgd"}),
            (("--length-factor", "10"), "length_factor", {10.0}),
            (("--methods", "held"), "method", {"held-at-0.003", "held-at-0.01"}),
            (("--methods", "dog,held-centre"), "method", {"dog", "held-centre"}),
        ],
    )
    def test_each_chooses_by_itself(self, parse, arguments, field, values):
        found, keys = self.wanted(parse(*arguments))
        half = [key for key in keys if (key.task == "cancer") == ("sealed" in arguments)]
        assert found == [key for key in half if getattr(key, field) in values]

    def test_together_they_choose_what_all_want(self, parse):
        arguments = ("--tasks", "digits", "--seeds", "0", "--bases", "sgd", "--methods", "cosine")
        found, _ = self.wanted(parse(*arguments, "--length-factor", "1"))
        assert found == [Key("digits", 0, "sgd", "cosine-at-0.01")]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--tasks", "digits,digit"), "unknown digit; there are digits, "),
            (("--methods", "adam"), "unknown adam"),
            (("--bases", "sgd,"), "unknown "),
            (("--seeds", "1,two"), "must be whole numbers, got '1,two'"),
            (("--seeds", "-1"), "seeds"),
            (("--vary", "beleif=1"), "unknown name 'beleif'"),
            (("--half", "third"), "invalid choice"),
        ],
    )
    def test_mistakes_are_told(self, parse, capsys, arguments, message):
        with pytest.raises(SystemExit):
            parse(*arguments)
        assert message in capsys.readouterr().err

    def test_the_halves_are_all(self):
        assert command.HALVES == {"open": OPEN, "sealed": SEALED}
        assert {**OPEN, **SEALED} == TASKS


class TestMissing:
    def test_what_is_recorded_is_not_run_again(self, tmp_path, parse, records):
        arguments = ("--tasks", "digits", "--methods", "held", "--bases", "adamw")
        options = parse("--results", str(tmp_path), *arguments)
        first = tried_rates({}, "digits", "adamw")
        expected = {Key("digits", s, "adamw", at_rate("held", r)) for r in first for s in range(3)}
        assert set(command._missing(options)) == expected
        records.put_grid("digits", 3e-2)
        del records[Key("digits", 2, "adamw", "held-at-0.03")]
        write(tmp_path / "quality.jsonl", records)
        assert command._missing(options) == [Key("digits", 2, "adamw", "held-at-0.03")]

    def test_a_variant_is_of_ours_alone(self, tmp_path, parse, records):
        arguments = ("--results", str(tmp_path), "--tasks", "graph", "--vary", "stay=3,spacing=3")
        expected = [
            Key("graph", seed, base, "self-tuned", "stay=3,spacing=3")
            for base in ("adamw", "sgd")
            for seed in range(3)
        ]
        assert command._missing(parse(*arguments)) == expected
        records.put("graph", "self-tuned", 1.0, variant="stay=3,spacing=3", seed=2)
        records.put("graph", "self-tuned", 1.0, seed=1)  # as it is: another run
        write(tmp_path / "quality.jsonl", records)
        expected.remove(Key("graph", 2, "adamw", "self-tuned", "stay=3,spacing=3"))
        assert command._missing(parse(*arguments)) == expected
        assert command._missing(parse(*arguments, "--methods", "prodigy")) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "digits, seed 0, adamw, dog: test 0.1235, cost 99.3 of 100, 2.0 s"),
        ({"rate": 0.00301}, "digits, seed 0, adamw, dog: test 0.1235, rate 0.00301, cost 99.3 of "),
        ({"test": None}, "digits, seed 0, adamw, dog: broken, cost 99.3 of 100, 2.0 s"),
        ({"variant": "stay=3"}, "digits, seed 0, adamw, dog, stay=3: test"),
        ({"length_factor": 10.0}, "digits, seed 0, adamw, dog, 10 times the length: test"),
        ({"failure": "OSError: gone"}, "digits, seed 0, adamw, dog: failed, OSError: gone"),
    ],
)
def test_a_line_for_every_run(records, changes, line):
    records.put("digits", "dog", 0.12345, cost=99.3)
    (record,) = records.values()
    assert command._progress({**record, **changes}).startswith(line)


def test_the_page_and_the_tables_follow_the_records(tmp_path, three, capsys):
    folder = tmp_path / "results"
    command.main(["--results", str(folder), "--page-only"])
    assert "no finished comparison" in (folder / "quality.html").read_text(encoding="utf-8")
    write(folder / "quality.jsonl", three)
    text = folder / "quality.md"
    text.write_text("before\n<!-- tables -->\nof last week\n<!-- end of tables -->\nafter\n")
    command.main(["--results", str(folder), "--page-only"])
    first = text.read_text(encoding="utf-8")
    assert first.startswith("before\n")
    assert first.endswith("<!-- end of tables -->\nafter\n")
    assert "of last week" not in first
    assert page.markdown(three) in first
    assert "## Sealed tasks, AdamW" in first
    command.main(["--results", str(folder), "--page-only"])
    assert text.read_text(encoding="utf-8") == first
    assert capsys.readouterr().out == 3 * f"page: {folder / 'quality.html'}\n"


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
    assert len(path.read_text(encoding="utf-8").splitlines()) == 18
    run = known[key]
    assert run["cost"] == run["minibatches"] == run["budget"] == 1200
    assert 0 < run["test"] < 0.6  # it starts at log 10
    assert capsys.readouterr().out.splitlines() == [
        f"1 of 1: {command._progress(run)}",
        f"page: {tmp_path / 'quality.html'}",
    ]
    shown = (tmp_path / "quality.html").read_text(encoding="utf-8")
    assert shown == page.render(known)

    before = path.read_bytes()
    command.main(arguments)
    assert capsys.readouterr().out == f"page: {tmp_path / 'quality.html'}\n"
    assert path.read_bytes() == before
    assert (tmp_path / "quality.html").read_text(encoding="utf-8") == shown
