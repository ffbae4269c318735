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
@pytest.mark.parametrize("version", ["0.9.10", None, "2.6.3"])
def test_what_is_old_missing_or_unsafe_is_named(
    module, package, extra, version, monkeypatch
) -> None:
    if version == "2.6.3" and package != "lightning":
        pytest.skip("a version of Lightning")
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
