"""group_gemm beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.errors import ArgumentTypeError
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


def test_products_that_each_keep_the_device_busy_are_a_launch_each():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    large = whole_numbers(512, 16, backend="cutile-cpu")  # of whose product with itself each of the 4 SMs has 4 tiles
    small = whole_numbers(30, 16, backend="cutile-cpu")
    for group, kernels in (([large, large], ["gemm_tiles"] * 2), ([large, small], ["group_gemm_tiles"])):
        with record_launches() as launches:
            found = group_gemm(group, group, transpose_b=True, backend="cutile-cpu")
        assert [launch.kernel_name for launch in launches] == kernels
        assert all(torch.equal(c, a @ a.mT) for a, c in zip(group, found, strict=True))


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


@everywhere
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gradients_are_for_the_members_that_need_one(backend, transpose_b):
    """Each of its own sizes; zeros where there are no terms, nothing for those that are frozen."""
    sizes = [(33, 70, 20), (1, 8, 16), (0, 5, 3), (4, 0, 3), (40, 24, 24)]
    group_A = [whole_numbers(m, k, backend=backend) for m, _, k in sizes]
    group_B = [whole_numbers(*((n, k) if transpose_b else (k, n)), backend=backend) for _, n, k in sizes]
    grads = [whole_numbers(m, n, backend=backend) for m, n, _ in sizes]
    learnt = [*group_A[:4], *group_B[2:]]
    for one in learnt:
        one.requires_grad_()
    torch.autograd.backward(group_gemm(group_A, group_B, transpose_b=transpose_b, backend=backend), grads)
    for a, b, grad in zip(group_A, group_B, grads, strict=True):
        of_a, of_b = grad @ (b if transpose_b else b.mT), a.mT @ grad
        assert a.grad is None if not a.requires_grad else torch.equal(a.grad, of_a)
        assert b.grad is None if not b.requires_grad else torch.equal(b.grad, of_b.mT if transpose_b else of_b)


@everywhere
def test_members_whose_product_nobody_uses_have_no_gradient(backend):
    group_A = [whole_numbers(9, 8, backend=backend).requires_grad_() for _ in range(3)]
    group_B = [whole_numbers(8, 5, backend=backend).requires_grad_() for _ in range(3)]
    group_gemm(group_A, group_B, backend=backend)[1].sum().backward()
    assert torch.equal(group_A[1].grad, group_B[1].detach().sum(1).expand(9, 8))
    assert torch.equal(group_B[1].grad, group_A[1].detach().sum(0)[:, None].expand(8, 5))
    assert [one.grad for one in (*group_A[::2], *group_B[::2])] == [None] * 4


def test_gradients_of_each_side_are_one_launch():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    group = [whole_numbers(rows, 24, backend="cutile-cpu").requires_grad_() for rows in (9, 30, 17)]
    frozen = whole_numbers(24, 8, backend="cutile-cpu")
    for weights, launches_of_backward in (([frozen] * 3, 1), ([frozen.clone().requires_grad_()] * 3, 2)):
        found = group_gemm(group, weights, backend="cutile-cpu")
        with record_launches() as launches:
            torch.autograd.backward(found, [torch.ones_like(one) for one in found])
        assert [launch.kernel_name for launch in launches] == ["group_gemm_tiles"] * launches_of_backward
    assert torch.equal(weights[0].grad, sum(one.detach().sum(0) for one in group)[:, None].expand(24, 8))


def test_gradients_are_laid_out_as_their_members():
    """So that the gradients of transposed weights need no copy."""
    a = whole_numbers(20, 24, backend="cutile-cpu")
    weight = whole_numbers(40, 24, backend="cutile-cpu").t().requires_grad_()
    [gradient] = torch.autograd.grad(group_gemm([a], [weight], backend="cutile-cpu")[0].sum(), weight)
    assert gradient.stride() == (1, 24)
    assert torch.equal(gradient, a.sum(0)[:, None].expand(24, 40))


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


def test_unaligned_members_of_a_large_group_are_copied_into_aligned_rows():
    """A matrix that two products share, once."""
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    group_a = [whole_numbers(m, 330, backend="cutile-cpu") for m in (520, 9)]
    shared = whole_numbers(330, 521, backend="cutile-cpu")
    with record_launches() as launches:
        found = group_gemm(group_a, [shared, shared], backend="cutile-cpu")
    assert [launch.kernel_name for launch in launches] == ["copy_tiles"] * 3 + ["group_gemm_tiles"]
    assert all(torch.equal(c, a @ shared) for a, c in zip(group_a, found, strict=True))


@pytest.mark.parametrize("wrong", [lambda a, b: (a, [b]), lambda a, b: ([a], b), lambda a, b: (a[None], b[None])])
def test_a_tensor_for_a_list_is_refused_after_calls_that_were_right(wrong):
    a, b = torch.ones(4, 8), torch.ones(8, 5)
    for _ in range(3):
        group_gemm([a], [b], backend="torch")
    with pytest.raises(ArgumentTypeError, match=r"group_gemm: group_[AB] must be a list of tensors, got Tensor"):
        group_gemm(*wrong(a, b), backend="torch")
