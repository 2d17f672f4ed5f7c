"""Where speed lives: one engine for NumPy arrays, one for torch tensors.

An engine is a module with the same two functions. They take a validated ``Call`` and never raise:

* ``attention(call)`` returns ``(output, weights)``, weights None unless they were asked for.
* ``gradients(call, grad_output)`` returns ``(grad_query, grad_key, grad_value)``, each of the shape
  of the array in ``call`` that it belongs to.

Both see a single query as ``(1, E)``; the door that made it so takes the axis away again.
"""

from types import ModuleType
from typing import Any

from attnlib.engines import numpy_tiled
from attnlib.engines._validate import array_kind


def engine_for(array: Any) -> ModuleType:
    """Return the engine that computes on arrays of this kind.

    torch is imported only where a tensor has come, so that NumPy users never wait for it.

    Parameters
    ----------
    array : ndarray or torch.Tensor
        A validated array.

    Returns
    -------
    module
        The engine, with the two functions above.
    """
    if array_kind(array) == "numpy":
        return numpy_tiled
    from attnlib.engines import torch_fused

    return torch_fused
