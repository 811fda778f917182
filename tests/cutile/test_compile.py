"""Every kernel compiles for every architecture, and none spills in its default configuration."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from _tilegym_cli import app
from tests.cutile.spills import ALLOWED
from tilegym import get_registry_info
from tilegym.errors import CompilationError
from tilegym.testing import load_implementation
from tilegym_cutile import compilation, toolchain
from tilegym_cutile.compilation import Case, cases, compile_case, takes
from tilegym_cutile.runtime import ARCHITECTURES

OPS = [op for op, backends in get_registry_info().items() if "cutile" in backends]
RESERVED = 1024  # bytes of each block's that CUDA keeps for itself: from sm_90 on they are counted in
OTHERS = [arch for arch in ARCHITECTURES if arch != "sm_90"]


def check(arch: str, found: list[Case]) -> None:
    spilled = []
    for case in found:
        compiled = compile_case(case, arch)
        assert 0 < compiled.usage.registers <= 255
        assert compiled.usage.shared_memory <= ARCHITECTURES[arch].shared_memory + RESERVED
        if compiled.usage.stack and not any((case.kernel, it) in ALLOWED for it in (case.dtype, arch, case.sample)):
            spilled.append((case.kernel, case.sample, case.dtype, case.hints, compiled.usage))
    assert not spilled


def heaviest(op: str, arch: str) -> list[Case]:
    """The heaviest case of each branch, in all dtypes but those that are as long as bfloat16 and float8_e4m3fn."""
    alike = {torch.float16, torch.float8_e5m2}
    dtypes = [d for d in load_implementation(op, "cutile").contract.dtypes if d not in alike and takes(arch, d)]
    found = cases(op, arch=arch, dtypes=dtypes)
    assert {case.dtype for case in found} == set(dtypes)
    return found


@pytest.mark.parametrize("op", OPS)
def test_the_heaviest_of_each_branch_compiles_without_spills(op):
    found = heaviest(op, "sm_90")
    late = [case for case in found if (case.kernel, case.dtype) in ALLOWED or case.kernel.endswith("_wide")]
    check("sm_90", [case for case in found if case not in late])  # those that take minutes come with -m slow


@pytest.mark.parametrize("arch", OTHERS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.turns("arch")
def test_the_heaviest_compiles_without_spills_elsewhere(op, arch):
    found = [case for case in heaviest(op, arch) if not case.kernel.endswith("_wide")]
    check(arch, [max(found, key=lambda case: case.weight)])


@pytest.mark.parametrize(
    ("op", "dtype", "kernel"),
    [
        ("matmul", torch.float32, "gemm_tiles"),
        ("group_gemm", torch.float32, "group_gemm_tiles"),
        ("swa_attention", torch.bfloat16, "attention_backward_keys"),
    ],
)
def test_no_small_case_spills_where_the_heaviest_do_not(op, dtype, kernel):
    """Of the kernels that have: single elements of unaligned rows, and few keys or queries."""
    found = [case for case in cases(op, arch="sm_90", dtypes=[dtype], every=True) if case.kernel == kernel]
    assert len(found) > 5
    check("sm_90", found)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("op", OPS)
def test_every_configuration_compiles_without_spills(op, arch):
    check(arch, cases(op, arch=arch, every=True))


def test_cases_cover_each_kernel_and_dtype():
    found = cases("softmax", arch="sm_90")
    assert {(case.kernel, str(case.dtype)) for case in found} == {
        (kernel, f"torch.{dtype}")
        for kernel in ("softmax_rows", "softmax_chunks", "softmax_backward_rows", "softmax_backward_chunks")
        for dtype in ("float32", "float16", "bfloat16")
    }
    assert max(case.tile for case in found if case.kernel == "softmax_rows") == 16384  # one of its benchmarks'


def test_usage_counts_what_a_spilling_kernel_spills():
    """The gate can fail: a tile far beyond the register file has a stack."""
    case = next(case for case in cases("softmax", arch="sm_90") if case.kernel == "softmax_rows" and case.tile == 16384)
    starved = compilation.Case(
        op=case.op,
        sample=case.sample,
        dtype=case.dtype,
        launch=type(case.launch)(
            kernel=case.launch.kernel.replace_hints(num_worker_warps=4, occupancy=8),
            grid=case.launch.grid,
            args=case.launch.args,
        ),
    )
    assert compile_case(starved, "sm_90").usage.stack > 0


def test_missing_compiler_is_told(monkeypatch):
    case = cases("silu_and_mul", arch="sm_90")[0]

    def no_compiler(*_args, **_kwargs):
        raise FileNotFoundError("'tileiras' compiler not found")

    monkeypatch.setattr(compilation, "compile_tile", no_compiler)
    monkeypatch.setattr(toolchain, "why_no_compiler", lambda: "tileiras is not installed: pip install it.")
    with pytest.raises(CompilationError, match=r"silu_and_mul.*sm_90.*tileiras is not installed"):
        compile_case(case, "sm_90")


def test_unknown_architecture_is_told():
    with pytest.raises(CompilationError, match=r"silu_and_mul_tiles.*sm_12345"):
        compile_case(cases("silu_and_mul", arch="sm_90")[0], "sm_12345")


def test_command_prints_a_row_per_kernel_and_counts_spills():
    app._add_commands_of_plugins()
    result = CliRunner().invoke(app.app, ["compile", "silu_and_mul", "--arch", "sm_90", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["spills"] == 0
    kernels = {(row["kernel"], row["arch"]) for row in report["kernels"]}
    assert kernels == {("silu_and_mul_tiles", "sm_90"), ("silu_and_mul_backward_tiles", "sm_90")}
    assert CliRunner().invoke(app.app, ["compile", "no_such_op"]).exit_code == 2
