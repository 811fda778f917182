"""group_gemm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_device, check_flag
from tilegym.errors import ArgumentTypeError, ShapeError
from tilegym.op import dispatch
from tilegym.sharding import whole
from tilegym.specs import _products
from tilegym.specs._products import sizes, turned


@dispatch("group_gemm")
def group_gemm(
    group_A: list[Tensor],
    group_B: list[Tensor],
    static_persistent: bool = True,
    use_tma: bool = True,
    transpose_b: bool = False,
    **kwargs: Any,
) -> list[Tensor]:
    """Matrix products of a group, each of its own sizes: `[a @ b for a, b in zip(group_A, group_B)]`.

    Args:
        group_A: matrices (M, K), float32, float16, bfloat16, float8_e4m3fn or float8_e5m2, all of one dtype and on one
            device, any strides.
        group_B: as many matrices (K, N), alike, any strides; (N, K) with `transpose_b`.
        static_persistent: hint: as many blocks as the device runs at once, which walk over the tiles of all products.
        use_tma: hint: load tiles by the tensor memory accelerator, where it can.
        transpose_b: whether the matrices of group_B are given transposed.
        **kwargs: `out_dtype` (group_A's), the results' dtype; options of the backend.

    Returns:
        List of tensors (M, N), contiguous; zeros where K is 0. Added up in float32, of float8 as tensor cores do (an
        H200's to 14 bits at a time), and rounded once, to float8 with saturation. Operands of float32 are multiplied as
        tf32 where PyTorch allows its own to be (`fp32_precision`).

    Raises:
        ShapeError: the groups differ in length, a member is no matrix, or two do not fit.
        DtypeError, DeviceError: a member has another dtype or device.
        ArgumentTypeError: an argument is of another type.
        ArgumentValueError: out_dtype is unknown.

    Gradient: the members of group_A and group_B.
    """
    raise NotImplementedError


def canonical(
    group_A: list[Tensor],
    group_B: list[Tensor],
    transpose_b: bool = False,
    out_dtype: torch.dtype | None = None,
) -> tuple[list[Tensor], list[Tensor], bool, torch.dtype | None, bool]:
    for name, group in (("group_A", group_A), ("group_B", group_B)):
        if not isinstance(group, (list, tuple)):
            raise ArgumentTypeError(f"group_gemm: {name} must be a list of tensors, got {type(group).__name__}")
    if len(group_A) != len(group_B):
        raise ShapeError(f"group_gemm: group_B must have {len(group_A)} members, as group_A has, got {len(group_B)}")
    transpose_b = check_flag("group_gemm", "transpose_b", transpose_b)
    for index, (a, b) in enumerate(zip(group_A, group_B, strict=True)):
        names = (f"group_A[{index}]", f"group_B[{index}]")
        dtypes = _products.DTYPES if index == 0 else (group_A[0].dtype,)
        _products.check_operand("group_gemm", names[0], a, 2, dtypes=dtypes)
        _products.check_operand("group_gemm", names[1], b, 2, dtypes=(a.dtype,))
        check_device("group_gemm", names[0], a, group_A[0], "group_A[0]")
        _products.check_fit("group_gemm", names, a, b, trans_a=False, trans_b=transpose_b)
    dtype = group_A[0].dtype if group_A else torch.float32
    out_dtype = _products.checked_out_dtype("group_gemm", dtype, out_dtype)
    return [*group_A], [*group_B], transpose_b, out_dtype, _products.multiplies_in_tf32(dtype)


def reference(
    group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> list[Tensor]:
    products = (a @ turned(b, transpose_b) for a, b in zip(group_A, group_B, strict=True))
    return [_products.saturated(product, out_dtype) for product in products]


def magnitude(
    group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> list[Tensor]:
    pairs = zip(group_A, group_B, strict=True)
    return [a.abs() @ turned(b, transpose_b).abs() for a, b in pairs]


def fake(
    group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> list[Tensor]:
    pairs = zip(group_A, group_B, strict=True)
    return [_products.fake(a, b, False, transpose_b, out_dtype) for a, b in pairs]


def reduction(group_A: list[Tensor], *_: Any) -> int:
    return max((a.shape[1] for a in group_A), default=0)


def gradient_magnitude(
    grad_output: list[Tensor], group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, *_: Any
) -> tuple[list[Tensor], list[Tensor]]:
    members = zip(grad_output, group_A, group_B, strict=True)
    found = [_products.gradients(grad, a.abs(), b.abs(), False, transpose_b) for grad, a, b in members]
    return [da for da, _ in found], [db for _, db in found]


def reduction_of_gradients(group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, *_: Any) -> tuple[int, int]:
    found = [sizes(a, b, False, transpose_b) for a, b in zip(group_A, group_B, strict=True)]
    return max(n for _, n, _ in found), max(m for m, _, _ in found)


def bytes_moved(
    group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> int:
    pairs = zip(group_A, group_B, strict=True)
    return sum(_products.bytes_moved(a, b, False, transpose_b, out_dtype) for a, b in pairs)


def flops(group_A: list[Tensor], group_B: list[Tensor], transpose_b: bool, *_: Any) -> int:
    return sum(_products.flops(a, b, False, transpose_b) for a, b in zip(group_A, group_B, strict=True))


def _sample(name: str, sizes: list[tuple[int, int, int]], layout: Any = "contiguous", **more: Any) -> Sample:
    turn = more.get("transpose_b", False)
    args: dict[str, Any] = {
        "group_A": [TensorSpec(shape=(m, k), layout=layout) for m, _, k in sizes],
        "group_B": [TensorSpec(shape=(n, k) if turn else (k, n), layout=layout) for _, n, k in sizes],
    }
    return Sample(name=name, args=args | more)


def samples() -> Iterator[Sample]:
    ragged = [(130, 72, 64), (1, 264, 8), (33, 136, 40), (260, 264, 72)]
    yield _sample("unaligned", [(17, 33, 65), (3, 5, 7), (70, 9, 1)])
    yield _sample("ragged", ragged)
    yield _sample("transpose_b", ragged[:3], transpose_b=True)
    for layout in ("transposed", "sliced", "expanded", "strided"):
        yield _sample(layout, [(17, 24, 8), (40, 8, 32)], layout)
    yield _sample("empty-members", [(0, 8, 8), (8, 0, 8), (9, 16, 0), (16, 8, 8)])
    yield _sample("one", [(24, 40, 32)], out_dtype=torch.float32)
    yield _sample("none", [(0, 8, 8)])


def benchmarks() -> Iterator[Sample]:
    """Groups of one size, and of sizes such as a router gives experts."""
    for count, m, n, k in [(4, 64, 64, 64), (4, 128, 128, 128), (8, 2048, 4096, 4096)]:
        yield _sample(f"{count}x{m}x{n}x{k}", [(m, n, k)] * count)
    rows = (4096, 2048, 1024, 1000, 512, 250, 64, 7)
    yield _sample("experts-4096x4096", [(m, 4096, 4096) for m in rows])


group_gemm.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=reduction,
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=flops,
    dtypes=_products.DTYPES,
    gradient=Gradient(
        inputs=("group_A", "group_B"),
        magnitude=gradient_magnitude,
        reduction=reduction_of_gradients,
        saved=("group_A", "group_B"),
        like=("group_A", "group_B"),
        dense=True,
    ),
    sharding=whole,
    hints={"static_persistent": (None, False, True), "use_tma": (False, True)},
)
