"""Loops, branches, tuples, helpers and the shape of the grid."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def write_block_number(out):
    x, y, z = ct.bid(0), ct.bid(1), ct.bid(2)
    number = (z * ct.num_blocks(1) + y) * ct.num_blocks(0) + x
    ct.store(out, (z, y, x), number)


@case
def three_dimensional_grid() -> Case:
    expected = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
    return Case(write_block_number, (4, 3, 2), (torch.zeros(2, 3, 4, dtype=torch.int32),), {0: expected})


@case
def an_empty_grid_runs_nothing() -> Case:
    return Case(
        write_block_number,
        (0, 3, 2),
        (torch.zeros(1, 1, 1, dtype=torch.int32),),
        {0: torch.zeros(1, 1, 1, dtype=torch.int32)},
    )


@ct.kernel
def collatz(x, steps, n: Int):
    """Steps of the Collatz sequence: a loop with a branch, whose length depends on data."""
    for i in range(n):
        number = ct.gather(x, i)
        count = 0
        while number != 1:
            if number % 2 == 0:  # noqa: SIM108 - a branch is what is tested
                number = number // 2
            else:
                number = 3 * number + 1
            count += 1
        ct.scatter(steps, i, count)


@case
def loop_whose_length_depends_on_data() -> Case:
    def steps(number: int) -> int:
        return 0 if number == 1 else 1 + steps(number // 2 if number % 2 == 0 else 3 * number + 1)

    x = torch.arange(1, 13, dtype=torch.int32)
    expected = torch.tensor([steps(i) for i in x.tolist()], dtype=torch.int32)
    return Case(collatz, (1,), (x, torch.zeros(12, dtype=torch.int32), 12), {1: expected})


@ct.kernel
def first_negative(x, out, n):
    """A `for` loop left by `break`, with `continue` on the way."""
    found = -1
    for i in range(n):
        value = ct.gather(x, i)
        if value > 0:
            continue
        if value < 0:
            found = i
            break
    ct.store(out, (0,), found)


@case
def leaving_a_loop() -> Case:
    x = torch.tensor([3, 0, 2, -5, -6], dtype=torch.int32)
    return Case(
        first_negative, (1,), (x, torch.zeros(1, dtype=torch.int32), 5), {1: torch.tensor([3], dtype=torch.int32)}
    )


@ct.kernel
def early_return(x, out, limit):
    if ct.bid(0) >= limit:
        return
    ct.store(out, (ct.bid(0),), ct.load(x, (ct.bid(0),), (4,)))


@case
def blocks_that_return_early() -> Case:
    x = torch.randn(16)
    return Case(early_return, (4,), (x, torch.zeros(16), 2), {1: torch.cat((x[:8], torch.zeros(8)))})


def _search(x, n, wanted):
    for i in range(n):
        if ct.gather(x, i) == wanted:
            return i
    return -1


@ct.kernel
def find(x, out, n, wanted):
    ct.store(out, (0,), _search(x, n, wanted))


@case
def returning_from_inside_a_loop() -> Case:
    x = torch.tensor([5, 8, 13, 21], dtype=torch.int32)
    return Case(find, (1,), (x, torch.zeros(1, dtype=torch.int32), 4, 13), {1: torch.tensor([2], dtype=torch.int32)})


@ct.kernel
def persistent(x, out, tiles, n: Int):
    """Few blocks walk over many tiles."""
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        ct.store(out, (tile,), ct.load(x, (tile,), (n,), padding_mode=ct.PaddingMode.ZERO) * 2)


@case
def persistent_blocks() -> Case:
    x = torch.randn(100)
    return Case(persistent, (3,), (x, blank(100), 13, 8), {1: x * 2})


@ct.kernel
def running_pair(x, out, n: Int):
    """Several carried values, of which one is a tuple."""
    pair = (ct.zeros((4,), ct.float32), ct.ones((4,), ct.float32))
    for i in range(n):
        tile = ct.load(x, (i,), (4,))
        pair = (pair[0] + tile, pair[1] * tile)
    ct.store(out, (0,), pair[0])
    ct.store(out, (1,), pair[1])


@case
def carried_tuples() -> Case:
    x = torch.randint(1, 4, (5, 4)).float()
    return Case(running_pair, (1,), (x.reshape(-1), blank(8), 5), {1: torch.cat((x.sum(0), x.prod(0)))})


@ct.kernel
def options(x, out, scale, flip: ct.Constant[bool], factor: ct.Constant[float]):
    tile = ct.load(x, (0,), (4,)) * scale
    if flip:
        tile = -tile
    if factor != 1.0:
        tile = tile * factor
    ct.store(out, (0,), tile)


@case
def scalar_and_constant_arguments() -> Case:
    x = torch.randn(4)
    return Case(options, (1,), (x, blank(4), 2.5, True, 0.5), {1: -(x * 2.5) * 0.5})


@ct.kernel
def typed_scalars(out, small, large: ct.ScalarInt64, flag):
    value = small + large
    if flag:
        value = value + 1
    ct.store(out, (0,), value)


@case
def arguments_of_64_bits() -> Case:
    out = torch.zeros(1, dtype=torch.int64)
    return Case(typed_scalars, (1,), (out, 7, 2**40, True), {0: torch.tensor([2**40 + 8])})


@ct.kernel
def sum_of_tuple(pair, out, weights):
    a, b = pair
    ct.store(out, (0,), ct.load(a, (0,), (4,)) * weights[0] + ct.load(b, (0,), (4,)) * weights[1])


@case
def tuples_of_arrays_and_scalars() -> Case:
    x, y = torch.randn(4), torch.randn(4)
    return Case(sum_of_tuple, (1,), ((x, y), blank(4), (2.0, 3.0)), {1: x * 2 + y * 3}, rtol=1e-6)


@ct.kernel
def choose_pointer(x, y, out, first):
    array = x if first else y
    ct.store(out, (0,), ct.load(array, (0,), (4,)))


@case
def an_array_chosen_at_run_time() -> Case:
    x, y = torch.randn(4), torch.randn(4)
    return Case(choose_pointer, (1,), (x, y, blank(4), False), {2: y})


@ct.kernel
def waits(x, out):
    ct.grid_dependency_control_wait()
    ct.store(out, (0,), ct.load(x, (0,), (4,)))
    ct.grid_dependency_control_launch_dependents()


@case
def dependent_launches_have_nothing_to_wait_for() -> Case:
    x = torch.randn(4)
    return Case(waits, (1,), (x, blank(4)), {1: x})
