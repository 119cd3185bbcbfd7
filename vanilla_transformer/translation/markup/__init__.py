"""Tags and placeholders: taken out of a line before it is translated, and put back by word alignment.

A line with markup is a tree: elements with their content, and points (void and self-closing elements,
comments, placeholders …). The model translates the text without it. Then each element goes around the words of the
translation that were made from its words, and each point beside the one made from its neighbour.

Whatever the alignment says, the tree's shape stays: a child gets its place within its parent's words, and siblings
share these without overlap. So no tag is lost or invented, and a well-formed line stays well-formed.
"""

from .marked_lines import Markup, text_of
from .putting_together import put_together
from .taking_apart import KINDS, BrokenMarkupError, MarkedLine, Node, take_apart


__all__ = ["KINDS", "BrokenMarkupError", "MarkedLine", "Markup", "Node", "put_together", "take_apart", "text_of"]
