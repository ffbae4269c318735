"""Options that cannot be: exit code 2 and one message with key, rule and value, no traceback."""

import subprocess
import sys

import pytest

BLOCK = {
    # the keys of one block
    "a strategy nobody knows": (
        "strategy = 'tabuu'",
        [
            "sgd-sa.strategy: must be one of simulated-annealing",
            "got 'tabuu'; did you mean 'tabu'?",
        ],
    ),
    "another spelling": ("strategy = 'Late_Acceptance'", ["did you mean 'late-acceptance'?"]),
    "no name at all": ("strategy = 3", ["sgd-sa.strategy: input should be a valid string, got 3"]),
    "no form": ("strategy = 'a/b:C'", ["strategy = 'a/b:C'", "must have the form"]),
    "an option nobody knows": (
        "strategy = 'tabu'\nstrategy_options = { tenur = 3 }",
        ["sgd-sa.strategy_options: the options of Tabu", "got 'tenur'; did you mean 'tenure'?"],
    ),
    "an option of nobody": (
        "strategy_options = { tenure = 3 }",
        [
            "sgd-sa.strategy_options: SimulatedAnnealing has no options: there must be none, got "
            "'tenure'"
        ],
    ),
    "a key that is near to none": (
        "rate = 0.1",
        ["sgd-sa.rate: unknown key; known keys: lr, momentum"],
    ),
    "a temperature as an option": (
        "strategy = 'genetic'\nstrategy_options = { temperature = 3.0 }",
        ["the options of Genetic must be among", "got 'temperature'"],
    ),
    "a tenure too long": (
        "strategy = 'tabu'\nstrategy_options = { tenure = 14 }",
        ["must be smaller than the number of settings in H, here 14, got 14"],
    ),
    "a tenure below zero": (
        "strategy = 'tabu'\nstrategy_options = { tenure = -1 }",
        ["sgd-sa.strategy_options: Tabu(tenure=...) must be at least 0, got -1"],
    ),
    "a tenure in words": (
        "strategy = 'tabu'\nstrategy_options = { tenure = 'two' }",
        ["Tabu(tenure=...) must be a whole number, got 'two'"],
    ),
    "a population of one": (
        "strategy = 'genetic'\nstrategy_options = { population = 1 }",
        ["Genetic(population=...) must be at least 2, got 1"],
    ),
    "options that are no table": ("strategy_options = 3", ["sgd-sa.strategy_options", "got 3"]),
    "levels that H has not": (
        "strategy = 'variable-neighborhood'\nlr = [0.5, 0.1]",
        ["VariableNeighborhood(levels=...) must not exceed", "here 2"],
    ),
    "a temperature for tabu": (
        "strategy = 'tabu'\ntemperature = 1.0\ncooling_factor = 0.5",
        ["temperature = 1.0: must be left out with strategy = 'tabu', which takes no temperature"],
    ),
    "a preset of another strategy": (
        "strategy = 'genetic'\npreset = 'paper-text'",
        ["preset = 'paper-text' needs strategy = 'simulated-annealing'", "got 'genetic'"],
    ),
    "a preset and the next minibatch": (
        "accept_batch = 'next'\npreset = 'paper-code'",
        ["preset = 'paper-code'", "accept_batch = 'next'"],
    ),
    "candidates on the next minibatch": (
        "accept_batch = 'next'\nstrategy = 'tabu'",
        ["compares 3 candidates a step", "strategy_options = { candidates = 1 }"],
    ),
    "candidates with other gradients": (
        "label_smoothing = [0.0, 0.1]\nstrategy = 'tabu'",
        ["each value of label_smoothing in H needs a gradient of its own"],
    ),
    "judged by nothing known": (
        "accept_on = 'accuracy'",
        ["sgd-sa.accept_on: must be one of loss, error or package.module:function, got 'accuracy'"],
    ),
    "judged nowhere": (
        "accept_batch = 'previous'",
        ["must be one of same, next, held-out, got 'previous'"],
    ),
    "held out for nothing": (
        "held_out_fraction = 0.3",
        ["held_out_fraction = 0.3 needs accept_batch = 'held-out', got 'same'"],
    ),
    "all of it held out": (
        "held_out_fraction = 1.0\naccept_batch = 'held-out'",
        ["sgd-sa.held_out_fraction: input should be less than 1, got 1.0"],
    ),
    "a strength without augmentation": (
        "augment_strength = [0.5]",
        ["augment = 'none': must be crop-flip with sgd-sa.augment_strength"],
    ),
    "a strength above one": ("augment_strength = [1.5]", ["sgd-sa.augment_strength.0", "got 1.5"]),
    "all is dropped": ("dropout = 1.0", ["sgd-sa.dropout.0", "less than 1, got 1.0"]),
    "all is smooth": ("label_smoothing = [1.0]", ["sgd-sa.label_smoothing.0", "got 1.0"]),
    "no norm": ("clip_norm = [0.0]", ["sgd-sa.clip_norm.0", "greater than 0, got 0.0"]),
    "an endless norm": ("clip_norm = [inf]", ["sgd-sa.clip_norm.0", "finite", "got inf"]),
    "a table of rates without its end": (
        "lr = { low = 0.1, count = 3 }",
        ["sgd-sa.lr: must be a value, a list of values or { low =", "got the keys low, count"],
    ),
    "a table of rates that falls": (
        "lr = { low = 1.0, high = 0.1, count = 3 }",
        ["sgd-sa.lr", "0 < low < high < inf, got 1.0 and 0.1"],
    ),
    "a table of too many rates": (
        "lr = { low = 0.1, high = 1.0, count = 1000000 }",
        ["sgd-sa.lr", "count at most 1000, got 1000000"],
    ),
    "a table of words": (
        "lr = { low = 'a', high = 1.0, count = 3 }",
        ["must be a number, got 'a'"],
    ),
    "half a rate": ("lr = { low = 0.1, high = 1.0, count = 2.5 }", ["whole number, got 2.5"]),
    "scales within each other": (
        "scales = { features = 0.5, 'features.0' = 2.0 }",
        ["sgd-sa.scales: must name different parts", "'features' and 'features.0'"],
    ),
    "a scale below zero": ("scales = { features = -0.5 }", ["sgd-sa.scales.features", "got -0.5"]),
    "scales that are no table": ("scales = 0.5", ["sgd-sa.scales", "got 0.5"]),
}


