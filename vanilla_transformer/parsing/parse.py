"""Constituency parsing by translation (section 6.3 of the paper): words in, a linearised tree out."""

import re
from collections.abc import Callable, Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..translation import translate
from .linearised_trees import UNKNOWN_TAG, ReadTree, read_linearised, retagged
from .trees import Tree


# In the Penn Treebank, the word decides whether it is punctuation. EVALB leaves punctuation out by its tag: with one
# wrong tag, a sentence has the wrong number of words and no score.
_PUNCTUATION = {
    **{mark: mark for mark in (",", ".", ":", "``", "''")},
    **dict.fromkeys(("?", "!"), "."),
    **dict.fromkeys((";", "-", "--", "..."), ":"),
    "`": "``",
}
_EITHER = ("'", '"')  # quotation marks, or an apostrophe and an inch mark


def sentence_words(line: str) -> list[str]:
    """The words of a tokenised sentence, with brackets written as in trees: -LRB- and -RRB-."""
    # As in trees, only ASCII white space separates: a no-break space may be part of a word.
    return re.findall(r"\S+", line.replace("(", "-LRB-").replace(")", "-RRB-"), re.ASCII)


def parse(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sentences: Sequence[str],
    *,
    on_progress: Callable[[int], None] | None = None,
    **generate_options,
) -> list[ReadTree | None]:
    """Parses sentences as the model's generation config says, or as overridden.

    Args:
        model, tokenizer: A model that was trained on words and linearised trees, and its tokenizer.
        sentences: Tokenised like the treebank, with spaces between words.
        on_progress, **generate_options: As for `translation.translate`.

    Returns:
        For each sentence, its tree and its repairs; None for a blank one.
    """
    words = [sentence_words(sentence) for sentence in sentences]
    sources = [" ".join(each) for each in words]
    found = translate(model, tokenizer, sources, on_progress=on_progress, **generate_options)
    return [
        ReadTree(with_punctuation_tags(read.tree), read.repairs) if each else None
        for each, read in zip(words, map(read_linearised, found, words), strict=True)
    ]


def with_punctuation_tags(tree: Tree) -> Tree:
    """The same tree with the Penn Treebank's tags on punctuation, and on no other word."""

    def right_tag(leaf: Tree) -> str:
        if leaf.word in _PUNCTUATION:
            return _PUNCTUATION[leaf.word]
        if leaf.label in _PUNCTUATION.values() and leaf.word not in _EITHER:
            return UNKNOWN_TAG
        return leaf.label

    return retagged(tree, map(right_tag, tree.leaves()))
