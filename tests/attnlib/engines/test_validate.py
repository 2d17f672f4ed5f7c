"""The door: what an engine can rely on once a call has been let in.

Wrong calls are held at the public functions (`tests/attnlib/test_bad_input.py`); these tests enter
`validate` itself to see what it hands on, which no result shows.
"""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

from attnlib.engines import engine_for
from attnlib.engines._validate import array_kind, validate
from tests.kinds import KINDS

B, Hq, Hkv, L, S, E, Ev = 2, 6, 3, 5, 7, 4, 8


def arrays(kind, *, batch=(B,), heads=Hq, kv_heads=Hq) -> list:
    random = np.random.default_rng(700)
    shapes = ((*batch, heads, L, E), (*batch, kv_heads, S, E), (*batch, kv_heads, S, Ev))
    return [kind.floats(random.normal(size=shape)) for shape in shapes]


class TestCall:
    def test_arrays_pass_through_uncopied(self, kind):
        given = arrays(kind)
        assert all(a is b for a, b in zip(validate(*given)[:3], given, strict=True))

    def test_is_an_immutable_record(self, kind):
        with pytest.raises(AttributeError):
            validate(*arrays(kind)).scale = 1.0

    def test_fills_in_the_defaults(self, kind):
        call = validate(*arrays(kind))
        assert call.scale == 1 / np.sqrt(E)
        assert (call.groups, call.lead, call.causal_offset) == (1, (B, Hq), 0)
        assert call.attn_mask is call.key_mask is call.softcap is None
        assert not call.has_band
        assert not call.return_weights

    def test_knows_the_shapes_of_the_result(self, kind):
        query, key, value = arrays(kind)
        call = validate(query[0], key, value[:, :1])
        assert call.lead == (B, Hq)
        assert call.output_shape == (B, Hq, L, Ev)
        assert call.score_shape == (B, Hq, L, S)

    def test_counts_query_heads_for_each_key_head(self, kind):
        call = validate(*arrays(kind, kv_heads=Hkv), enable_gqa=True)
        assert (call.groups, call.lead) == (Hq // Hkv, (B, Hq))

    def test_gives_a_single_query_an_axis(self, kind):
        query, key, value = (array[0, 0] for array in arrays(kind))
        call = validate(query[3], key, value)
        assert call.single_query
        assert tuple(call.query.shape) == (1, E)
        assert call.lead == ()

    def test_numbers_are_plain_python(self, kind):
        call = validate(*arrays(kind), scale=np.float32(2), softcap=np.int64(3), is_causal=True)
        assert [type(n) for n in (call.scale, call.softcap, call.right)] == [float, float, int]
        assert (call.scale, call.softcap) == (2.0, 3.0)

    def test_scale_of_queries_without_width_is_a_number(self, kind):
        query, key, value = arrays(kind)
        assert validate(query[..., :0], key[..., :0], value).scale == 1.0


class TestPositions:
    @pytest.mark.parametrize(
        ("options", "band"),
        [
            ({"is_causal": True}, (None, 0)),
            ({"window": (2, 3)}, (2, 3)),
            ({"window": [np.int64(2), None]}, (2, None)),
            ({"window": (None, None)}, (None, None)),
            ({"window": (2, 3), "is_causal": True}, (2, 0)),
            ({"window": (2, None), "is_causal": True}, (2, 0)),
        ],
        ids=str,
    )
    def test_causal_and_window_are_one_band(self, kind, options, band):
        call = validate(*arrays(kind), **options)
        assert (call.left, call.right) == band
        assert call.has_band == (band != (None, None))

    def test_offsets_of_items_line_up_with_the_scores(self, kind):
        offset = kind.plain(np.array([3, -1], dtype=np.int32))
        call = validate(*arrays(kind), is_causal=True, causal_offset=offset)
        assert tuple(call.causal_offset.shape) == (B, 1, 1, 1)
        assert str(call.causal_offset.dtype).endswith("int64")

    def test_axis_0_of_a_3d_call_is_the_batch(self, kind):
        given = arrays(kind, batch=())
        offset, real = np.arange(Hq), np.arange(S) < np.arange(1, Hq + 1)[:, None]
        options = {"causal_offset": kind.plain(offset), "key_mask": kind.plain(real)}
        call = validate(*given, is_causal=True, **options)
        assert tuple(call.causal_offset.shape) == (Hq, 1, 1)
        assert tuple(call.key_mask.shape) == (Hq, 1, S)

    def test_positions_beyond_every_array_do_not_overflow(self, kind):
        call = validate(*arrays(kind), window=(10**30, 10**30), causal_offset=-(10**30))
        assert max(call.left, call.right, -call.causal_offset) < 2**60
        far = kind.plain(np.array([2**63 - 1, -(2**63)]))
        offsets = validate(*arrays(kind), is_causal=True, causal_offset=far).causal_offset
        assert int(abs(offsets).max()) < 2**60


class TestMasks:
    def test_key_masks_line_up_with_the_scores(self, kind):
        real = np.arange(S) < np.array([[4], [6]])
        of_items = validate(*arrays(kind), key_mask=kind.plain(real))
        assert tuple(of_items.key_mask.shape) == (B, 1, 1, S)
        of_all = validate(*arrays(kind), key_mask=kind.plain(real[0]))
        assert tuple(of_all.key_mask.shape) == (S,)

    def test_a_mask_always_has_an_axis(self, kind):
        call = validate(*arrays(kind), kind.plain(np.array(True)))
        assert tuple(call.attn_mask.shape) == (1,)


class TestKinds:
    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_are_told_by_the_class(self, kind):
        assert array_kind(kind.floats([1.0])) == kind.library
        assert array_kind([1.0]) is array_kind(1.0) is array_kind(None) is None

    def test_torch_is_looked_up_and_never_imported(self):
        code = (
            "import sys, numpy as np\n"
            "from attnlib.engines._validate import array_kind, validate\n"
            "x = np.ones((2, 3))\n"
            "validate(x, x, x, np.ones((2, 2), bool), is_causal=True)\n"
            "assert array_kind([x]) is None\n"
            "assert 'torch' not in sys.modules\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def test_foreign_byte_order_becomes_native(self):
        given = [np.ones(shape, dtype=">f8") for shape in ((L, E), (S, E), (S, Ev))]
        call = validate(*given)
        assert all(array.dtype == np.dtype("=f8") for array in call[:3])
        assert all(array.dtype.isnative for array in call[:3])
        np.testing.assert_array_equal(call.query, given[0])

    def test_subclasses_become_plain_arrays(self):
        class Marked(np.ndarray):
            pass

        given = [np.ones(shape).view(Marked) for shape in ((L, E), (S, E), (S, Ev))]
        assert all(type(array) is np.ndarray for array in validate(*given)[:3])

    def test_masked_arrays_are_refused_since_their_mask_would_be_lost(self):
        masked = np.ma.masked_array(np.ones((S, E)), mask=np.eye(S, E))
        with pytest.raises(TypeError, match=r"key must be a plain array.*key_mask"):
            validate(np.ones((L, E)), masked, np.ones((S, Ev)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_engine_takes_a_call_and_nothing_else(kind):
    engine = engine_for(kind.floats([1.0]))
    attention, gradients = (inspect.signature(f) for f in (engine.attention, engine.gradients))
    assert list(attention.parameters) == ["call"]
    assert list(gradients.parameters) == ["call", "grad_output"]
