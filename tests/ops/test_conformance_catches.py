"""The conformance suite can fail: each planted fault is caught, and by the check that is meant to catch it."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.conformance.cells import cells_of
from tilegym.conformance.checks import check_cell
from tilegym.specs.softmax import MAX_COLUMNS

CPU = torch.device("cpu")


def wrong_padding(x):
    short = -x.shape[-1] % 16
    return torch.softmax(torch.nn.functional.pad(x, (0, short)), -1)[..., : x.shape[-1]].contiguous()


def read_as_contiguous(x):
    strides = torch.empty(x.shape, device="meta").stride()
    return torch.softmax(x.as_strided(x.shape, strides, x.storage_offset()), -1)


def input_written(x):
    if x.numel() and 0 not in x.stride():
        x.sub_(x.amax(-1, keepdim=True))
    return torch.softmax(x, -1).contiguous()


def nan_row_zeroed(x):
    return torch.softmax(x, -1).nan_to_num().contiguous()


def another_backend(x):
    return tilegym.ops.softmax(x, backend="torch")


def zero_when_long(x):
    return torch.zeros_like(x) if x.shape[-1] >= MAX_COLUMNS else torch.softmax(x, -1).contiguous()


def last_row_unwritten(x):
    y = torch.empty(x.shape, dtype=x.dtype)
    y[:-1] = torch.softmax(x[:-1], -1)
    return y


def not_contiguous(x):
    return torch.softmax(x, -1).transpose(0, -1).contiguous().transpose(0, -1)


def wider_result(x):
    return torch.softmax(x.float(), -1).contiguous()


def other_bits_each_time(x):
    other_bits_each_time.calls += 1
    return torch.softmax(x, -1).contiguous().nextafter(torch.tensor(other_bits_each_time.calls % 2.0).to(x.dtype))


other_bits_each_time.calls = 0


def rms_norm_of(mean_square):
    def rms_norm(input, normalized_shape, weight, eps, bias=None, offset=0.0):
        dims = tuple(range(-len(normalized_shape), 0))
        y = mean_square(input, dims, eps) * (offset + (1.0 if weight is None else weight.float()))
        return (y if bias is None else y + bias.float()).to(input.dtype).contiguous()

    return rms_norm


eps_misplaced = rms_norm_of(lambda x, dims, eps: x.float() / (x.float().square().mean(dims, keepdim=True).sqrt() + eps))
half_accumulation = rms_norm_of(
    lambda x, dims, eps: x.float() * torch.rsqrt(x.bfloat16().square().mean(dims, keepdim=True).float() + eps)
)


def variance_as_a_difference(input, normalized_shape, weight, bias, eps, weight_shift=0.0):
    """E[x^2] - E[x]^2, of which nothing is left beside a large mean."""
    x, dims = input.float(), tuple(range(-len(normalized_shape), 0))
    mean = x.mean(dims, keepdim=True)
    y = (x - mean) * torch.rsqrt(x.square().mean(dims, keepdim=True) - mean.square() + eps)
    y = y * (weight_shift + (1.0 if weight is None else weight.float()))
    return (y if bias is None else y + bias.float()).to(input.dtype).contiguous()


def out_ignored(input, out=None):
    gate, up = input.float().tensor_split(2, -1)
    return (torch.nn.functional.silu(gate) * up).to(input.dtype).contiguous()


def out_overrun(input, out=None):
    result = out_ignored(input)
    if out is None:
        return result
    whole = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage())
    whole[-1] = 0
    return out.copy_(result)


def results(backend):
    return [cell for cell in cells_of(backend) if not cell.gradient]


@pytest.mark.parametrize(
    ("op", "fault", "message"),
    [
        ("softmax", wrong_padding, "of its bound"),
        ("softmax", read_as_contiguous, "of its bound"),
        ("softmax", input_written, "memory of argument x"),
        ("softmax", nan_row_zeroed, "of its bound"),
        ("softmax", another_backend, "expected one call of softmax on faulty"),
        ("softmax", zero_when_long, "of its bound"),
        ("softmax", last_row_unwritten, "of its bound"),
        ("softmax", not_contiguous, "strides"),
        ("softmax", wider_result, "float16"),
        ("softmax", other_bits_each_time, "other bits"),
        ("rms_norm", eps_misplaced, "of its bound"),
        ("rms_norm", half_accumulation, "of its bound"),
        ("layer_norm_legacy", variance_as_a_difference, "of its bound"),
        ("silu_and_mul", out_ignored, "something else was returned"),
        ("silu_and_mul", out_overrun, "memory of argument out"),
    ],
)
def test_fault_is_caught(op, fault, message):
    tilegym.register_impl(op, "faulty")(fault)
    caught = [failure for cell in results("faulty") if (failure := why_failed(cell)) is not None]
    assert any(message in one for one in caught), caught[:3]


def why_failed(cell):
    try:
        check_cell(cell, "faulty", CPU)
    except AssertionError as error:
        return str(error)
    return None


def test_what_is_right_passes():
    """The same way of looking finds nothing in the reference: the faults are what is caught above."""
    found = tilegym.resolve("softmax", backend="torch")
    # The function itself lies in a file of implementations, and would be registered as what the file is for.
    tilegym.register_impl("softmax", "faultless")(lambda x: found(x))  # noqa: PLW0108
    for cell in results("faultless"):
        check_cell(cell, "faultless", CPU)
