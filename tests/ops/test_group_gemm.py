"""group_gemm beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.errors import NoImplementationError
from tilegym.ops import group_gemm

BACKENDS = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]
everywhere = pytest.mark.parametrize("backend", BACKENDS)


def whole_numbers(*shape, backend):
    """Their sums are exact: so must the results be."""
    return torch.randint(-4, 5, shape, device="cuda" if backend == "cutile" else "cpu").float()


@everywhere
def test_each_member_has_its_own_sizes(backend):
    sizes = [(33, 70, 100), (1, 8, 16), (0, 5, 3), (70, 264, 24)]
    group_A = [whole_numbers(m, k, backend=backend) for m, _, k in sizes]
    group_B = [whole_numbers(n, k, backend=backend) for _, n, k in sizes]
    found = group_gemm(group_A, group_B, transpose_b=True, backend=backend)
    assert [tuple(one.shape) for one in found] == [(m, n) for m, n, _ in sizes]
    assert all(torch.equal(c, a @ b.mT) for a, b, c in zip(group_A, group_B, found, strict=True))


def test_a_group_may_have_no_members():
    assert group_gemm([], [], backend="torch") == []


def test_a_group_is_one_launch_whose_blocks_share_all_tiles():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    group = [whole_numbers(100, 24, backend="cutile-cpu") for _ in range(3)]
    turned = [one.t() for one in group]
    for persistent, blocks in ((True, {4}), (False, {6, 12, 24})):
        with record_launches() as launches:
            found = group_gemm(group, turned, static_persistent=persistent, backend="cutile-cpu")
        assert all(torch.equal(c, a @ a.t()) for a, c in zip(group, found, strict=True))
        [launch] = launches
        assert launch.kernel_name == "group_gemm_tiles"
        assert launch.grid[0] in blocks


def test_in_a_cuda_graph_each_product_is_a_launch(monkeypatch):
    """For cuTile does not take lists then."""
    from tilegym_cutile import products
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    monkeypatch.setattr(products, "is_captured", lambda _: True)
    group = [whole_numbers(rows, 24, backend="cutile-cpu") for rows in (9, 0, 30)]
    with record_launches() as launches:
        found = group_gemm(group, group, transpose_b=True, backend="cutile-cpu")
    assert [launch.kernel_name for launch in launches] == ["gemm_tiles"] * 2
    assert all(torch.equal(c, a @ a.mT) for a, c in zip(group, found, strict=True))


@pytest.mark.gpu
def test_a_group_is_captured_in_a_graph_and_replayed():
    group = [whole_numbers(rows, 24, backend="cutile") for rows in (9, 130)]
    graph = torch.cuda.CUDAGraph()
    group_gemm(group, group, transpose_b=True, backend="cutile")
    with torch.cuda.graph(graph):
        found = group_gemm(group, group, transpose_b=True, backend="cutile")
    for one in group:
        one.neg_().add_(1)
    graph.replay()
    assert all(torch.equal(c, a @ a.mT) for a, c in zip(group, found, strict=True))


def test_gradients_are_for_plain_pytorch():
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 2)
    with pytest.raises(NoImplementationError, match="no backward"):
        group_gemm([a], [b], backend="cutile-cpu")
    group_gemm([a], [b], backend="torch")[0].sum().backward()
    assert a.grad.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize(
    ("group_A", "group_B", "error", "message"),
    [
        (torch.ones(1, 2, 2), [], TypeError, "group_A must be a list of tensors, got Tensor"),
        ([torch.ones(2, 2)], [], ValueError, "group_B must have 1 members, as group_A has, got 0"),
        ([torch.ones(2, 2)] * 2, [torch.ones(2, 2), torch.ones(3, 2)], ValueError, r"group_B\[1\] must have shape"),
        ([torch.ones(2, 2), torch.ones(2, 2).half()], [torch.ones(2, 2)] * 2, TypeError, r"group_A\[1\] must be one"),
    ],
)
def test_groups_that_do_not_fit_are_refused(group_A, group_B, error, message):
    with pytest.raises(error, match=f"group_gemm: {message}"):
        group_gemm(group_A, group_B)
