"""Every defect that the sanitizer knows is caught, with its line, block and index, and its repaired twin runs clean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import pytest
import torch

import tilegym_cutile_cpu as cpu
from tests.cutile_cpu.kernels import defects

if TYPE_CHECKING:
    from collections.abc import Sequence


def caught(
    expected: type[cpu.KernelError], kernel: ct.kernel, grid: Sequence[int], *args: Any, block: tuple[int, int, int]
) -> Any:
    """Launch a defective kernel, check where it was caught, and return the error."""
    with pytest.raises(expected) as info:
        cpu.launch(grid, kernel, args)
    error = info.value
    assert type(error) is expected
    assert (error.site.kernel, error.site.line) == (kernel._pyfunc.__name__, defects.wrong_line(kernel))
    assert error.site.file == defects.__file__
    assert error.site.block == block
    assert str(error).startswith(f"{error.site.file}:{error.site.line}: kernel '{error.site.kernel}', block {block}: ")
    return error


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_undetermined_padding_is_poisoned() -> None:
    x, out = torch.ones(5), torch.zeros(1)
    cpu.launch((1,), defects.relies_on_padding, (x, out, 8))
    assert out.isnan().all()
    cpu.launch((1,), defects.pads_with_zero, (x, out, 8))
    assert out.item() == 5


def test_undetermined_padding_of_integers_is_poisoned() -> None:
    x, out = torch.ones(5, dtype=torch.int32), ints(0)
    cpu.launch((1,), defects.relies_on_padding, (x, out, 8))
    assert out.item() == 5 + 3 * 0x5AA5_5AA5 - 2**32


def test_without_the_sanitizer_undetermined_padding_is_zero() -> None:
    x, out = torch.ones(5), torch.zeros(1)
    cpu.launch((1,), defects.relies_on_padding, (x, out, 8), sanitize=False)
    assert out.item() == 5


def test_outputs_that_no_kernel_wrote_are_poisoned() -> None:
    x = torch.arange(10.0)
    with cpu.emulate(sanitize=True):
        out, whole = torch.empty(10), torch.empty_like(x)
        others = x.new_empty(3), torch.empty_strided((2, 2), (1, 2)), x.new_empty_strided((2,), (1,))
        ct.launch(None, (1,), defects.skips_the_last_tile, (x, out, 4))
        ct.launch(None, (1,), defects.writes_every_tile, (x, whole, 4))
    assert out[:8].tolist() == x[:8].tolist()
    assert out[8:].isnan().all()
    assert whole.tolist() == x.tolist()
    assert all(other.isnan().all() for other in others)
    with cpu.PoisonedAllocations():
        assert (torch.empty(2, dtype=torch.int32) == 0x5AA5_5AA5).all()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bool, 1),
        (torch.int8, 0x5A),
        (torch.uint16, 0x5AA5),
        (torch.int64, 0x5AA5_5AA5),
        (torch.float16, None),
        (torch.float8_e4m3fn, None),
    ],
)
def test_poison(dtype: torch.dtype, expected: int | None) -> None:
    poisoned = cpu.poison(torch.zeros(3).to(dtype))
    if expected is None:
        assert poisoned.float().isnan().all()
    else:
        assert poisoned.to(torch.int64).tolist() == [expected] * 3


def test_unchecked_load_across_the_bound() -> None:
    x, out = torch.arange(6.0), torch.zeros(6)
    error = caught(cpu.OutOfBoundsError, defects.crosses_unchecked, (2,), x, out, 4, block=(1, 0, 0))
    assert (error.argument, error.index) == ("x", (4,))
    cpu.launch((2,), defects.crosses_checked, (x, out, 4))
    assert out.tolist() == x.tolist()


def test_unchecked_store_across_the_bound() -> None:
    x, out = torch.arange(8.0), torch.zeros(6)
    error = caught(cpu.OutOfBoundsError, defects.stores_across_unchecked, (2,), x, out, 4, block=(1, 0, 0))
    assert (error.argument, error.index) == ("out", (4,))


def test_unchecked_gather_inside_the_allocation_but_outside_the_array() -> None:
    storage, out = torch.arange(8.0), torch.zeros(8)
    error = caught(cpu.OutsideArrayError, defects.gathers_outside_unchecked, (1,), storage[:5], out, 8, block=(0, 0, 0))
    assert (error.argument, error.index) == ("x", (5,))
    cpu.launch((1,), defects.gathers_outside_checked, (storage[:5], out, 8))
    assert out.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


@pytest.mark.parametrize("sanitize", [True, False])
def test_gather_outside_the_allocation_is_always_caught(sanitize: bool) -> None:
    with pytest.raises(cpu.OutOfBoundsError, match=r"'x' at \(5,\): outside the allocation, of 5 elements") as info:
        cpu.launch((1,), defects.gathers_outside_unchecked, (torch.zeros(5), torch.zeros(8), 8), sanitize=sanitize)
    assert info.value.site.line == defects.wrong_line(defects.gathers_outside_unchecked)


def test_tile_wholly_outside_its_array() -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    error = caught(cpu.OutsideArrayError, defects.loads_a_tile_outside, (2,), x, out, 4, block=(1, 0, 0))
    assert (error.argument, error.index) == ("x", (8,))
    error = caught(cpu.OutsideArrayError, defects.stores_a_tile_outside, (2,), x, out, 4, block=(1, 0, 0))
    assert (error.argument, error.index) == ("out", (8,))
    cpu.launch((2,), defects.loads_a_tile_inside, (x, out, 4))
    assert out.tolist() == x.tolist()


def test_the_index_of_a_permuted_tile_is_in_the_order_of_the_array() -> None:
    @ct.kernel
    def transposed(x, out):
        ct.store(out, (0, 0), ct.load(x, (0, 2), (4, 8), order="F"))

    with pytest.raises(cpu.OutsideArrayError) as info:
        cpu.launch((1,), transposed, (torch.zeros(16, 4), torch.zeros(4, 8)))
    assert info.value.index == (16, 0)


def test_two_lanes_at_one_address() -> None:
    index, out = ints(0, 3, 1, 3), torch.zeros(6, dtype=torch.int32)[1:]
    error = caught(cpu.DuplicateStoreError, defects.two_lanes_one_address, (1,), index, out, 4, block=(0, 0, 0))
    assert (error.argument, error.index) == ("out", (3,))
    out.zero_()
    cpu.launch((1,), defects.two_lanes_added_atomically, (index, out, 4))
    assert out.tolist() == [1, 2, 0, 8, 0]


def test_a_store_into_an_expanded_array() -> None:
    out = torch.zeros(1).expand(4)
    with pytest.raises(cpu.DuplicateStoreError, match="two lanes"):
        cpu.launch((1,), defects.doubles, (torch.ones(4), out, 4))


def test_two_blocks_write_to_one_address() -> None:
    x, out = torch.ones(16), torch.zeros(1)
    error = caught(cpu.RaceError, defects.every_block_writes_the_total, (4,), x, out, 4, block=(1, 0, 0))
    assert (error.argument, error.index, error.other_block) == ("out", (0,), (0, 0, 0))
    cpu.launch((4,), defects.every_block_adds_to_the_total, (x, out.zero_(), 4))
    assert out.item() == 16


def test_a_block_writes_what_another_reads() -> None:
    x, out = torch.arange(12.0), torch.zeros(8)
    error = caught(cpu.RaceError, defects.reads_what_a_later_block_writes, (2,), x.clone(), 4, block=(1, 0, 0))
    assert (error.argument, error.index, error.other_block) == ("x", (4,), (0, 0, 0))
    cpu.launch((2,), defects.reads_another_array, (x, out, 4))
    assert out.tolist() == x[4:].tolist()


def test_a_block_reads_what_another_wrote() -> None:
    partial, counter, out = ints(0, 0, 0, 0), ints(0), ints(0)
    error = caught(cpu.RaceError, defects.reads_what_an_earlier_block_wrote, (4,), partial, out, 4, block=(3, 0, 0))
    assert (error.argument, error.index, error.other_block) == ("partial", (0,), (0, 0, 0))
    error = caught(cpu.RaceError, defects.counts_without_release, (4,), partial, counter, out, 4, block=(3, 0, 0))
    assert (error.argument, error.other_block) == ("partial", (0, 0, 0))
    cpu.launch((4,), defects.counts_with_release, (partial, counter.zero_(), out, 4))
    assert out.item() == 6


def test_plain_and_atomic_accesses_of_two_blocks() -> None:
    error = caught(cpu.RaceError, defects.mixes_plain_and_atomic, (3,), ints(0), block=(1, 0, 0))
    assert (error.argument, error.other_block) == ("out", (0, 0, 0))
    out = ints(0)
    cpu.launch((3,), defects.only_atomic, (out,))
    assert out.item() == 7


def test_arguments_that_overlap() -> None:
    x = torch.arange(12.0)
    error = caught(cpu.AliasError, defects.doubles, (2,), x[:8], x[2:10], 4, block=(0, 0, 0))
    assert (error.argument, error.index) == ("out", (0,))
    y = torch.arange(12.0)
    cpu.launch((1,), defects.doubles, (y[:4], y[4:8], 4))
    assert y[4:8].tolist() == [0, 2, 4, 6]
    cpu.launch((1,), defects.doubles_in_place, (y[:4], 4))
    assert y[:4].tolist() == [0, 2, 4, 6]


def test_one_array_given_twice() -> None:
    x = torch.arange(4.0)
    error = caught(cpu.AliasError, defects.doubles, (1,), x, x, 4, block=(0, 0, 0))
    assert (error.argument, error.index) == ("out", (0,))
    assert "argument 'x' is here too" in str(error)


def test_arguments_of_different_sizes_that_overlap() -> None:
    x = torch.zeros(8, dtype=torch.int32)
    halves = x.view(torch.int16)
    error = caught(cpu.AliasError, defects.doubles, (1,), halves[8:], x[2:6], 4, block=(0, 0, 0))
    assert (error.argument, error.index) == ("out", (2,))


@pytest.mark.parametrize("sanitize", [True, False])
def test_waiting_for_a_later_block(sanitize: bool) -> None:
    with pytest.raises(cpu.EndlessLoopError, match="cannot wait for a later one") as info:
        cpu.launch((2,), defects.waits_for_a_later_block, (ints(0), ints(0)), sanitize=sanitize)
    assert info.value.site.line == defects.wrong_line(defects.waits_for_a_later_block)
    out = ints(0)
    cpu.launch((2,), defects.waits_for_an_earlier_block, (ints(0), out), sanitize=sanitize)
    assert out.item() == 1


def test_reads_of_many_blocks_are_no_race() -> None:
    x, out = torch.arange(4.0), torch.zeros(4, 4)

    @ct.kernel
    def every_block_reads_all(x, out):
        ct.store(out, (ct.bid(0), 0), ct.load(x, (0,), (4,)).reshape((1, 4)))

    cpu.launch((4,), every_block_reads_all, (x, out))
    assert out.tolist() == [x.tolist()] * 4
