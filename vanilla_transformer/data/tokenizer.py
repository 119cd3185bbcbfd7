"""Learns a shared source-target vocabulary and returns it as a tokenizer of transformers (section 5.1 of the paper).

The paper uses byte-pair encoding with about 37,000 pieces for English-German and 32,000 word pieces for English-French.
Both work on bytes here, so any Unicode text can be written and nothing is ever lost:

    text -> NFC (or NFKC), one blank in front -> words -> bytes spelt as visible characters -> pieces -> ids + </s>

The blank in front makes a word the same piece at the start of a sentence as elsewhere; decoding takes it away again.
What is saved is a plain `tokenizer.json`: `AutoTokenizer.from_pretrained(folder)` loads it without this package.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import regex
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .forms import check_shares, some_in_forms


logger = logging.getLogger(__name__)

SPECIAL_TOKENS = BOS_TOKEN, PAD_TOKEN, EOS_TOKEN, UNK_TOKEN = ("<s>", "<pad>", "</s>", "<unk>")
"""The special tokens in the order of their ids. `<s>` starts the decoder; no text ever needs `<unk>`."""
BOS_ID, PAD_ID, EOS_ID, UNK_ID = range(len(SPECIAL_TOKENS))

# And the smallest vocabulary of each: WordPiece has every byte twice, as the start and as the continuation of a word.
KINDS = {"bpe": len(SPECIAL_TOKENS) + 256, "wordpiece": len(SPECIAL_TOKENS) + 2 * 256}
NORMAL_FORMS = ("nfc", "nfkc")
LARGEST_VOCABULARY = 1_000_000  # four times what the largest multilingual models have

# Names that transformers writes for the class of `learn_tokenizer`'s result; the first is that of version 4.
_OUR_CLASS = ("PreTrainedTokenizerFast", "TokenizersBackend")

# Marks a word piece that continues a word. The usual "##" would make the text "##ing" and the ending "ing" one piece;
# this sign (OpenNMT's joiner, U+FFED) is not one of the 256 characters that spell bytes, so no text can look like it.
CONTINUATION = "￭"

# The letter that many languages write as an apostrophe (puso, saltillo, okina), and its other spellings.
APOSTROPHE_LETTER = "\u02bc"
APOSTROPHES = "'`\u00b4\u2018\u2019\u2032\u02bb\ua78c"


def between_letters(characters: str) -> str:
    """The pattern of one of these after a letter, or its combining mark (Guarani's g\u0303), and before another."""
    return rf"(?<=[\p{{L}}\p{{M}}])[{characters}](?=\p{{L}})"


_BETWEEN_LETTERS = regex.compile(between_letters(APOSTROPHES))


def with_apostrophe_letters(text: str) -> str:
    """A text as a vocabulary with `apostrophe_as_letter` reads it: as long as before, with a letter for apostrophes."""
    return _BETWEEN_LETTERS.sub(APOSTROPHE_LETTER, text)


def as_read_by(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], str]:
    """How a tokenizer reads apostrophes in words: `with_apostrophe_letters`, or `str` if it leaves them as they are."""
    letters = tokenizer("a'a").input_ids == tokenizer(f"a{APOSTROPHE_LETTER}a").input_ids
    return with_apostrophe_letters if letters else str


# Words longer than this many characters are cut: word pieces are searched in time that grows with the word's square.
MAX_WORD_LENGTH = 64

# GPT-2's words, with combining marks counted as letters, and joiners (U+200C, U+200D) after one: Persian and Hindi
# words have them. English contractions only where the word ends, and lengths bounded. No word mixes letters with `<` or
# `>`, so no learned piece can ever be spelt like a special token.
WORD = (
    r"'(?:s|t|re|ve|m|ll|d)(?![\p{L}\p{M}])"
    r"| ?[\p{L}\p{M}][\p{L}\p{M}\x{200C}\x{200D}]*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
)
WORD = WORD.replace("+", f"{{1,{MAX_WORD_LENGTH}}}").replace("*", f"{{0,{MAX_WORD_LENGTH - 1}}}")
# Text that is tokenised already: words are separated by spaces, with `<` and `>` apart as above.
SPACED_WORD = r" ?[^\s<>]+| ?[<>]+|\s+(?!\S)|\s+".replace("+", f"{{1,{MAX_WORD_LENGTH}}}")


