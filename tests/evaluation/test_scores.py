"""Scores: equal to independent formulas, to sacreBLEU itself and to published numbers; wrong input is refused."""

import csv
import math
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu

from vanilla_transformer.evaluation.metric_names import METRICS
from vanilla_transformer.evaluation.scores import Score, perplexity, score_translations
from vanilla_transformer.evaluation.tokenizers import Multi30kTokenizer


SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
MULTI30K = SHARED / "multi30k"
WMT17 = SHARED / "metric_refs" / "wmt17_en_de_systems"
WMT15 = SHARED / "metric_refs" / "wmt15_en_ru_100"

REFERENCES = [
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    'Eine Frau hält einen großen Scheck für "Kids\' Food Basket".',
    "Fünf Leute stehen im Schnee.",
]
HYPOTHESES = [
    "Ein Mann mit einem orangen Hut starrt etwas an.",
    "Ein Boston Terrier läuft über grünes Gras vor einem weißen Zaun.",
    'eine Frau hält einen großen Scheck für "Kids\' Food Basket" hoch.',
    "Fünf Leute stehen im Schnee.",
]


def needs(folder):
    return pytest.mark.skipif(not folder.is_dir(), reason=f"../shared/data/{folder.name} is not there")


def read_lines(path):
    # Not splitlines(), which also splits at U+2028 and the like.
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def tokenize_for_multi30k(sentences, language):
    tokenizer = Multi30kTokenizer(language)
    return [tokenizer(sentence.lower()) for sentence in sentences]


def score(hypotheses, references, metric, target_language="de"):
    [result] = score_translations(hypotheses, references, [metric], target_language=target_language)
    return result


def bleu_by_the_formula(hypotheses, references):
    """Papineni et al. (2002), sections 2.1 to 2.3, on text whose tokens are separated by spaces."""
    matches, totals = Counter(), Counter()
    hypothesis_length = reference_length = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hypothesis, reference = hypothesis.split(), reference.split()
        hypothesis_length += len(hypothesis)
        reference_length += len(reference)
        for n in range(1, 5):
            ours = Counter(zip(*(hypothesis[i:] for i in range(n)), strict=False))
            theirs = Counter(zip(*(reference[i:] for i in range(n)), strict=False))
            matches[n] += sum((ours & theirs).values())
            totals[n] += sum(ours.values())
    if min(matches[n] for n in range(1, 5)) == 0:
        return 0.0
    brevity_penalty = min(1.0, math.exp(1 - reference_length / hypothesis_length))
    return 100 * brevity_penalty * math.exp(sum(math.log(matches[n] / totals[n]) for n in range(1, 5)) / 4)


