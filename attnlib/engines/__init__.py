"""Where speed lives: one engine for NumPy arrays, one for torch tensors.

An engine is a module with the same two functions. They take a validated ``Call`` and never raise:

* ``attention(call)`` returns ``(output, weights)``, weights None unless they were asked for.
* ``gradients(call, grad_output)`` returns ``(grad_query, grad_key, grad_value)``, each of the shape
  of the array in ``call`` that it belongs to.

Both see a single query as ``(1, E)``; the door that made it so takes the axis away again.
"""
