"""python -m benchmarks.quality: what is run, what is recorded, what is said."""

import json

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality import page
from benchmarks.quality import records as files
from benchmarks.quality.bases import GRIDS
from benchmarks.quality.methods import at_rate
from benchmarks.quality.records import Key, RecordsError
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
            for task in ("digits", "cancer")
            for seed in (0, 1)
            for base in ("adamw", "sgd")
            for method in ("held-at-0.003", "held-at-0.01", "cosine-at-0.01", "held-centre", "dog")
            for factor in (1.0, 10.0)
        ]
        return [key for key in keys if command._filter(options)(key)], keys

    def test_all_by_default(self, parse):
        found, keys = self.wanted(parse())
        assert found == keys

    @pytest.mark.parametrize(
        ("arguments", "field", "values"),
        [
            (("--half", "open"), "task", {"digits"}),
            (("--half", "sealed"), "task", {"cancer"}),
            (("--tasks", "cancer,graph"), "task", {"cancer"}),
            (("--seeds", "1,1,7"), "seed", {1}),
            (("--bases", "sgd"), "base", {"sgd"}),
            (("--length-factor", "10"), "length_factor", {10.0}),
            (("--methods", "held"), "method", {"held-at-0.003", "held-at-0.01"}),
            (("--methods", "dog,held-centre"), "method", {"dog", "held-centre"}),
        ],
    )
    def test_each_chooses_by_itself(self, parse, arguments, field, values):
        found, keys = self.wanted(parse(*arguments))
        assert found == [key for key in keys if getattr(key, field) in values]

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
            (("--vary", "beleif=1"), "unknown constant 'beleif'"),
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
        options = parse("--results", str(tmp_path), "--tasks", "cancer", "--methods", "held")
        adamw = [key for key in command._missing(options) if key.base == "adamw"]
        assert {key.method for key in adamw} == {at_rate("held", r) for r in GRIDS["adamw"]}
        records.put_grid("cancer", 3e-2)
        write(tmp_path / "quality.jsonl", records)
        adamw = [key for key in command._missing(options) if key.base == "adamw"]
        at_usual_length = [key for key in adamw if key.length_factor == 1]
        assert {(key.seed, key.method) for key in at_usual_length} == {
            *((seed, "held-at-0.03") for seed in (1, 2, 3, 4)),
            *((seed, "held-at-0.003") for seed in (1, 2, 3, 4)),  # the centre
        }

    def test_a_variant_is_of_ours_alone(self, tmp_path, parse, records):
        arguments = (
            "--results",
            str(tmp_path),
            "--tasks",
            "two-groups",
            "--vary",
            "stay=3,spacing=3",
        )
        expected = [
            Key("two-groups", seed, base, "self-tuned", "stay=3,spacing=3")
            for base, seeds in (("adamw", range(5)), ("sgd", range(2)))
            for seed in seeds
        ]
        assert command._missing(parse(*arguments)) == expected
        records.put("two-groups", "self-tuned", 1.0, variant="stay=3,spacing=3", seed=2)
        records.put("two-groups", "self-tuned", 1.0, seed=3)  # as it is: another run
        write(tmp_path / "quality.jsonl", records)
        expected.remove(Key("two-groups", 2, "adamw", "self-tuned", "stay=3,spacing=3"))
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
    assert "## Sealed half, AdamW" in first
    command.main(["--results", str(folder), "--page-only"])
    assert text.read_text(encoding="utf-8") == first
    assert capsys.readouterr().out == 3 * f"page: {folder / 'quality.html'}\n"


def test_what_is_missing_is_run_once(tmp_path, records, capsys, monkeypatch):
    """A grid of one task over SGD without one rate: one run, and no second one."""
    for rate in GRIDS["sgd"]:
        if rate != 0.1:
            score = 0.5 + rate
            records.put("cancer", at_rate("held", rate), score, base="sgd")
    path = tmp_path / "quality.jsonl"
    write(path, records)
    arguments = ["--tasks", "cancer", "--methods", "held", "--bases", "sgd"]
    arguments += ["--seeds", "0", "--length-factor", "1", "--results", str(tmp_path)]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the command sets
    command.main(arguments)
    key = Key("cancer", 0, "sgd", "held-at-0.1")
    known = files.read(path)
    assert known.keys() - records.keys() == {key}
    assert len(path.read_text(encoding="utf-8").splitlines()) == 9
    run = known[key]
    assert run["cost"] == run["minibatches"] == run["budget"] == 1200
    assert 0 < run["test"] < 0.6  # it starts at log 2
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
