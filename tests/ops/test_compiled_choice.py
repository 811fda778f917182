"""In compiled code the next backend takes what the first refuses, as eagerly; the sizes that decided are guarded."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tilegym
from tilegym import config
from tilegym.ops import softmax


@pytest.fixture(params=["inlined", "one node"])
def two_rows_only(request):
    def supports(x):
        return None if x.shape[0] == 2 else "two rows only"

    composite = request.param == "inlined"
    tilegym.register_impl("softmax", "choosy", supports=supports, composite=composite)(lambda x: x + 1)
    tilegym.register_backward("softmax", "choosy")(lambda grad_output, output: grad_output * 1)
    yield
    torch.compiler.reset()


def test_the_next_backend_serves(two_rows_only):
    call = torch.compile(softmax, backend="aot_eager", fullgraph=True, dynamic=True)
    with tilegym.use_backend("choosy"):
        for rows in (2, 3, 2):
            x = torch.randn(rows, 5, requires_grad=True)
            y = call(x)
            torch.testing.assert_close(y, x + 1 if rows == 2 else torch.softmax(x, -1))
            y.sum().backward()
            torch.testing.assert_close(x.grad, torch.ones(2, 5) if rows == 2 else torch.zeros(3, 5))


def test_none_does_where_fallback_is_an_error(two_rows_only):
    call = torch.compile(softmax, backend="eager", fullgraph=True)
    replacement = dataclasses.replace(config.settings(), fallback="error")
    with config.override(replacement), tilegym.use_backend("choosy"):
        torch.testing.assert_close(call(torch.zeros(2, 5)), torch.ones(2, 5))
        with pytest.raises(Exception, match="choosy: two rows only"):
            call(torch.zeros(3, 5))