@pytest.mark.parametrize("case", BLOCK)
def test_by_the_config(program, place, case):
    text, told = BLOCK[case]
    (place / "run.toml").write_text(f'method = "sgd-sa"\n[sgd-sa]\n{text}\n')
    refused = program("train", "run.toml", "--out", "refused")
    assert refused.code == 2
    assert refused.err.startswith("annealtune: run.toml: ")
    for words in told:
        assert words in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (place / "refused").exists()


def test_half_precision_and_the_next_minibatch(program):
    refused = program(
        "train", "--method", "sgd-sa", "--accept-batch", "next", "--precision", "fp16"
    )
    assert refused.code == 2
    assert "precision = 'fp16': must be fp32 or bf16 with sgd-sa.accept_batch" in refused.err
    other = program("config", "--method", "sgd", "--precision", "fp16", "--set", "augment=none")
    assert other.code == 0, "a block that is not chosen says nothing"


@pytest.mark.parametrize(
    ("betas", "told"),
    [
        ("[0.9]", "adamw-sa.betas: must be pairs such as [[0.9, 0.999]], got [0.9]"),
        ("[[0.9], [0.5, 0.9]]", "pairs such as [[0.9, 0.999]], got [[0.9], [0.5, 0.9]]"),
        ("[[0.9, 1.0]]", "adamw-sa.betas.0.1: input should be less than 1, got 1.0"),
        ("0.9", "adamw-sa.betas: must be pairs such as [[0.9, 0.999]], got 0.9"),
        ("[0.9, 0.99, 0.999]", "adamw-sa.betas: must be pairs such as [[0.9, 0.999]], got [0.9, "),
        ("[]", "at least one setting"),
    ],
)
def test_betas_that_are_no_pairs(program, betas, told):
    refused = program("config", "--method", "adamw-sa", "--set", f"adamw-sa.betas={betas}")
    assert refused.code == 2
    assert told in refused.err


# --- What is known when the run starts ---

