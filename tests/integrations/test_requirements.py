"""A framework that is missing or too old is named, with the line to write."""

import importlib
import sys
from importlib import metadata

import pytest

from annealtune.integrations import require


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("lightning", "lightning", "lightning"),
        ("huggingface", "transformers", "huggingface"),
        ("huggingface", "accelerate", "huggingface"),
        ("skorch", "skorch", "frameworks"),
    ],
)
@pytest.mark.parametrize("version", ["0.9.10", None])
def test_what_is_old_or_missing_is_named(module, package, extra, version, monkeypatch) -> None:
    real = metadata.version

    def version_of(name: str) -> str:
        if name != package:
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    name = f"annealtune.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(name)
    assert f"pip install 'annealtune[{extra}]'" in str(caught.value)
    assert f"{package} " in str(caught.value)


def test_versions_are_compared_as_numbers(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2.10.0+cpu")
    require("torch", "2.9", "train")
    with pytest.raises(ImportError):
        require("torch", "2.11", "train")


def test_an_unsafe_version_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2.6.3")
    monkeypatch.delitem(sys.modules, "annealtune.integrations.lightning", raising=False)
    with pytest.raises(ImportError, match=r"but not 2\.6\.2 or 2\.6\.3, got 2\.6\.3"):
        importlib.import_module("annealtune.integrations.lightning")
