"""Small damages to bytes and to plain data, each drawn from a generator that is handed in."""

import contextlib
import copy
import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import tomli_w

# Stands for a number of 5,000 digits, which Python itself does not write.
ENDLESS = "@endless@"
TEXTS = (
    "",
    "x",
    "nan",
    "\x1b[31m\x07\r\x9b2J",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "a\0b",
    "\u202egnp.exe",
    "\n\n",
    "{{ 7 * 7 }}",
    "%s%n{0}",
    "é" * 300,
    "y" * 100_000,
)
NUMBERS = (
    0, 1, -1, 2, 255, 256, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400,
    0.0, -0.0, 0.5, 1e-320, 1e-8, 1e20, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan,
)  # fmt: skip


def other_value(random: Random) -> Any:
    """Return something that is unlikely to be what belongs there."""
    kind = random.randrange(9)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 5:
        return random.choice(TEXTS)
    if kind == 5:
        return random.choice([True, False, None, ENDLESS, "\ud800"])
    if kind == 6:
        return random.choice([[], {}, [[]], [{}], {"": {}}, [None], {"lr": 0.1}, [0.1, 0.2]])
    if kind == 7:
        value: Any = 0
        for _ in range(random.choice([2, 10, 40, 400])):
            value = [value] if random.random() < 0.5 else {"a": value}
        return value
    return [random.choice(NUMBERS)] * random.choice([1, 3, 1000])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in plain data: the table or list, and the key or number in it."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            keys = list(each) if isinstance(each, dict) else range(len(each))
            found += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
    return found


def damage_data(random: Random, value: Any) -> Any:
    """Return plain data, changed in place at one to three places."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        found = places(value)
        if not found:
            return other_value(random)
        holder, key = random.choice(found)
        kind = random.randrange(6)
        if kind < 3:
            holder[key] = other_value(random)
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[random.choice([*TEXTS, "lr", "epoch", "races"])] = other_value(random)
        elif isinstance(holder, list):
            holder.insert(key, holder[key] if random.random() < 0.5 else other_value(random))
        else:
            other_holder, other_key = random.choice(found)
            with contextlib.suppress(RecursionError):  # it is too deep already
                holder[key] = copy.deepcopy(other_holder[other_key])
    return other_value(random) if random.random() < 0.02 else value


def damage_bytes(random: Random, content: bytes) -> bytes:
    """Return bytes of which a few are changed, lost, doubled or new."""
    damaged = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 4, 16])):
        place = random.randrange(len(damaged) + 1)
        length = random.choice([1, 1, 2, 4, 64])
        kind = random.randrange(6)
        if kind == 0 and place < len(damaged):
            damaged[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            damaged[place : place + length] = random.randbytes(length)
        elif kind == 2:
            del damaged[place : place + length]
        elif kind == 3:
            damaged[place:place] = damaged[place : place + length] * random.choice([1, 2, 100])
        elif kind == 4:
            word = random.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"[" * 2000, b'"'])
            damaged[place : place + len(word)] = word
        elif random.random() < 0.3:
            del damaged[place:]
    return bytes(damaged)


def damage_json(random: Random, content: bytes) -> bytes:
    """Return a JSON text, one or more lines of it, with a damage to its bytes or to its data."""
    if random.random() < 0.3:
        return damage_bytes(random, content)
    *lines, last = content.split(b"\n") if content.endswith(b"\n") else [content, b""]
    number = random.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except (ValueError, RecursionError):  # damaged before
        return damage_bytes(random, content)
    lines[number] = _as_json(damage_data(random, value))
    if random.random() < 0.1:
        random.shuffle(lines)
    return b"\n".join([*lines, last])


def _as_json(value: Any) -> bytes:
    text = json.dumps(value, default=str) if _is_short(value) else "1" + "0" * 400
    return text.replace(f'"{ENDLESS}"', "9" * 5000).encode()


def _is_short(value: Any) -> bool:
    return not (isinstance(value, int) and abs(value) > 10**4000)


def damage_toml(random: Random, content: bytes, parse: Callable[[str], Any]) -> bytes:
    """Return a TOML text with a damage to its bytes or to its data."""
    if random.random() < 0.3:
        return damage_bytes(random, content)
    try:
        text = tomli_w.dumps(damage_data(random, parse(content.decode())))
    except (TypeError, ValueError, AttributeError, RecursionError):  # nothing that TOML knows
        return damage_bytes(random, content)
    return text.replace(f'"{ENDLESS}"', "9" * 5000).encode(errors="surrogatepass")