@dataclass(frozen=True)
class TokenizerSettings:
    """The `tokenizer` section of a recipe.

    Attributes:
        kind: `"bpe"` (the paper's English-German) or `"wordpiece"` (its English-French).
        vocab_size: Number of pieces, at most a million, special tokens and single bytes included. Tags of corpora come
            on top.
        lowercase: Whether to lower-case all text. The paper does not do it.
        pretokenized: Whether the text is tokenised already, so that everything between two spaces is a word: `(NP` or
            `n't` may become one piece. If not, letters, digits and other signs are separate words.
        normalization: Unicode's normal form of all text, in training and in use: `"nfc"`, which keeps everything
            visible, or `"nfkc"`, which also turns half-width katakana, full-width letters, ligatures and Arabic
            presentation forms into the usual letters.
        apostrophe_as_letter: Whether an apostrophe between letters is a letter, as in Guarani "ñe'ẽ" or Ukrainian
            "м'яч": words stay whole, and all its spellings (quotation marks, accents, primes, U+02BB, U+02BC, U+A78C)
            become one, which decoding writes as `'`.
        forms: Share of the texts that are read in each form while the vocabulary is learned, `{upper: 0.07}`; {} for
            none. Training with `training.augmentation` needs pieces for the forms: without them a text in capitals has
            three times the tokens.

    Raises:
        ValueError: `kind`, `normalization` or a form is unknown, `vocab_size` too small or too large, or a share out of
            range.
    """

    kind: str = "bpe"
    vocab_size: int = 37_000
    lowercase: bool = False
    pretokenized: bool = False
    normalization: str = "nfc"
    apostrophe_as_letter: bool = False
    forms: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"tokenizer.kind is {self.kind!r}; choose one of {', '.join(map(repr, KINDS))}")
        if self.normalization not in NORMAL_FORMS:
            named = ", ".join(map(repr, NORMAL_FORMS))
            raise ValueError(f"tokenizer.normalization is {self.normalization!r}; choose one of {named}")
        check_shares(self.forms, "tokenizer.forms")
        if self.vocab_size > LARGEST_VOCABULARY:  # the library would reserve memory for all, and crash
            raise ValueError(f"tokenizer.vocab_size is {self.vocab_size:,}; choose at most {LARGEST_VOCABULARY:,}")
        if self.vocab_size < KINDS[self.kind]:
            raise ValueError(
                f"tokenizer.vocab_size is {self.vocab_size:,}; {self.kind} needs at least {KINDS[self.kind]:,}: "
                f"{len(SPECIAL_TOKENS)} special tokens and the 256 bytes"
                + (", each as the start and as the continuation of a word" if self.kind == "wordpiece" else "")
            )


def learn_tokenizer(
    texts: Iterable[str], settings: TokenizerSettings, *, tags: Sequence[str] = (), show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Learns a vocabulary of exactly `settings.vocab_size` pieces (section 5.1), and of the tags after them.

    The same texts and settings give the same tokenizer byte for byte, on any number of threads.

    Args:
        texts: Lines of text, source and target alike, in any order; read once. See `files.text_lines`.
        settings: Kind and size of the vocabulary.
        tags: Special tokens to add, say `<bt>`. Pieces and their ids are the same without tags. No text can spell a
            tag; see [`languages.tag_ids`].
        show_progress: Whether to count the texts on standard error, if it is a terminal.

    Returns:
        A tokenizer that ends every text with `</s>`, reads special tokens written in a text as text, has no maximum
        input length, and on decoding gives back `unicodedata.normalize("NFC", text)` (by Unicode 9: runs of combining
        marks with later ones among them stay in the order written), or whatever else `settings` make of it.

    Raises:
        TypeError: `texts` is a single string, or holds something other than strings.
        ValueError: There is no text, or too little of it for that many pieces; or a tag is invalid.
    """
    for tag in tags:
        check_tag(tag)
    # Not the bars of tokenizers, each of which ends with an empty line on standard output.
    with tqdm(_checked(texts), desc="learning", unit=" texts", disable=None if show_progress else True) as counted:
        tokenizer = _around(_learned_model(some_in_forms(counted, settings.forms), settings), settings)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    if (size := tokenizer.get_vocab_size()) < settings.vocab_size:
        raise ValueError(
            f"asked for {settings.vocab_size:,} pieces, the text allows at most {size:,}; lower tokenizer.vocab_size"
        )
    tokenizer.add_special_tokens(list(tags))
    behind = f", followed by the tag{'s' * (len(tags) > 1)} {', '.join(tags)}" if tags else ""
    logger.info("Learned a %s vocabulary of %s pieces%s.", settings.kind, f"{size:,}", behind)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS_TOKEN,
        pad_token=PAD_TOKEN,
        eos_token=EOS_TOKEN,
        unk_token=UNK_TOKEN,
        **({"extra_special_tokens": list(tags)} if tags else {}),
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def ids_of_tags(tokenizer: PreTrainedTokenizerFast) -> set[int]:
    """The ids of tags, markers and the separator; words that were added to the vocabulary are none."""
    added = tokenizer.added_tokens_decoder.items()
    return {number for number, token in added if token.special and token.content not in SPECIAL_TOKENS}


def knows_capitals(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether a capital is another token than its small letter; otherwise a model writes no capitals."""
    return tokenizer("A").input_ids != tokenizer("a").input_ids


def check_tag(tag: str) -> None:
    """Raises ValueError for an invalid tag; `WORD` says why `<` and a letter or digit never make one piece."""
    if not re.fullmatch(r"<[A-Za-z0-9][\w.-]{0,49}>", tag, flags=re.ASCII) or tag in SPECIAL_TOKENS:
        raise ValueError(
            f"the tag {tag!r:.100} cannot be a token: write a word between angle brackets, say <bt>, without blanks, "
            f"and none of {', '.join(SPECIAL_TOKENS)}"
        )


def _learned_model(texts: Iterable[str], settings: TokenizerSettings) -> models.Model:
    """Merges the most frequent pair of neighbours, again and again."""
    # The library's own order of the characters that spell bytes changes from run to run.
    options = {"vocab_size": settings.vocab_size, "show_progress": False}
    options["initial_alphabet"] = alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if settings.kind == "bpe":
        tokenizer = _around(models.BPE(), settings)
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=list(SPECIAL_TOKENS), **options))
        return tokenizer.model
    # The trainer numbers continuing bytes as it meets them, in the order of a hash table that differs from run to run,
    # and leaves out those it never meets. Named as special tokens, all of them are there, in a fixed order.
    special = [*SPECIAL_TOKENS, *(CONTINUATION + byte for byte in alphabet)]
    trainer = trainers.WordPieceTrainer(special_tokens=special, continuing_subword_prefix=CONTINUATION, **options)
    tokenizer = _around(models.WordPiece(unk_token=UNK_TOKEN), settings)
    tokenizer.train_from_iterator(texts, trainer)
    return models.WordPiece(
        tokenizer.get_vocab(),
        unk_token=UNK_TOKEN,
        continuing_subword_prefix=CONTINUATION,
        max_input_chars_per_word=4 * (MAX_WORD_LENGTH + 1),  # in bytes: four per character, one more for the blank
    )


