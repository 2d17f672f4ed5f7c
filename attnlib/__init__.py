"""attnlib: the companion library of the book *Attention, Number by Number*.

The modules follow the chapters.  `attnlib.nn`, the PyTorch module, is imported explicitly.
"""

from attnlib.causal import causal_attention, causal_attention_at
from attnlib.dense import dense_attention
from attnlib.functional import scaled_dot_product_attention
from attnlib.generation import KVCache
from attnlib.gradients import attention_gradients
from attnlib.multi_head import MultiHeadAttention, multi_head_attention
from attnlib.single_query import attention_steps, single_query_attention, softmax

__all__ = [
    "KVCache",
    "MultiHeadAttention",
    "attention_gradients",
    "attention_steps",
    "causal_attention",
    "causal_attention_at",
    "dense_attention",
    "multi_head_attention",
    "scaled_dot_product_attention",
    "single_query_attention",
    "softmax",
]
