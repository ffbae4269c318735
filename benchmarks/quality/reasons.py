"""Why a line of the targets does not hold, by the line's name; written by hand after the runs."""

from __future__ import annotations

REASONS: dict[str, str] = {}
