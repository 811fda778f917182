"""`launch`, `emulate`, records, errors and settings."""

from __future__ import annotations

import contextvars
import inspect
import subprocess
import sys
import threading

import cuda.tile as ct
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import tilegym_cutile_cpu as cpu
from tests.cutile_cpu.kernels.arrays import copy, promised, slices
from tests.cutile_cpu.kernels.control_flow import write_block_number
from tests.cutile_cpu.kernels.debugging import print_values, small_enough
from tests.cutile_cpu.kernels.defects import wrong_line
from tilegym_cutile.signature import constraints
from tilegym_cutile_cpu import interpreter


def copy_args() -> tuple[torch.Tensor, torch.Tensor, int, int]:
    return torch.randn(8, 4), torch.zeros(8, 4), 8, 4


def test_launches_are_recorded() -> None:
    args = copy_args()
    with cpu.record_launches() as outer:
        cpu.launch([1], copy, args)
        with cpu.record_launches() as inner:
            cpu.launch((1, 1), copy, args)
    cpu.launch((1,), copy, args)
    assert [(r.kernel_name, r.grid) for r in outer] == [("copy", (1, 1, 1))] * 2
    assert [(r.kernel_name, r.grid) for r in inner] == [("copy", (1, 1, 1))]
    assert all(r.seconds > 0 for r in outer)


def test_a_kernel_is_lowered_once_for_arguments_of_a_kind() -> None:
    x, out, m, n = copy_args()

    def program(*args: object) -> object:
        return interpreter.program(copy, constraints(copy, args))

    first = program(x, out, m, n)
    assert program(torch.randn(9, 33)[:, 1:], torch.zeros(16, 32), m, n) is first
    assert program(x.double(), out.double(), m, n) is not first
    assert program(x, out, m, n * 2) is not first


def test_the_number_of_torch_threads_is_restored() -> None:
    before = torch.get_num_threads()
    cpu.launch((1,), copy, copy_args())
    with pytest.raises(cpu.KernelAssertionError):
        cpu.launch((1,), small_enough, (torch.ones(4), torch.zeros(4), 1, 4))
    assert torch.get_num_threads() == before


def test_gradients_are_left_alone() -> None:
    x, out, m, n = copy_args()
    x.requires_grad_()
    cpu.launch((1,), copy, (x, out, m, n))
    assert torch.equal(out, x.detach())
    assert not out.requires_grad


@pytest.mark.parametrize("grid", [(2**31,), (1, 65536), (1, 1, 65536)])
def test_grids_that_no_gpu_has(grid: tuple[int, ...]) -> None:
    with pytest.raises(cpu.LaunchError, match=r"kernel 'copy': a GPU's grid has at most \(2147483647, 65535, 65535\)"):
        cpu.launch(grid, copy, copy_args())


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (-1,), 3])
def test_grids_that_are_none(grid: object) -> None:
    with pytest.raises(cpu.LaunchError, match="kernel 'copy': the grid must be one to three numbers of blocks"):
        cpu.launch(grid, copy, copy_args())  # type: ignore[arg-type]  # what is tested


def test_arguments_that_are_none() -> None:
    x, out, m, n = copy_args()
    with pytest.raises(cpu.LaunchError, match=r"kernel 'copy': takes 4 arguments .* got 3"):
        cpu.launch((1,), copy, (x, out, m))
    with pytest.raises(cpu.LaunchError, match="kernel 'copy': argument 'n' is a str; cuTile kernels take"):
        cpu.launch((1,), copy, (x, out, m, "4"))
    with pytest.raises(cpu.LaunchError, match="kernel 'copy': expected CPU tensors, got one on meta"):
        cpu.launch((1,), copy, (x.to("meta"), out, m, n))
    with FakeTensorMode(), pytest.raises(cpu.LaunchError, match="kernel 'copy': got a fake tensor"):
        cpu.launch((1,), copy, copy_args())
    with pytest.raises(cpu.LaunchError, match="expected strided tensors"):
        cpu.launch((1,), copy, (x.to_sparse(), out, m, n))
    with pytest.raises(cpu.LaunchError, match=r"decorated with @ct\.kernel, got function"):
        cpu.launch((1,), copy._pyfunc, (x, out, m, n))


def test_what_cannot_run_is_refused_by_name() -> None:
    @ct.kernel
    def integer_power(x):
        tile = ct.load(x, (0,), (4,))
        for _ in range(x.shape[0]):
            tile = ct.pow(tile, tile)
        ct.store(x, (0,), tile)

    with pytest.raises(cpu.UnsupportedOperationError, match="'pow' of integers cannot run on the CPU") as info:
        cpu.launch((1,), integer_power, (torch.ones(4, dtype=torch.int32),))
    assert isinstance(info.value, NotImplementedError)
    _, first = inspect.getsourcelines(integer_power._pyfunc)
    assert f"{__file__}:{first + 4}: kernel 'integer_power'" in str(info.value)


