"""apply_rope_base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import (
    Contract,
    Gradient,
    Sample,
    TensorSpec,
    Way,
    check_beside,
    check_device,
    check_int,
    check_no_gradient,
    check_number,
    check_tensor,
)
from tilegym.errors import ArgumentValueError, ShapeError
from tilegym.op import dispatch
from tilegym.sharding import OUTPUT

_OP = "apply_rope_base"


@dispatch("apply_rope_base")
def apply_rope_base(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    use_tma: bool = False,
    partial_rotary_factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Rotary position embedding of q and k, by halves, as Hugging Face has it.

    For x of q and k, where position_ids, if given, have picked the rows of cos and sin, each batch its own:

        x, rest = x[..., :R], x[..., R:]
        a, b = x.chunk(2, dim=-1)
        x = x * cos.unsqueeze(unsqueeze_dim) + torch.cat([-b, a], -1) * sin.unsqueeze(unsqueeze_dim)
        torch.cat([x, rest], -1)

    Args:
        q: (B, H, S, D), or (B, S, H, D) if unsqueeze_dim is 2; float32, float16 or bfloat16, any strides.
        k: q's shape but for the number of heads, its dtype and device, any strides.
        cos: (S, R), (1, S, R) or (B, S, R) with even R = D * partial_rotary_factor; float32, float16 or bfloat16, on
            q's device. With position_ids it may have any number of rows instead of S.
        sin: cos's shape; dtypes and device as for cos.
        position_ids: (1, S) or (B, S), int32 or int64, on q's device: which rows of cos and sin are used. They are not
            looked at before: one that is negative or too large gives values without meaning or an error.
        unsqueeze_dim: 1 if heads are dimension 1 of q and k; 2 if they are dimension 2.
        use_tma: hint: load tiles through the tensor memory accelerator.
        partial_rotary_factor: the part of D that is rotated; over 0, at most 1.

    Returns:
        (q, k) rotated: new tensors of their shapes and dtype, with the strides of `torch.empty_like`. Computed in
        float32 and rounded once.

    Raises:
        ShapeError: the shapes do not go together, or R is odd.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError: unsqueeze_dim is no int, partial_rotary_factor no number.
        ArgumentValueError: unsqueeze_dim is neither 1 nor 2; partial_rotary_factor is out of range.
        GradientError: cos or sin requires a gradient.

    Gradient: q, k. cos and sin have none.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; GPT-NeoX (halves).
    """
    raise NotImplementedError


def canonical(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    partial_rotary_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, int]:
    check_int(_OP, "unsqueeze_dim", unsqueeze_dim)
    if unsqueeze_dim not in (1, 2):
        raise ArgumentValueError(f"{_OP}: unsqueeze_dim must be 1 or 2, got {unsqueeze_dim}")
    check_tensor(_OP, "q", q)
    if q.dim() != 4:
        raise ShapeError(f"{_OP}: q must have 4 dimensions, got shape {tuple(q.shape)}")
    check_tensor(_OP, "k", k, dtypes=(q.dtype,))
    check_device(_OP, "k", k, q, "q")
    batch, length, size = q.shape[0], q.shape[3 - unsqueeze_dim], q.shape[3]
    if k.dim() != 4 or (k.shape[0], k.shape[3 - unsqueeze_dim], k.shape[3]) != (batch, length, size):
        raise ShapeError(
            f"{_OP}: k must have q's shape {tuple(q.shape)} but for dimension {unsqueeze_dim}, got {tuple(k.shape)}"
        )
    _check_tables(q, cos, sin, _rotated(size, partial_rotary_factor), None if position_ids is not None else length)
    if position_ids is not None:
        _check_positions(position_ids, q, batch, length)
    return q, k, cos, sin, position_ids, unsqueeze_dim


def _rotated(size: int, factor: float) -> int:
    """R, of D and the factor."""
    check_number(_OP, "partial_rotary_factor", factor)
    if not 0 < factor <= 1:
        raise ArgumentValueError(f"{_OP}: partial_rotary_factor must be over 0 and at most 1, got {factor}")
    rotated = size if factor == 1 else int(size * factor)
    if rotated % 2:
        raise ShapeError(f"{_OP}: the part of q that is rotated must be even, got {rotated} of {size}")
    return rotated


def _check_tables(q: Tensor, cos: Tensor, sin: Tensor, rotated: int, length: int | None) -> None:
    check_tensor(_OP, "cos", cos)
    check_device(_OP, "cos", cos, q, "q")
    good = (
        cos.dim() in (2, 3)
        and cos.shape[-1] == rotated
        and (length is None or cos.shape[-2] == length)
        and (cos.dim() == 2 or cos.shape[0] in (1, q.shape[0]))
    )
    if not good:
        rows = "any" if length is None else length
        raise ShapeError(
            f"{_OP}: cos must have shape ({rows}, {rotated}), (1, {rows}, {rotated}) or "
            f"({q.shape[0]}, {rows}, {rotated}), got {tuple(cos.shape)}"
        )
    check_beside(_OP, "sin", sin, q, "q", shape=tuple(cos.shape))
    for name, table in (("cos", cos), ("sin", sin)):
        check_no_gradient(_OP, name, table)


def _check_positions(position_ids: Tensor, q: Tensor, batch: int, length: int) -> None:
    check_tensor(_OP, "position_ids", position_ids, dtypes=(torch.int64, torch.int32))
    check_device(_OP, "position_ids", position_ids, q, "q")
    if tuple(position_ids.shape) not in ((1, length), (batch, length)):
        raise ShapeError(
            f"{_OP}: position_ids must have shape (1, {length}) or ({batch}, {length}), got {tuple(position_ids.shape)}"
        )


