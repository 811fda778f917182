"""softmax by Liger-Kernel."""

from liger_kernel.transformers.functional import liger_softmax
from torch import Tensor

from tilegym import register_impl


@register_impl("softmax", backend="liger")
def softmax(x: Tensor) -> Tensor:
    result: Tensor = liger_softmax(x)
    return result