class TestTokenizedBleu:
    def test_tokens_are_those_of_the_literature(self):
        # Lines 1 and 226 of multi30k/dataset's data/task1/tok/test_2016_flickr.lc.norm.tok.de.
        raw = [
            "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
            'Eine Frau auf einem Boot namens "El Corazon" lässt schwarze Gewichte ins Wasser fallen.',
        ]
        assert tokenize_for_multi30k(raw, "de") == [
            "ein mann mit einem orangefarbenen hut , der etwas anstarrt .",
            "eine frau auf einem boot namens &quot; el corazon &quot; lässt schwarze gewichte ins wasser fallen .",
        ]

    def test_equals_the_formula(self):
        expected = bleu_by_the_formula(tokenize_for_multi30k(HYPOTHESES, "de"), tokenize_for_multi30k(REFERENCES, "de"))
        assert 20 < expected < 90
        assert score(HYPOTHESES, REFERENCES, "bleu_lowercase_tokenized").value == pytest.approx(expected, abs=1e-9)

    def test_equals_the_formula_where_the_brevity_penalty_acts(self):
        hypotheses = [hypothesis.rsplit(" ", 2)[0] for hypothesis in HYPOTHESES]
        expected = bleu_by_the_formula(tokenize_for_multi30k(hypotheses, "de"), tokenize_for_multi30k(REFERENCES, "de"))
        result = score(hypotheses, REFERENCES, "bleu_lowercase_tokenized")
        assert result.value == pytest.approx(expected, abs=1e-9)
        assert "BP=1.000" not in result.detail

    def test_by_hand(self):
        # One 4-gram of two, two 3-grams of three, three bigrams of four, four words of five; the case does not count.
        expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
        result = score(["A b C d e"], ["a B c D f"], "bleu_lowercase_tokenized")
        assert result.value == pytest.approx(expected, abs=1e-9)
        assert result.detail == "80.0/75.0/66.7/50.0 (BP=1.000 ratio=1.000 hyp_len=5 ref_len=5)"

    def test_is_not_smoothed(self):
        assert score(["a b c x"], ["a b c d"], "bleu_lowercase_tokenized").value == 0.0
        assert score(["a b c x"], ["a b c d"], "sacrebleu").value > 0.0

    def test_signature_tells_everything(self):
        signature = score(HYPOTHESES, REFERENCES, "bleu_lowercase_tokenized").signature
        names = [field.split(":")[0] for field in signature.split("|")]
        assert names == ["nrefs", "case", "eff", "norm", "tok", "smooth", "version"]
        assert signature.startswith("nrefs:1|case:lc|eff:no|norm:moses-perlparity|tok:moses-sacremoses-")
        assert signature.endswith(f"-de-escaped|smooth:none|version:{sacrebleu.__version__}")

    def test_language_is_part_of_the_score(self):
        french = score(["l'homme est grand ."] * 2, ["l'homme est petit ."] * 2, "bleu_lowercase_tokenized", "fr_FR")
        assert "-fr-escaped" in french.signature
        assert "ref_len=10)" in french.detail  # l' homme est petit .

    @needs(MULTI30K)
    @pytest.mark.parametrize(
        ("name", "characters"),
        [
            # Lengths of multi30k/dataset's data/task1/tok/*.lc.norm.tok.* (commit 7bee46b), in characters.
            ("test_2016_flickr.de", 70777),
            ("test_2016_flickr.en", 63307),
            ("test_2016_flickr.fr", 75145),
            ("val.de", 76011),
            ("val.en", 64608),
            ("val.fr", 77007),
        ],
    )
    def test_tokenized_multi30k_is_as_long_as_the_published_files(self, name, characters):
        lines = tokenize_for_multi30k(read_lines(MULTI30K / name), name.rsplit(".")[-1])
        assert sum(len(line) + 1 for line in lines) == characters

    @needs(MULTI30K)
    def test_multi30k_reference_has_the_published_number_of_words(self):
        # Wu et al. (2021): "BLEU4 = 41.02, 71.0/47.5/34.3/24.5 (BP=0.999, ratio=0.999, syslen=12096, reflen=12103)".
        references = read_lines(MULTI30K / "test_2016_flickr.de")
        result = score(references, references, "bleu_lowercase_tokenized")
        assert result.value == pytest.approx(100)
        assert "ref_len=12103)" in result.detail

    @needs(WMT15)
    def test_the_formula_of_these_tests_gives_the_printed_score_of_multi_bleu(self):
        # README.upstream.txt: "BLEU = 23.17, 53.8/29.6/17.6/10.3 (BP=1.000, ratio=1.074, hyp_len=1989, ref_len=1852)".
        expected = bleu_by_the_formula(read_lines(WMT15 / "google.ru"), read_lines(WMT15 / "ref.ru"))
        assert expected == pytest.approx(23.17, abs=0.005)

    @needs(WMT15)
    def test_tokens_are_those_of_moses(self):
        raw, moses = read_lines(WMT15 / "newstest-2015-100sents.en-ru.ref.ru"), read_lines(WMT15 / "ref.ru")
        assert tokenize_for_multi30k(raw, "ru") == [line.lower() for line in moses]
        raw, moses = read_lines(WMT15 / "newstest-2015-100sents.en-ru.google.ru"), read_lines(WMT15 / "google.ru")
        # Moses' files were made without normalize-punctuation.perl, which turns the quotation mark of one line.
        assert tokenize_for_multi30k(raw, "ru") == [line.lower().replace("«", "&quot;") for line in moses]


