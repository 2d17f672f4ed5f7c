"""attnlib: the companion library of the book *Attention, Number by Number*.

The modules follow the chapters.  `attnlib.nn`, the PyTorch module, is imported explicitly.
"""

from attnlib.causal import causal_attention, causal_attention_at
from attnlib.dense import dense_attention
from attnlib.single_query import attention_steps, single_query_attention, softmax

__all__ = [
    "attention_steps",
    "causal_attention",
    "causal_attention_at",
    "dense_attention",
    "single_query_attention",
    "softmax",
]
