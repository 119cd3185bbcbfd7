"""How text is split into words before its n-grams are counted, as tokenizers of sacreBLEU.

Moses' rules are those of sacremoses. It leaves the full stop on a line's last word if that is an abbreviation ("usw.")
or has another full stop in it ("Ram.is."), as tokenizer.perl did when the paper's scores and Multi30k's files were
made. Since November 2018 tokenizer.perl splits it off; where both were tried, BLEU moved by 0.01 at most.
"""

import re
from functools import lru_cache
from importlib.metadata import version

from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer
from sacremoses import MosesPunctNormalizer, MosesTokenizer


_CACHED_LINES = 2**16  # as in sacreBLEU's own tokenizers: one set of references meets many systems
_QUOTATION_RULES_KNOWN = ("en", "cs", "cz", "de", "es", "fr")
_COMPOUND = re.compile(r"(\S)-(\S)", flags=re.ASCII)  # Perl reads bytes there, and only ASCII spaces count


class TokenizedText(BaseTokenizer):
    """Text that is already tokenised, in any language: ASCII spaces separate its words, as for multi-bleu.perl."""

    def __init__(self, language: str = ""):
        self.language = language

    def signature(self) -> str:
        return "none"

    def __call__(self, line: str) -> str:
        # sacreBLEU splits at every Unicode space; multi-bleu.perl reads bytes, and does not split at U+00A0.
        return re.sub(r"[^\S\t\n\v\f\r ]", lambda space: f"&#{ord(space[0])};", line)


class _MosesTokenized(BaseTokenizer):
    """The words that Moses' tokenizer finds in text that each class prepares in its own way."""

    def __init__(self, language: str, normalizer: MosesPunctNormalizer):
        self.language = language
        self._normalizer = normalizer
        self._tokenizer = MosesTokenizer(lang=language)
        self._cached = lru_cache(_CACHED_LINES)(self._tokenized)

    def signature(self) -> str:
        return f"moses-sacremoses-{version('sacremoses')}-{self.language}-escaped"

    def __call__(self, line: str) -> str:
        return self._cached(line)


class Multi30kTokenizer(_MosesTokenized):
    """Normalises punctuation and Moses-tokenises, on lower-cased text, as Multi30k's own script does.

    The script is `scripts/task1-tokenize.sh` of the repository multi30k/dataset: `lowercase.perl |
    normalize-punctuation.perl -l LANGUAGE | tokenizer.perl -l LANGUAGE`. Lower-casing comes first, which matters: Moses
    would take the beard of "rasiert seinen Bart." for the abbreviation "Bart." and keep the full stop on it. The texts
    come out as the files published there as `data/task1/tok`, and test_2016_flickr.de has the 12,103 words that Wu et
    al. (2021) print.
    """

    normalization = "moses-perl"

    def __init__(self, language: str):
        super().__init__(language, MosesPunctNormalizer(lang=language, perl_parity=True))
        if language not in _QUOTATION_RULES_KNOWN:  # Perl has this rule for all others, sacremoses for de, es and fr
            self._normalizer.substitutions[-1:-1] = MosesPunctNormalizer.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA

    def _tokenized(self, line: str) -> str:
        # Perl's rules see the end of the line as a character; without it, `."` would stay as it is there.
        return self._tokenizer.tokenize(self._normalizer.normalize(f"{line}\n"), return_str=True)


class PaperTokenizer(_MosesTokenized):
    """Moses-tokenises text, case kept, and splits German compounds, as for the paper's BLEU of 28.4.

    The steps are those of tensor2tensor's `utils/get_ende_bleu.sh`: `replace-unicode-punctuation.perl`,
    `tokenizer.perl -l LANGUAGE`, and for German `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`, which makes three words of
    "Bericht-Entwurf" and so gives some credit to hypotheses with one half right ("for historical reasons").
    The script took its references tokenised from elsewhere; here they go through the same steps.
    """

    normalization = "moses-unicode-punctuation"

    def __init__(self, language: str, split_compounds: bool | None = None):
        super().__init__(language, MosesPunctNormalizer(lang=language))
        self.split_compounds = language == "de" if split_compounds is None else split_compounds

    def signature(self) -> str:
        return f"{super().signature()}{'-atat' if self.split_compounds else ''}"

    def _tokenized(self, line: str) -> str:
        tokens = self._tokenizer.tokenize(self._normalizer.replace_unicode_punct(line), return_str=True)
        return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens) if self.split_compounds else tokens
