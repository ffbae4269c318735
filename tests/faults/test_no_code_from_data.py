"""Nothing that is read is run: no file of the package could, and a pickle in a run is refused."""

import ast
import hashlib
import io
import json
import pickle
from pathlib import Path

import pytest
import torch

from annealtune.errors import AnnealtuneError
from annealtune.training import load, run
from annealtune.training.stopping import StopRequest

PACKAGE = Path(__file__).parents[2] / "src" / "annealtune"
NEVER = ("eval(", "exec(", "pickle.load", "marshal.load", "yaml.load(", "os.system(", "joblib.load")
NOWHERE = ("extractall(", "shell=True", "weights_only=False", "allow_pickle=True")


def unsafe_calls(text: str) -> list[str]:
    """The calls in a module that could run what they read."""
    calls = (ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        call
        for call in calls
        if call.startswith(NEVER)
        or any(word in call for word in NOWHERE)
        or (call.startswith("torch.load(") and "weights_only=True" not in call)
    ]


def test_no_data_is_run_as_code():
    paths = sorted(PACKAGE.rglob("*.py"))
    found = {path.name: unsafe_calls(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("eval('1')", 1),
        ("import pickle\npickle.loads(b)", 1),
        ("torch.load(f)", 1),
        ("torch.load(f, weights_only=False)", 1),
        ("subprocess.run('ls', shell=True)", 1),
        ("model.eval()", 0),
        ("torch.load(f, map_location='cpu', weights_only=True)", 0),
        ("re.compile('x')", 0),
    ],
)
def test_an_unsafe_call_is_found(text, count):
    assert len(unsafe_calls(text)) == count


class Creates:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def canary(place):
    """The file that code in a pickle would make, and that pickle, raw and as torch saves it."""
    path = place / "canary"
    poison = pickle.dumps(Creates(path))
    pickle.loads(poison)
    assert path.exists()  # else the tests below could not fail
    path.unlink()
    saved = io.BytesIO()
    torch.save({"model": Creates(path)}, saved)
    return path, {"pickle": poison, "torch": saved.getvalue()}


def as_checkpoint(poison, run_dir, tiny):
    """With the right digest: whoever can write the one can write the other."""
    for path in (run_dir / "checkpoints").iterdir():
        path.unlink()
    name = f"step-0000000006-{hashlib.sha256(poison).hexdigest()}.pt"
    (run_dir / "checkpoints" / name).write_bytes(poison)
    (run_dir / "result.json").unlink()
    run(tiny(epochs=1), run_dir, stop=StopRequest(after_epoch=1))


def as_weights(poison, run_dir, tiny):
    (run_dir / "result.json").unlink()
    facts = json.loads((run_dir / "best.json").read_text())
    facts["sha256"] = hashlib.sha256(poison).hexdigest()
    (run_dir / "best.json").write_text(json.dumps(facts))
    (run_dir / "best.safetensors").write_bytes(poison)
    load(run_dir)


@pytest.mark.parametrize("form", ["pickle", "torch"])
@pytest.mark.parametrize("read", [as_checkpoint, as_weights])
def test_a_pickle_is_never_unpickled(read, form, canary, complete, tiny):
    path, poisons = canary
    with pytest.raises(AnnealtuneError):
        read(poisons[form], complete(epochs=1), tiny)
    assert not path.exists()