class TestSacrebleu:
    @pytest.mark.parametrize(("metric", "lowercase"), [("sacrebleu", False), ("sacrebleu_lowercase", True)])
    def test_equals_sacrebleu(self, metric, lowercase):
        expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase)
        result = score(HYPOTHESES, REFERENCES, metric)
        assert result.value == expected.score
        case = "lc" if lowercase else "mixed"
        assert result.signature == f"nrefs:1|case:{case}|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
        assert result.detail.endswith(f"hyp_len={expected.sys_len} ref_len={expected.ref_len})")

    def test_case_counts_in_one_of_them_only(self):
        shouted = [reference.upper() for reference in REFERENCES]
        assert score(shouted, REFERENCES, "sacrebleu").value < 20
        assert score(["Ein Hund läuft schnell ."], ["EIN hund LÄUFT schnell ."], "sacrebleu_lowercase").value > 99.9

    def test_chrf_equals_sacrebleu(self):
        result = score(HYPOTHESES, REFERENCES, "chrf")
        assert result.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
        assert result.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"

    @needs(WMT17)
    @pytest.mark.parametrize("system", ["online-F.0.en-de", "C-3MA.4959.en-de", "uedin-nmt.4722.en-de"])
    def test_equals_the_published_scores_of_wmt17(self, system):
        with (WMT17 / "scores.tsv").open(encoding="utf-8", newline="") as table:
            published = {row["system"]: row for row in csv.DictReader(table, delimiter="\t")}[system]
        hypotheses, references = read_lines(WMT17 / f"system.{system}.de"), read_lines(WMT17 / "reference.de")
        result = score(hypotheses, references, "sacrebleu")
        assert result.value == pytest.approx(float(published["bleu_mteval13a"]), abs=0.01)
        assert "ref_len=61287)" in result.detail


class TestExactMatch:
    def test_by_hand(self):
        result = score(["a", "b ", "C", "d"], ["a", "b", "c", "d"], "exact_match")
        assert result.value == 50.0
        assert result.detail == "2 of 4 identical"
        assert result.signature.startswith("nrefs:1|case:mixed|norm:nfc|version:")

    def test_composed_and_decomposed_letters_are_the_same(self):
        assert score(["u\u0308ber"], ["\u00fcber"], "exact_match").value == 100.0


class TestScoreTranslations:
    def test_keeps_the_order_and_names_the_test_set(self):
        names = list(reversed(METRICS))
        scores = score_translations(HYPOTHESES, REFERENCES, names, target_language="de", test_set="flickr 2016")
        assert [result.metric for result in scores] == names
        assert {result.test_set for result in scores} == {"flickr 2016"}
        assert all(isinstance(result, Score) and result.signature for result in scores)

    @pytest.mark.parametrize("metric", sorted(set(METRICS) - {"ter", "nist"}))
    def test_is_100_for_the_references_and_0_for_empty_hypotheses(self, metric):
        assert score(REFERENCES, REFERENCES, metric).value == pytest.approx(100)
        assert score([""] * len(REFERENCES), REFERENCES, metric).value == 0

    def test_refuses_different_numbers(self):
        with pytest.raises(ValueError, match="got 2 hypotheses and 4 references"):
            score_translations(HYPOTHESES[:2], REFERENCES, ["chrf"], target_language="de")

    def test_refuses_nothing(self):
        with pytest.raises(ValueError, match="nothing to score"):
            score_translations([], [], ["chrf"], target_language="de")

    def test_refuses_an_unknown_metric_and_names_the_nearest(self):
        with pytest.raises(ValueError, match="unknown metric 'sacrebluu'; did you mean 'sacrebleu'") as caught:
            score_translations(HYPOTHESES, REFERENCES, ["sacrebluu"], target_language="de")
        assert all(name in str(caught.value) for name in METRICS)

    def test_refuses_what_would_be_scored_by_characters(self):
        with pytest.raises(TypeError, match="hypotheses must be a sequence of strings"):
            score_translations("abc", ["a", "b", "c"], ["chrf"], target_language="de")
        with pytest.raises(TypeError, match=r"references\[0\] must be a string, got NoneType"):
            score_translations(["a"], [None], ["chrf"], target_language="de")
        with pytest.raises(TypeError, match=r"write \['chrf'\]"):
            score_translations(HYPOTHESES, REFERENCES, "chrf", target_language="de")

    @pytest.mark.parametrize("language", ["German", "", "d"])
    def test_refuses_what_is_no_language_code(self, language):
        with pytest.raises(ValueError, match="target_language must be a language code"):
            score_translations(HYPOTHESES, REFERENCES, ["chrf"], target_language=language)


class TestPerplexity:
    def test_is_the_exponential(self):
        assert perplexity(0.0) == 1.0
        assert perplexity(math.log(4.92)) == pytest.approx(4.92)  # the paper's base model, Table 3

    def test_overflows_to_infinity(self):
        assert perplexity(1e4) == math.inf
        assert perplexity(math.inf) == math.inf
