"""Feed-forward blocks."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from tilegym.ops import swiglu


class SwiGLU(nn.Module):
    """A gated feed-forward block: `down_proj(silu(gate_proj(x)) * up_proj(x))`, as Llama has it."""

    backend: ClassVar[str | None] = None

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool = False) -> None:
        """Make the three projections; `bias`: whether each adds one."""
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden_size) → (..., hidden_size)."""
        result: Tensor = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x), backend=self.backend))
        return result