def test_no_mode_of_the_caller_sees_the_interpreter() -> None:
    class Spy(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    args = copy_args()
    with Spy() as spy:
        cpu.launch((1,), copy, args)
        assert spy.seen == []
        torch.ones(1)
    assert spy.seen == ["aten.ones.default"]
    assert torch.equal(args[0], args[1])


def test_errors_of_the_compiler_pass_unchanged() -> None:
    x, out, _, n = copy_args()
    with pytest.raises(ct.TileTypeError, match=r"power of (two|2)"):
        cpu.launch((1,), copy, (x, out, 3, n))


def test_a_failed_assertion_names_line_and_block() -> None:
    x = torch.arange(12.0)
    with pytest.raises(cpu.KernelAssertionError, match="too large") as info:
        cpu.launch((3,), small_enough, (x, torch.zeros(12), 9, 4))
    assert isinstance(info.value, AssertionError)
    assert (info.value.site.line, info.value.site.block) == (wrong_line(small_enough), (2, 0, 0))


@pytest.mark.parametrize("sanitize", [True, False])
def test_broken_promises_are_errors(sanitize: bool) -> None:
    with pytest.raises(cpu.KernelError, match=r"17 is not divisible by 8, as ct\.assume_divisible_by promised") as info:
        cpu.launch((1,), promised, (torch.zeros(32), torch.zeros(8), 17, 8), sanitize=sanitize)
    assert info.value.site.kernel == "promised"
    starts = torch.tensor([3, 0, 0, 0, 0], dtype=torch.int32)
    with pytest.raises(cpu.KernelError, match="an extent or stride of -3 is outside the bounds"):
        cpu.launch((1,), slices, (torch.zeros(8), starts, torch.zeros(4), 4), sanitize=sanitize)


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    x, counts = torch.tensor([1.0, 2.5]), torch.tensor([2**64 - 1, 10], dtype=torch.uint64)
    cpu.launch((1,), print_values, (x, counts, 2))
    assert capsys.readouterr().out.splitlines() == [
        "block 0 of 100%: [ 1.00,  2.50]|3.5e+00|0x1.4000000000000p+1",
        "[18446744073709551615, 10] [ffffffffffffffff, a]",
        "sum=3.5; [18446744073709551615, 10]",
    ]


def test_emulate_takes_over_ct_launch_and_gives_it_back() -> None:
    original, args = ct.launch, copy_args()
    with cpu.emulate(), cpu.record_launches() as launches:
        assert ct.launch is not original
        with cpu.emulate(sanitize=False):
            ct.launch(None, (1,), copy, args)
        ct.launch(0, (1,), copy, args, programmatic_dependent_launch=True)
    assert ct.launch is original
    assert torch.equal(args[0], args[1])
    assert [r.kernel_name for r in launches] == ["copy", "copy"]


def test_emulate_gives_ct_launch_back_after_an_error() -> None:
    original = ct.launch
    with pytest.raises(cpu.LaunchError), cpu.emulate():
        ct.launch(None, (), copy, copy_args())
    assert ct.launch is original


def test_emulate_holds_for_its_own_context_only(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_on = []
    monkeypatch.setattr(ct, "launch", lambda *args: passed_on.append(args))
    args = copy_args()

    def work() -> None:
        ct.launch(None, (1,), copy, args)

    with cpu.emulate(), cpu.record_launches() as launches:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert (len(passed_on), len(launches)) == (1, 0)
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()
    assert (len(passed_on), len(launches)) == (1, 1)


def test_many_threads_launch_at_once() -> None:
    outs = [torch.zeros(2, 3, 4, dtype=torch.int32) for _ in range(6)]
    errors = []

    def work(out: torch.Tensor) -> None:
        try:
            with cpu.emulate():
                ct.launch(None, (4, 3, 2), write_block_number, (out,))
        except Exception as error:  # noqa: BLE001 - a thread's error would be lost
            errors.append(error)

    original = ct.launch
    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ct.launch is original
    assert all(out.flatten().tolist() == list(range(24)) for out in outs)


@pytest.mark.parametrize(("text", "expected"), [("", False), ("0", False), ("off", False), ("1", True), ("TRUE", True)])
def test_the_environment_turns_the_sanitizer_on(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    monkeypatch.setenv("TILEGYM_CUTILE_CPU_SANITIZE", text)

    @ct.kernel
    def pads(x, out):
        ct.store(out, (0,), ct.sum(ct.load(x, (0,), (4,))))

    out = torch.zeros(1)
    cpu.launch((1,), pads, (torch.ones(3), out))
    assert bool(out.isnan()) is expected


def test_a_mistyped_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEGYM_CUTILE_CPU_SANITIZE", "maybe")
    with pytest.raises(ValueError, match="TILEGYM_CUTILE_CPU_SANITIZE is 'maybe'; expected one of 1, true"):
        cpu.launch((1,), copy, copy_args())


def test_importing_the_package_imports_neither_torch_nor_cutile() -> None:
    code = "import sys, tilegym_cutile_cpu; print(sorted({'torch', 'cuda.tile'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(getattr(cpu, name) is not None for name in cpu.__all__)
    assert dir(cpu) == sorted(cpu.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        cpu.nothing  # noqa: B018 - the access is what is tested


def test_the_caller_s_autocast_is_not_the_kernel_s() -> None:
    a, b = torch.randn(16, 16), torch.randn(16, 16)
    plain, under = torch.zeros(16, 16), torch.zeros(16, 16)
    cpu.launch((1,), product, (a, b, plain))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cpu.launch((1,), product, (a, b, under))
    assert torch.equal(under, plain)
    torch.testing.assert_close(plain, a @ b)


@ct.kernel
def product(a, b, out):
    x, y = ct.load(a, (0, 0), (16, 16)), ct.load(b, (0, 0), (16, 16))
    ct.store(out, (0, 0), ct.mma(x, y, ct.zeros((16, 16), dtype=ct.float32)))