def _around(model: models.Model, settings: TokenizerSettings) -> Tokenizer:
    """Surrounds the model with what comes before it, from text to words, and after it, from pieces to text."""
    tokenizer = Tokenizer(model)
    # Apostrophes first: NFKC would turn the one that is an accent into a blank and an accent.
    changes = (
        [normalizers.Replace(Regex(between_letters(APOSTROPHES)), APOSTROPHE_LETTER)]
        if settings.apostrophe_as_letter
        else []
    )
    changes += [normalizers.NFKC()] if settings.normalization == "nfkc" else []
    changes += [normalizers.Lowercase()] if settings.lowercase else []
    tokenizer.normalizer = normalizers.Sequence([*changes, normalizers.NFC(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPACED_WORD if settings.pretokenized else WORD), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS_TOKEN}", pair=f"$A {EOS_TOKEN} $B {EOS_TOKEN}", special_tokens=[(EOS_TOKEN, EOS_ID)]
    )
    unmark = [decoders.Replace(CONTINUATION, "")] if settings.kind == "wordpiece" else []
    apostrophe = [decoders.Replace(APOSTROPHE_LETTER, "'")] if settings.apostrophe_as_letter else []
    # ByteLevel joins the pieces to one text, so Strip sees only that text's first blank: the one put in front.
    tokenizer.decoder = decoders.Sequence([*unmark, decoders.ByteLevel(), *apostrophe, decoders.Strip(" ", 1, 0)])
    return tokenizer


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; raises TypeError for anything but strings, and ValueError at the end if all were empty."""
    if isinstance(texts, str):
        raise TypeError("texts is one string, not an iterable of lines; for the lines of a file use text_lines(path)")
    found = False
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise TypeError(f"text {number} to learn a tokenizer from is {text!r:.100}, not a string")
        found = found or bool(text)
        yield text
    if not found:
        raise ValueError("no text to learn a tokenizer from: every line was empty, or there was none")


def load_tokenizer(folder: str | PathLike[str]) -> PreTrainedTokenizerFast:
    """Loads a tokenizer saved with `save_pretrained` and checks that it fits this package.

    Raises:
        ValueError: The folder holds no tokenizer, or one whose special tokens do not have the ids of `SPECIAL_TOKENS`.
    """
    remedy = "learn one with learn_tokenizer(...) and save it there with save_pretrained"
    if not (Path(folder) / "tokenizer.json").is_file():
        raise ValueError(f"there is no tokenizer.json in {str(folder)!r}; {remedy}")
    # Ours has no code. Another tokenizer's code is not run, and transformers does not ask whether to run it.
    try:
        tokenizer = _class_of(Path(folder)).from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # damaged files; `tokenizers` raises Exception itself
        if isinstance(error, (OSError, ImportError)):
            raise
        raise ValueError(f"the tokenizer in {str(folder)!r} cannot be read ({error}): {remedy}") from error
    found = (tokenizer.bos_token, tokenizer.pad_token, tokenizer.eos_token, tokenizer.unk_token)
    ids = tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS))
    if found != SPECIAL_TOKENS or ids != list(range(len(SPECIAL_TOKENS))):
        raise ValueError(
            f"the tokenizer in {str(folder)!r} has the special tokens {found} and the ids {ids} for {SPECIAL_TOKENS}; "
            f"this package needs exactly those, with ids 0 to {UNK_ID}: {remedy}"
        )
    return tokenizer


def _class_of(folder: Path) -> type:
    """The class that loads a tokenizer: `AutoTokenizer`, which first looks through all models, only if needed."""
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return AutoTokenizer
    known = isinstance(settings, dict) and "auto_map" not in settings
    return PreTrainedTokenizerFast if known and settings.get("tokenizer_class") in _OUR_CLASS else AutoTokenizer
