"""Attributes that are put back are as they were, and the same objects."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, deque

import torch
from torch import nn

from annealtune.integrations.attributes import Attributes


def test_attributes_are_put_back():
    module = nn.Linear(1, 1)
    names = OrderedDict(b=1, a=2)
    module.kept = [Counter(x=1), names, {1}, deque([1], maxlen=2), torch.zeros(2), [[1]], "text"]
    for number, value in enumerate(module.kept):
        setattr(module, f"value{number}", value)
    expected = copy.deepcopy(module.kept)
    before = Attributes(module)
    module.value0["x"] += 1
    module.value1.move_to_end("b")
    module.value2.add(2)
    module.value3.extend([2, 3])
    module.value4 += 1
    module.value5.append(2)
    module.value6 = "other"
    module.new = 1
    with torch.no_grad():
        module.weight.fill_(7.0)
    before.restore()
    found = [getattr(module, f"value{number}") for number in range(7)]
    assert torch.equal(found.pop(4), expected.pop(4))
    assert found == expected
    assert list(names) == ["b", "a"]
    assert not hasattr(module, "new")
    assert module.weight.item() == 7.0  # the tuner looks after these
    assert found[0] is module.kept[0]  # the same objects


def test_a_tensor_that_nobody_wrote_into_is_left_alone():
    """It may be part of a graph whose backward is still to come."""
    module = nn.Linear(1, 1)
    module.latest = module(torch.ones(1, 1)).exp()  # its backward needs its result
    Attributes(module).restore()
    module.latest.sum().backward()
    assert module.weight.grad is not None
