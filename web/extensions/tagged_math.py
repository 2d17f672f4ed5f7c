r"""Let equations numbered by hand (``$$ ... \tag{2.1} $$``) through LaTeX.

A hand-written number is the same in every viewer of the notebook. MathJax takes it as it is;
in LaTeX the wrapper that Sphinx puts around equations forbids ``\tag``.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class TaggedMath(SphinxPostTransform):
    r"""Wrap equations that carry a ``\tag`` in a plain ``equation`` environment."""

    default_priority = 5
    formats = ("latex",)

    def run(self, **kwargs: object) -> None:
        for node in self.document.findall(nodes.math_block):
            if r"\tag{" not in node.astext() or node.get("nowrap"):
                continue
            equation = rf"\begin{{equation}}{node.astext().strip()}\end{{equation}}"
            node.children = [nodes.Text(equation)]
            node["nowrap"] = True


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_post_transform(TaggedMath)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
