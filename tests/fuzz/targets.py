"""Every decoder of the product (``tests/linear/decoders.py``), and its first inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.fuzz.samples import SAMPLES
from tests.linear.decoder import Decoder, is_refusal
from tests.linear.decoders import DECODERS

UNITS = (0, 1, 2, 5, 20)
"""How often a sample of a shape has the unit of it."""


class Target(NamedTuple):
    """``read`` takes any bytes. What it raises is a defect."""

    name: str
    read: Callable[[bytes], None]
    samples: tuple[bytes, ...]


def target_of(decoder: Decoder) -> Target:
    """The target of a decoder, with samples of its shapes, and right inputs if there are any."""
    read_any = decoder.read

    def read(data: bytes) -> None:
        try:
            read_any(data)
        except Exception as error:
            if not is_refusal(error):
                raise
            str(error)

    shapes = [begin + unit * n + end for begin, unit, end in decoder.shapes for n in UNITS]
    return Target(
        decoder.name, read, tuple(dict.fromkeys((*SAMPLES.get(decoder.name, ()), *shapes)))
    )


TARGETS: Mapping[str, Target] = {decoder.name: target_of(decoder) for decoder in DECODERS}
"""By their names."""
