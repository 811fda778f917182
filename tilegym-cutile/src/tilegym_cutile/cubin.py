"""Reads what a compiled kernel uses out of its cubin: an ELF file whose `.nv.info` section says so."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_NOBITS: Final = 8  # a section type: it has a size, and no bytes in the file
_PAIR: Final = 4  # an attribute format: (symbol, value), two 32-bit numbers
_REGISTERS, _FRAME = 0x2F, 0x11  # attributes, by the names that `cuobjdump -elf` prints: REGCOUNT, FRAME_SIZE


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What one kernel uses."""

    registers: int
    """Per thread."""
    stack: int
    """Bytes per thread in local memory; more than none means that registers were spilled."""
    shared_memory: int
    """Bytes per block, as far as they are static."""


def usage(cubin: bytes) -> Usage:
    """The largest figures among the functions of a cubin."""
    attributes: dict[int, int] = {}
    shared = 0
    for name, size, data in _sections(cubin):
        if name == ".nv.info":
            for attribute, value in _pairs(data):
                attributes[attribute] = max(value, attributes.get(attribute, 0))
        elif name.startswith(".nv.shared"):
            shared += size
    return Usage(registers=attributes.get(_REGISTERS, 0), stack=attributes.get(_FRAME, 0), shared_memory=shared)


def _sections(elf: bytes) -> list[tuple[str, int, bytes]]:
    """(name, size, bytes) of each section of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
    names = headers[names_at][4]
    found = []
    for at, kind, _, _, offset, size, *_ in headers:
        name = elf[names + at : elf.index(b"\0", names + at)].decode()
        found.append((name, size, b"" if kind == _NOBITS else elf[offset : offset + size]))
    return found


def _pairs(info: bytes) -> list[tuple[int, int]]:
    """(attribute, value) of every attribute that belongs to a symbol."""
    found, at = [], 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _PAIR:
            continue  # the value stands in the two bytes of the size
        if size >= 8:
            found.append((attribute, struct.unpack_from("<II", info, at)[1]))
        at += size
    return found
