"""What every stored class is: a struct that the codec's encoder writes and reads in C."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

TAG: Final = "#"
"""The field of a JSON object that says which class it is."""


class Kept(
    Struct,
    frozen=True,
    omit_defaults=True,  # a field at its default is left out: a row costs what it says
    forbid_unknown_fields=True,
    gc=False,  # what is stored holds values only, so it has no cycles for the collector to look for
):
    """A class of what is stored. One that stands alone or in a union has a `tag` under `TAG`, which never changes."""