def _rows(table: Tensor, position_ids: Tensor | None, unsqueeze_dim: int) -> Tensor:
    """The rows of cos or sin that belong to q's and k's positions, to be multiplied with them."""
    if table.dim() == 2:
        table = table[None]
    if position_ids is not None:
        batch = max(len(table), len(position_ids))
        table = table.expand(batch, *table.shape[1:])
        index = position_ids.long().expand(batch, -1)[..., None].expand(-1, -1, table.shape[-1])
        table = table.gather(1, index)
    return table.unsqueeze(unsqueeze_dim)


def _applied(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """The sum, or on absolute values with sign 1 its scale."""
    width = cos.shape[-1]
    a, b = x[..., : width // 2], x[..., width // 2 : width]
    return torch.cat([x[..., :width] * cos + torch.cat([sign * b, a], -1) * sin, x[..., width:]], -1)


def reference(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, unsqueeze_dim: int
) -> tuple[Tensor, Tensor]:
    cos, sin = (_rows(table, position_ids, unsqueeze_dim) for table in (cos, sin))
    return _applied(q, cos, sin, -1), _applied(k, cos, sin, -1)


def magnitude(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, unsqueeze_dim: int
) -> tuple[Tensor, Tensor]:
    cos, sin = (_rows(table.abs(), position_ids, unsqueeze_dim) for table in (cos, sin))
    return _applied(q.abs(), cos, sin, 1), _applied(k.abs(), cos, sin, 1)


def gradient_magnitude(grad_q: Tensor, grad_k: Tensor, q: Tensor, k: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    """Rotated back: the halves of sin change places."""
    cos, sin, position_ids, unsqueeze_dim = more
    half = sin.shape[-1] // 2
    return magnitude(grad_q, grad_k, cos, sin.roll(half, -1), position_ids, unsqueeze_dim)


def fake(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


def _case(name: str, q: tuple[int, ...], kv_heads: int, **more: Any) -> Sample:
    """q: (B, H, S, D); unless given, cos and sin are (S, R)."""
    batch, heads, length, size = q
    shapes = {"q": (batch, heads, length, size), "k": (batch, kv_heads, length, size)}
    if more.get("unsqueeze_dim") == 2:
        shapes = {key: (shape[0], shape[2], shape[1], shape[3]) for key, shape in shapes.items()}
    layout, table_dtype = more.pop("layout", "contiguous"), more.pop("table_dtype", None)
    table = more.pop("table", (length, int(size * more.get("partial_rotary_factor", 1.0))))
    args = {key: TensorSpec(shape=shape, layout=layout) for key, shape in shapes.items()}
    args |= {key: TensorSpec(shape=table, dtype=table_dtype) for key in ("cos", "sin")}
    return Sample(name=name, args=args | more)


def samples() -> Iterator[Sample]:
    yield _case("empty", (2, 3, 0, 8), 1)
    yield _case("one", (1, 1, 1, 2), 1)
    yield _case("odd", (2, 3, 5, 10), 1, table=(1, 5, 10))
    yield _case("float32-tables", (2, 4, 5, 48), 2, table=(2, 5, 48), table_dtype=torch.float32)
    yield _case("heads-last", (2, 5, 7, 16), 3, unsqueeze_dim=2)
    yield _case("partial", (2, 3, 6, 40), 3, partial_rotary_factor=0.25)
    yield _case("several-tiles", (1, 33, 40, 64), 9)
    for name, batch in (("positions", 1), ("positions-each", 2)):
        ids = TensorSpec(shape=(batch, 6), dtype=torch.int64, fill="indices")
        yield _case(name, (2, 3, 6, 8), 1, table=(batch, 9, 8), position_ids=ids)


def ways(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, unsqueeze_dim: int
) -> Iterator[Way]:
    """By heads; by batches, with what of the tables is each batch's own; by positions."""

    def split(dim: int, **tables: int) -> Way:
        return {**dict.fromkeys(("q", "k", OUTPUT), dim), **tables}

    yield split(unsqueeze_dim)
    own = cos.dim() == 3 and len(cos) == len(q)
    tables = {"cos": 0, "sin": 0} if own else {}
    yield split(
        0, **tables, **({"position_ids": 0} if position_ids is not None and len(position_ids) == len(q) else {})
    )
    if position_ids is None:
        yield split(3 - unsqueeze_dim, cos=cos.dim() - 2, sin=cos.dim() - 2)
    else:
        yield split(3 - unsqueeze_dim, position_ids=1)


def benchmarks() -> Iterator[Sample]:
    for batch, length in [(1, 64), (1, 128), (1, 2048), (4, 4096)]:
        yield _case(f"B{batch}-H32/8-S{length}-D128", (batch, 32, length, 128), 8)


def bytes_moved(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_: Any) -> int:
    tables = (cos.numel() + sin.numel()) * cos.element_size()
    return 2 * (q.numel() + k.numel()) * q.element_size() + tables


apply_rope_base.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda *_: 2,
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=lambda q, k, cos, *_: 3 * cos.shape[-1] * (q.numel() + k.numel()) // max(1, q.shape[-1]),
    outputs=("rotated_q", "rotated_k"),
    sharding=ways,
    gradient=Gradient(
        inputs=("q", "k"),
        magnitude=gradient_magnitude,
        saved=("cos", "sin", "position_ids"),
        like=("grad_rotated_q", "grad_rotated_k"),
        dense=True,
    ),
    hints={"use_tma": (False, True)},
)