FUNCTIONS = """
import torch

def nan(model, minibatch):
    return float("nan")

def late_nan(model, minibatch):
    return torch.tensor(float("inf"))

def text(model, minibatch):
    return "0.5"

def nothing(model, minibatch):
    model(minibatch.inputs)

def truth(model, minibatch):
    return True

def vector(model, minibatch):
    return model(minibatch.inputs).mean(0)

def imaginary(model, minibatch):
    return torch.tensor(1j)

def failing(model, minibatch):
    raise ZeroDivisionError("by hand")

def short(model):
    return 0.0

number = 0.5
"""
KEY = "sgd-sa.accept_on = 'functions:{}': "
RETURNED = {
    "nan": "must return a finite number at the current weights, got nan",
    "late_nan": "must return a finite number at the current weights, got inf",
    "text": "must return a number or a tensor of one number, got '0.5'",
    "nothing": "must return a number or a tensor of one number, got None",
    "truth": "must return a number or a tensor of one number, got True",
    "vector": "got a tensor of shape (10,) and torch.float32",
    "imaginary": "got a tensor of shape () and torch.complex64",
    "failing": "calling it with (model, minibatch) failed: ZeroDivisionError: by hand",
    "short": "calling it with (model, minibatch) failed: TypeError: short() takes 1 positional",
    "number": "must be callable, got an object of type float",
    "nobody": "functions has no 'nobody'",
}


@pytest.mark.parametrize("accept_batch", ["same", "next", "held-out"])
@pytest.mark.parametrize("name", RETURNED)
def test_a_function_that_judges_wrongly(program, place, tiny_flags, name, accept_batch):
    (place / "functions.py").write_text(FUNCTIONS)
    flags = ["--accept-on", f"functions:{name}", "--accept-batch", accept_batch]
    refused = program("train", *tiny_flags, *flags, "--out", "refused")
    assert refused.code == 2, refused.err
    message = refused.err.splitlines()[-1]
    assert message.startswith("annealtune: " + KEY.format(name))
    assert RETURNED[name] in message
    assert "Traceback" not in refused.err


def test_a_function_that_finds_only_the_next_point_infinite_rejects_it(
    program, place, tiny_flags, lines_of
):
    (place / "wary.py").write_text(
        "calls = []\n"
        "def judge(model, minibatch):\n"
        "    calls.append(None)\n"
        "    return float('nan') if len(calls) % 2 == 0 else 1.0\n"
    )
    done = program("train", *tiny_flags, "--accept-on", "wary:judge", "--out", "run")
    assert done.code == 0, done.err
    for record in lines_of(place / "run/metrics.jsonl"):
        assert record["acceptance_rate"] == 0.0
        assert record["non_finite"] == 6


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ["--model", "resnet18-w16", "--set", "sgd-sa.dropout=[0.1]"],
            "sgd-sa.dropout: the model must have dropout layers, got a ResNet without",
        ),
        (
            ["--set", "sgd-sa.scales={ clasifier = 0.5 }"],
            "sgd-sa.scales: must be the start of a parameter's name, got 'clasifier'",
        ),
        (
            ["--accept-batch", "held-out", "--set", "sgd-sa.held_out_fraction=0.999"],
            "sgd-sa.held_out_fraction = 0.999",
        ),
    ],
)
def test_what_does_not_fit_model_or_data(program, place, tiny_flags, flags, told):
    refused = program("train", *tiny_flags, *flags, "--out", "refused")
    assert refused.code == 2
    assert refused.err.startswith(f"annealtune: {told}")
    assert len(refused.err.splitlines()) == 1
    assert not (place / "refused/config.toml").exists()


def test_a_strategy_is_checked_without_torch(cold_environment):
    text = (
        "import sys\n"
        "from annealtune.training.config import from_values\n"
        "from annealtune.errors import ConfigError\n"
        "from_values({'sgd-sa': {'strategy': 'tabu', 'strategy_options': {'tenure': 3}}})\n"
        "try:\n"
        "    from_values({'sgd-sa': {'strategy': 'tabu', 'strategy_options': {'tenure': 30}}})\n"
        "except ConfigError as error:\n"
        "    assert 'got 30' in str(error)\n"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-W", "error", "-c", text]
    subprocess.run(command, env=cold_environment, check=True)
