"""Constituency parsing by translation (section 6.3 of the paper): words in, a linearised tree out."""

import re
from collections.abc import Callable, Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..evaluation.linearised_trees import UNKNOWN_TAG, ReadTree, read_linearised, retagged
from ..evaluation.trees import Tree
from ..translation import translate


# In the Penn Treebank the word decides whether it is punctuation, and EVALB leaves punctuation out by its tag: one slip
# there, and a sentence has the wrong number of words and no score.
_PUNCTUATION = {
    **{mark: mark for mark in (",", ".", ":", "``", "''")},
    **dict.fromkeys(("?", "!"), "."),
    **dict.fromkeys((";", "-", "--", "..."), ":"),
    "`": "``",
}
_WORD = re.compile(r"\S+", re.ASCII)  # as in trees: a no-break space may be part of a word
_EITHER = ("'", '"')  # quotation marks, or an apostrophe and inches
_PUNCTUATION_TAGS = frozenset(_PUNCTUATION.values())


def sentence_words(line: str) -> list[str]:
    """The words of a sentence that is tokenised already, with brackets as trees have them: -LRB- and -RRB-."""
    return _WORD.findall(line.replace("(", "-LRB-").replace(")", "-RRB-"))


def parse(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    *,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> list[ReadTree | None]:
    """Parses sentences as the model's generation config says or as overridden.

    Args:
        model: A model that was trained on words and linearised trees.
        tokenizer: Its tokenizer.
        sentences: Tokenised as the treebank is, with spaces between words.
        on_progress: Called after every batch with the number of sentences that it finished.
        **generate_options: Anything that `translation.translate` takes, say `num_beams=1`.

    Returns:
        For each sentence its tree and what was repaired in it; None for a blank one.
    """
    words = [sentence_words(sentence) for sentence in sentences]
    sources = [" ".join(each) for each in words]
    found = translate(model, tokenizer, sources, on_progress=on_progress, **generate_options)
    return [
        ReadTree(with_punctuation_tags(read.tree), read.repairs) if each else None
        for each, read in zip(words, map(read_linearised, found, words), strict=True)
    ]


def with_punctuation_tags(tree: Tree) -> Tree:
    """The same tree in which punctuation has the Penn Treebank's tags for it, and no other word has one of them."""
    return retagged(tree, map(_right_tag, tree.leaves()))


def _right_tag(leaf: Tree) -> str:
    if leaf.word in _PUNCTUATION:
        return _PUNCTUATION[leaf.word]
    if leaf.word in _EITHER:
        return leaf.label
    return UNKNOWN_TAG if leaf.label in _PUNCTUATION_TAGS else leaf.label
