"""`ct.printf`, `ct.print` and `ct.assert_`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from cuda.tile._ir.core_ops import TilePrintf
from cuda.tile._ir.ops import TileAssert

from tilegym_cutile_cpu.errors import KernelAssertionError
from tilegym_cutile_cpu.lowering import Compute, Frame, Lowering, effect
from tilegym_cutile_cpu.values import to_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuda.tile._datatype import DType
    from torch import Tensor

# flags, width and precision; a length modifier, which Python does not need; and the conversion.
_CONVERSION = re.compile(r"%(?:%|([0 #+-]?[0-9]*(?:\.[0-9]+)?)(?:hh|h|ll|l)?([diuoxXeEfFgGaA]))")


@effect(TileAssert)
def tile_assert(op: TileAssert, lowering: Lowering) -> Compute:
    site = lowering.site(op.loc)

    def check(frame: Frame, condition: Tensor) -> tuple[()]:
        if not bool(condition.all()):
            raise KernelAssertionError(site.at(frame.block), op.message or "ct.assert_ does not hold")
        return ()

    return check


@effect(TilePrintf)
def tile_printf(op: TilePrintf, _lowering: Lowering) -> Compute:
    dtypes = [arg.get_type().dtype for arg in op.args]

    def printf(_frame: Frame, args: Sequence[Tensor]) -> tuple[()]:
        sys.stdout.write(format_c(op.format, args, dtypes))
        return ()

    return printf


def format_c(template: str, args: Sequence[Tensor], dtypes: Sequence[DType]) -> str:
    """Fill a format string of C's `printf`. A tile that is no scalar becomes a bracketed list."""
    remaining = iter(zip(args, dtypes, strict=True))

    def fill(match: re.Match[str]) -> str:
        flags, conversion = match.groups()
        if conversion is None:
            return "%"
        tile, dtype = next(remaining)
        return _format(to_numbers(tile, dtype), flags, conversion)

    return _CONVERSION.sub(fill, template)


def _format(value: Any, flags: str, conversion: str) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_format(item, flags, conversion) for item in value) + "]"
    if conversion in "aA":
        digits = float(value).hex()
        return digits.upper() if conversion == "A" else digits
    text: str = f"%{flags}{conversion}" % value
    return text
