"""Makes real arguments of a contract's samples: the same values on every device and backend."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch

from tilegym.contract import Sample, TensorSpec

if TYPE_CHECKING:
    from torch import Tensor


def materialize(
    sample: Sample,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    seed: int = 0,
    drawn_there: bool = False,
) -> dict[str, Any]:
    """The sample's arguments by name, with its tensors made.

    Args:
        sample: from `contract.samples()`.
        dtype: that of every tensor whose spec names none.
        device: where the tensors are put; the values do not depend on it. "meta": shapes and strides alone, at once.
        seed: of the values; the argument's name is mixed in.
        drawn_there: draw the values on the device, where they are other ones; a GPU does so far faster.
    """
    where = torch.device(device)

    def made(value: Any, seed: int) -> Any:
        if isinstance(value, list):
            return [made(one, seed + index) for index, one in enumerate(value)]
        return _make(value, dtype, where, seed, drawn_there) if isinstance(value, TensorSpec) else value

    return {name: made(value, seed + zlib.crc32(name.encode())) for name, value in sample.args.items()}


def _make(spec: TensorSpec, dtype: torch.dtype, device: torch.device, seed: int, drawn_there: bool) -> Tensor:
    if device.type == "meta":
        return _laid_out(torch.empty(spec.shape, dtype=spec.dtype or dtype, device=device), spec.layout)
    generator = torch.Generator(device if drawn_there else "cpu").manual_seed(seed)
    values = _fill(spec, generator).to(spec.dtype or dtype)
    return _laid_out(values.to(device), spec.layout)


def _fill(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    if spec.fill == "positive":
        return torch.rand(spec.shape, generator=generator, device=generator.device) + 0.5
    if spec.fill == "indices":
        return torch.arange(spec.shape[-1] - 1, -1, -1).expand(spec.shape).clone()
    values = torch.randn(spec.shape, generator=generator, device=generator.device)
    if spec.fill == "large":
        return values * 100
    if spec.fill == "offset":
        return values + 1000
    if spec.fill == "special" and values.numel():
        rows = values.reshape(-1, values.shape[-1])
        for row, special in zip(rows, (-torch.inf, torch.nan, torch.inf), strict=False):
            row[row.shape[0] // 2] = special
        rows[3:4] = -torch.inf
    return values


def _laid_out(values: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout."""
    if layout == "contiguous":
        return values
    shape = values.shape
    if layout == "transposed":
        return values.transpose(-1, -2).contiguous().transpose(-1, -2) if values.dim() > 1 else values
    if layout == "expanded":
        return values[:1].expand(shape)
    if layout == "strided":
        wide = poison(values.new_empty(*shape[:-1], 2 * shape[-1]))
        view = wide[..., ::2]
    else:  # sliced: at an odd offset of a wider buffer, so that no row is aligned
        wide = poison(values.new_empty(*shape[:-1], shape[-1] + 3))
        view = wide[..., 1 : 1 + shape[-1]]
    return view.copy_(values)


def poison(tensor: Tensor) -> Tensor:
    """Fill a tensor with NaN (integers: the least value), so that what is not written shows."""
    return tensor.fill_(torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)
