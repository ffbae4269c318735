"""No file of the package runs what it reads: seen in the syntax tree of every one."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "annealtune"
PATHS = sorted(PACKAGE.rglob("*.py"))

NEVER_CALLED = {
    "eval", "exec", "builtins.eval", "builtins.exec",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads",
    "shelve.open", "cloudpickle.load", "cloudpickle.loads", "dill.load", "dill.loads",
    "joblib.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen",
    "compile", "builtins.compile", "__import__", "subprocess.getoutput", "runpy.run_path",
    "tarfile.TarFile.extractall", "shutil.unpack_archive", "torch.jit.load", "pandas.read_pickle",
}  # fmt: skip
KEYWORD_REQUIRED = {"torch.load": ("weights_only", True)}
KEYWORD_FORBIDDEN = {
    "numpy.load": ("allow_pickle", False),
    "numpy.lib.format.read_array": ("allow_pickle", False),
}
# Methods by their last name, of whatever object: they write wherever an archive says.
NEVER_CALLED_ON_ANYTHING = {"extractall"}


def imported_names(node: ast.AST) -> dict[str, str]:
    """The names that an import statement binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            for alias in node.names
        }
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {}


def unsafe_calls(text: str) -> list[str]:
    """The calls in a module that could run what they read, by their full names."""
    nodes = list(ast.walk(ast.parse(text)))
    stands_for: dict[str, str] = {}
    for node in nodes:
        stands_for |= imported_names(node)
    found = []
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        first, dot, rest = ast.unparse(node.func).partition(".")
        name = stands_for.get(first, first) + dot + rest
        given = {k.arg: getattr(k.value, "value", ...) for k in node.keywords}
        in_a_shell = given.get("shell", False) is not False
        required = KEYWORD_REQUIRED.get(name)
        forbidden = KEYWORD_FORBIDDEN.get(name)
        if (
            name in NEVER_CALLED
            or in_a_shell
            or name.rpartition(".")[2] in NEVER_CALLED_ON_ANYTHING
            or (required and given.get(required[0]) is not required[1])
            or (forbidden and given.get(forbidden[0], forbidden[1]) is not forbidden[1])
        ):
            found.append(f"line {node.lineno}: {name}")
    return found


def test_no_data_is_run_as_code() -> None:
    found = {
        str(path.relative_to(PACKAGE)): unsafe_calls(path.read_text(encoding="utf-8"))
        for path in PATHS
    }
    assert found
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "exec('1')",
        "import pickle\npickle.load(f)",
        "import pickle as p\np.loads(b)",
        "from pickle import load as read\nread(f)",
        "import yaml\nyaml.load(f, Loader=yaml.Loader)",
        "import torch\ntorch.load(f)",
        "import torch\ntorch.load(f, weights_only=False)",
        "from torch import load\nload(f, map_location='cpu')",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from subprocess import Popen\nPopen(words, shell=flag)",
        "import marshal\nmarshal.loads(b)",
        "import os\nos.system('ls')",
        "import tarfile\ntarfile.open(f).extractall()",
    ],
)
def test_an_unsafe_call_is_found(text: str) -> None:
    assert len(unsafe_calls(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "import pickle\ntry: ...\nexcept pickle.UnpicklingError: ...",
        "import torch\ntorch.load(f, map_location='cpu', weights_only=True)",
        "import numpy as np\nnp.load(f)\nnp.load(f, allow_pickle=False)",
        "import yaml\nyaml.safe_load(f)",
        "import json\njson.load(f)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import re\nre.compile('x')",
    ],
)
def test_a_safe_call_is_left_alone(text: str) -> None:
    assert unsafe_calls(text) == []
