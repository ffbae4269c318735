"""Files that others published, with the digest that tells whether one is whole and unchanged."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from annealtune.errors import DataError


@dataclass(frozen=True)
class PublishedFile:
    """One file of a data set, as its authors publish it."""

    name: str
    digest: str
    """Algorithm and value, such as ``sha256:3aed...``."""
    url: str = ""
    """Where it can be fetched; empty if it comes inside an archive."""
    size: int = 0
    """In bytes; 0 if it is never fetched."""

    def read(self, path: Path) -> bytes:
        """Return a file's content.

        Raises:
            DataError: If it cannot be read, or is not what was published.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        self.check(hashlib.new(self.algorithm, content), str(path))
        return content

    def check(
        self,
        found: "hashlib._Hash",
        place: str,
        remedy: str = "delete it and run again with --download",
    ) -> None:
        """Compare a hash that has seen the whole content with the published digest.

        Raises:
            DataError: If they differ, naming the place and what to do.
        """
        if found.hexdigest() != self.digest.partition(":")[2]:
            raise DataError(
                f"{place} is damaged or not the published {self.name}: expected {self.digest}, "
                f"found {self.algorithm}:{found.hexdigest()}; {remedy}"
            )

    @property
    def algorithm(self) -> str:
        """Of the digest, by its name in `hashlib`."""
        return self.digest.partition(":")[0]


def not_found(data: str, looked_for: list[Path], size: int) -> DataError:
    """Return the error for a data set that is not there but could be downloaded."""
    return DataError(
        f"data = {data!r}: not found; looked for {', '.join(map(str, looked_for))}. Run "
        f"`annealtune train --data {data} --download` ({size / 1e6:.0f} MB), or name the folder "
        "that holds it with --data-dir DIR"
    )
