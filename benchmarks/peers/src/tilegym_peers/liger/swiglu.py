"""swiglu by Liger-Kernel."""

from liger_kernel.transformers.functional import liger_swiglu
from torch import Tensor

from tilegym import register_impl


@register_impl("swiglu", backend="liger")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = liger_swiglu(a, b)
    return result
