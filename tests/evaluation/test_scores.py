"""Scores: equal to independent formulas, to sacreBLEU itself and to published numbers; bad input raises."""

import csv
import hashlib
import math
import re
import unicodedata
from collections import Counter
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from vanilla_transformer.evaluation.metrics import METRICS, bleu_for, build_metric, without_words
from vanilla_transformer.evaluation.own_metrics import NIST
from vanilla_transformer.evaluation.scores import (
    Score,
    compare_systems,
    perplexity,
    perplexity_scores,
    score_segments,
    score_translations,
)
from vanilla_transformer.evaluation.texts import aligned, read_texts
from vanilla_transformer.evaluation.tokenizers import Multi30kTokenizer


SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
MULTI30K = SHARED / "multi30k"
WMT17 = SHARED / "metric_refs" / "wmt17_en_de_systems"
WMT15 = SHARED / "metric_refs" / "wmt15_en_ru_100"

OF_TEXT = [name for name, row in METRICS.items() if not (row.of_trees or row.needs_sources)]
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
    def test_tokens_match_published_multi30k(self):
        # Lines 1 and 226 of multi30k/dataset's data/task1/tok/test_2016_flickr.lc.norm.tok.de.
        raw = [
            "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
            'Eine Frau auf einem Boot namens "El Corazon" lässt schwarze Gewichte ins Wasser fallen.',
        ]
        assert tokenize_for_multi30k(raw, "de") == [
            "ein mann mit einem orangefarbenen hut , der etwas anstarrt .",
            "eine frau auf einem boot namens &quot; el corazon &quot; lässt schwarze gewichte ins wasser fallen .",
        ]

    def test_equals_the_formula_with_and_without_brevity_penalty(self):
        shorter = [hypothesis.rsplit(" ", 2)[0] for hypothesis in HYPOTHESES]
        for hypotheses in (HYPOTHESES, shorter):
            words = (tokenize_for_multi30k(texts, "de") for texts in (hypotheses, REFERENCES))
            expected = bleu_by_the_formula(*words)
            assert 20 < expected < 90
            result = score(hypotheses, REFERENCES, "bleu_lowercase_tokenized")
            assert result.value == pytest.approx(expected, abs=1e-9)
        assert "BP=1.000" not in result.detail

    def test_by_hand(self):
        # One 4-gram of two, two 3-grams of three, three bigrams of four, four words of five; case is ignored.
        expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
        result = score(["A b C d e"], ["a B c D f"], "bleu_lowercase_tokenized")
        assert result.value == pytest.approx(expected, abs=1e-9)
        assert result.detail == "80.0/75.0/66.7/50.0 (BP=1.000 ratio=1.000 hyp_len=5 ref_len=5)"
        # It is not smoothed.
        assert score(["a b c x"], ["a b c d"], "bleu_lowercase_tokenized").value == 0.0
        assert score(["a b c x"], ["a b c d"], "sacrebleu").value > 0.0

    def test_signature_names_every_setting(self):
        signature = score(HYPOTHESES, REFERENCES, "bleu_lowercase_tokenized").signature
        names = [field.split(":")[0] for field in signature.split("|")]
        assert names == ["nrefs", "case", "eff", "norm", "tok", "smooth", "version"]
        assert signature.startswith("nrefs:1|case:lc|eff:no|norm:moses-perl|tok:moses-sacremoses-")
        assert signature.endswith(f"-de-escaped|smooth:none|version:{sacrebleu.__version__}")
        french = score(["l'homme est grand ."] * 2, ["l'homme est petit ."] * 2, "bleu_lowercase_tokenized", "fr_FR")
        assert "-fr-escaped" in french.signature
        assert "ref_len=10)" in french.detail  # l' homme est petit .

    # SHA-256 of the lower-cased text after `normalize-punctuation.perl | tokenizer.perl` (version 1.1). Its length is
    # exactly that of multi30k/dataset's data/task1/tok/*.lc.norm.tok.* (commit 7bee46b).
    DIGESTS = {
        "test_2016_flickr.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
        "test_2016_flickr.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
        "test_2016_flickr.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
        "val.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
        "val.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
        "val.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
    }

    @needs(MULTI30K)
    def test_tokenized_multi30k_equals_moses_output(self):
        for name, digest in self.DIGESTS.items():
            lines = tokenize_for_multi30k(read_lines(MULTI30K / name), name.rsplit(".")[-1])
            assert hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest() == digest, name

    @needs(MULTI30K)
    def test_multi30k_reference_has_the_published_word_count(self):
        # Wu et al. (2021): "BLEU4 = 41.02, 71.0/47.5/34.3/24.5 (BP=0.999, ratio=0.999, syslen=12096, reflen=12103)".
        references = read_lines(MULTI30K / "test_2016_flickr.de")
        result = score(references, references, "bleu_lowercase_tokenized")
        assert result.value == pytest.approx(100)
        assert "ref_len=12103)" in result.detail

    @needs(WMT15)
    def test_russian_tokens_equal_moses_output(self):
        raw, moses = read_lines(WMT15 / "newstest-2015-100sents.en-ru.ref.ru"), read_lines(WMT15 / "ref.ru")
        assert tokenize_for_multi30k(raw, "ru") == [line.lower() for line in moses]
        raw, moses = read_lines(WMT15 / "newstest-2015-100sents.en-ru.google.ru"), read_lines(WMT15 / "google.ru")
        # Moses' files were made without normalize-punctuation.perl, which changes a quotation mark and moves a stop.
        normalized = [re.sub(r"\. &quot;$", "&quot; .", line.lower().replace("«", "&quot;")) for line in moses]
        assert tokenize_for_multi30k(raw, "ru") == normalized


class TestSacrebleu:
    def test_equals_sacrebleu(self):
        for metric, case in (("sacrebleu", "mixed"), ("sacrebleu_lowercase", "lc")):
            expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=case == "lc")
            result = score(HYPOTHESES, REFERENCES, metric)
            assert result.value == expected.score
            assert result.signature == f"nrefs:1|case:{case}|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
            assert result.detail.endswith(f"hyp_len={expected.sys_len} ref_len={expected.ref_len})")
        # Only one of them is case-sensitive.
        shouted = [reference.upper() for reference in REFERENCES]
        assert score(shouted, REFERENCES, "sacrebleu").value < 20
        assert score(["Ein Hund läuft schnell ."], ["EIN hund LÄUFT schnell ."], "sacrebleu_lowercase").value > 99.9
        references = [REFERENCES, ["Ein Mann mit orangem Hut starrt auf etwas.", *REFERENCES[1:]]]
        assert score(HYPOTHESES, references, "sacrebleu").value == sacrebleu.corpus_bleu(HYPOTHESES, references).score
        result = score(HYPOTHESES, REFERENCES, "chrf")
        assert result.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
        assert result.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def published_scores():
    with (WMT17 / "scores.tsv").open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table, delimiter="\t"))


def of_wmt17(system, metric):
    return score(read_lines(WMT17 / f"system.{system}.de"), read_lines(WMT17 / "reference.de"), metric)


class TestPublishedScores:
    """Published scores of newstest2015 and newstest2017 are reproduced."""

    @needs(WMT17)
    @pytest.mark.parametrize("some", ["every fourth", pytest.param("the others", marks=pytest.mark.slow)])
    def test_bleu_and_chrf(self, some):
        table = published_scores()
        assert len(table) == 16
        columns = {"sacrebleu": "bleu_mteval13a", "sacrebleu_intl": "bleu_mteval14_intl"}
        columns |= {"chrf": "chrf", "chrf++": "chrf++"}
        for published in [row for i, row in enumerate(table) if (i % 4 == 0) == (some == "every fourth")]:
            given = {metric: float(published[column]) for metric, column in columns.items() if published[column]}
            assert "sacrebleu" in given
            for metric, value in given.items():
                assert of_wmt17(published["system"], metric).value == pytest.approx(value, abs=0.01)

    @needs(WMT17)
    @pytest.mark.parametrize("some", ["SYSTRAN's", pytest.param("the others", marks=pytest.mark.slow)])
    def test_ter(self, some):
        # Published with three digits. All sixteen take a minute and a half.
        for row in published_scores():
            if row["system"].startswith("SYSTRAN") == (some == "SYSTRAN's"):
                value = 100 * float(row["ter_tercom"])
                assert of_wmt17(row["system"], "ter").value == pytest.approx(value, abs=0.05 + 1e-9)

    @needs(WMT15)
    def test_bleu_and_nist_equal_mteval(self):
        # newstest2015, 100 sentences: the cumulative scores of 1-grams to 9-grams that mteval-v13a.pl printed.
        bleu = (0.5415, 0.4012, 0.3044, 0.2318, 0.1784, 0.1362, 0.1031, 0.0754, 0.0493)
        nist = (4.4488, 5.0043, 5.0520, *[5.0564] * 6)
        [reference] = read_texts(WMT15 / "newstest2015-100sents-enru-ref.ru.sgm", "reference", "ru")
        [system] = read_texts(WMT15 / "newstest2015-100sents-enru-google.ru.sgm", "hypothesis", "ru")
        reference, system = aligned([reference, system])
        texts = (system.segments, [reference.segments])
        for order in range(1, 10):
            found = BLEU(max_ngram_order=order).corpus_score(*texts).score
            assert found / 100 == pytest.approx(bleu[order - 1], abs=5e-5)
            assert NIST(max_ngram_order=order).corpus_score(*texts).score == pytest.approx(nist[order - 1], abs=5e-5)
        for metric, value, tolerance in (("sacrebleu", 23.18, 5e-3), ("nist", 5.0564, 5e-5)):
            found = score(system.segments, reference.segments, metric, "ru").value
            assert found == pytest.approx(value, abs=tolerance)

    @needs(WMT15)
    def test_bleu_equals_multi_bleu(self):
        # README.upstream.txt: "BLEU = 23.17, 53.8/29.6/17.6/10.3 (BP=1.000, ratio=1.074, hyp_len=1989, ref_len=1852)".
        texts = read_lines(WMT15 / "google.ru"), read_lines(WMT15 / "ref.ru")
        assert bleu_by_the_formula(*texts) == pytest.approx(23.17, abs=5e-3)  # so the formula of these tests is right
        result = score(*texts, "bleu_pretokenized", "ru")
        assert result.value == pytest.approx(23.17, abs=5e-3)
        assert result.detail == "53.8/29.6/17.6/10.3 (BP=1.000 ratio=1.074 hyp_len=1989 ref_len=1852)"


def nist_by_the_formula(system, references):
    """Doddington (2002), equations 2 and 3, on text whose tokens are separated by spaces."""
    counts, words = Counter(), 0
    for text in (text for texts in references for text in texts):
        counts.update(ngrams(text))
        words += len(text.split())
    sums, totals, lengths = [0.0] * 6, [0] * 6, [0, 0.0]
    for i, text in enumerate(system):
        best = Counter()
        for texts in references:
            best |= ngrams(texts[i])
            lengths[1] += len(texts[i].split()) / len(references)
        lengths[0] += len(text.split())
        for ngram, count in ngrams(text).items():
            totals[len(ngram)] += count
            if ngram in best:
                before = counts[ngram[:-1]] if len(ngram) > 1 else words
                sums[len(ngram)] += min(count, best[ngram]) * math.log2(before / counts[ngram])
    beta = math.log(0.5) / math.log(1.5) ** 2
    penalty = math.exp(beta * math.log(min(1, lengths[0] / lengths[1])) ** 2)
    return penalty * sum(bits / total for bits, total in zip(sums[1:], totals[1:], strict=True))


def ngrams(text, longest=5):
    words = text.split()
    return Counter(tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1))


class TestNist:
    def test_by_hand(self):
        # References: "a b a c" and "a b d d"; 8 words in all: 3 a, 2 b, 1 c, 2 d; "a b" twice after 3 a.
        # Matching in "a b c x": a, b, c of 4 words, and "a b" of 3 pairs; nothing longer ("a b a", "b a c" ...).
        words = (math.log2(8 / 3) + math.log2(8 / 2) + math.log2(8 / 1)) / 4
        pairs = math.log2(3 / 2) / 3
        system, references = ["a b c x", ""], ["a b a c", "a b d d"]
        found = NIST().corpus_score(system, [references])
        # Half as long as the references: penalty exp(-ln 2 / ln(1.5)^2 * ln(1/2)^2).
        penalty = math.exp(-math.log(2) / math.log(1.5) ** 2 * math.log(0.5) ** 2)
        assert found.score == pytest.approx(penalty * (words + pairs), abs=1e-9)

    def test_word_0_is_false_as_in_perl(self):
        # References: "0 a 0 b" and "0 a". Of 6 words 3 are "0" and 2 are "a"; "0 a" twice, "a 0" once, "0 a 0" once.
        # mteval-v13a.pl has `$mgram ? $ngram_count{$mgram} : $tot_wrds`: "0 a" is compared with all 6 words, not the 3.
        words = (2 * math.log2(6 / 3) + math.log2(6 / 2)) / 3
        pairs = (math.log2(6 / 2) + math.log2(2 / 1)) / 2
        threes = math.log2(2 / 1)  # longer strings that begin with "0" are true
        found = NIST().corpus_score(["0 a 0", ""], [["0 a 0 b", "0 a"]])
        penalty = math.exp(-math.log(2) / math.log(1.5) ** 2 * math.log(3 / 6) ** 2)
        assert found.score == pytest.approx(penalty * (words + pairs + threes), abs=1e-9)

    def test_equals_the_formula_with_several_references(self):
        random = Random(3)
        texts = [[" ".join(random.choices("abcdef", k=random.randint(0, 12))) for _ in range(25)] for _ in range(4)]
        system, *references = texts
        found = score_translations(system, references, ["nist"], target_language="de")[0].value
        assert found == pytest.approx(nist_by_the_formula(system, references), rel=1e-12)

    def test_folds_only_ascii_case(self):
        assert score(["HUND"], ["hund"], "nist").value == score(["hund"], ["hund"], "nist").value
        assert score(["ÄÖ"], ["äö"], "nist").value == 0


def test_second_reference_improves_every_metric_but_nist():
    metrics = [name for name in OF_TEXT if name != "nist"]  # NIST rewards rare n-grams, which would be less rare
    found = (
        score_translations(HYPOTHESES, references, metrics, target_language="de")
        for references in (REFERENCES, [REFERENCES, HYPOTHESES])
    )
    for one, two in zip(*found, strict=True):
        assert (two.value < one.value) if METRICS[one.metric].lower_is_better else (two.value > one.value)
        assert "nrefs:2" in two.signature


class TestConfidence:
    def test_equals_sacrebleu(self):
        [found] = score_translations(HYPOTHESES, REFERENCES, ["sacrebleu"], target_language="de", resamples=300)
        expected = BLEU().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=300)
        # sacreBLEU adds up in float32.
        assert (found.mean, found.confidence) == pytest.approx((expected._mean, expected._ci), rel=1e-5)
        assert found.confidence > 0
        assert "bs:300|seed:12345" in found.signature

    def test_every_metric_reports_mean_and_confidence(self):
        results = score_translations(HYPOTHESES, REFERENCES, OF_TEXT, target_language="de", resamples=50)
        for found in results:
            expected = build_metric(found.metric, "de").corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=50)
            assert (found.mean, found.confidence) == pytest.approx((expected._mean, expected._ci), rel=1e-4), found
            without = score(HYPOTHESES, REFERENCES, found.metric)
            assert (without.mean, without.confidence) == (None, None)
            assert without.value == found.value


def test_identical_segment_scores_best_and_segments_equal_sacrebleu():
    segments = score_segments(HYPOTHESES, REFERENCES, OF_TEXT, target_language="de")
    for metric in set(OF_TEXT) - {"nist"}:  # NIST finds more information in long sentences
        values = [each[metric] for each in segments]
        assert values[3] == (min if METRICS[metric].lower_is_better else max)(values), metric  # the identical one
    assert [each["exact_match"] for each in segments] == [0, 0, 0, 100]
    for found, hypothesis, reference in zip(segments, HYPOTHESES, REFERENCES, strict=True):
        assert found["sacrebleu"] == sacrebleu.sentence_bleu(hypothesis, [reference]).score
        assert found["chrf"] == sacrebleu.sentence_chrf(hypothesis, [reference]).score


def sentences_of_systems(number=60):
    """References of random words, and systems that get most of them right."""
    random = Random(0)
    references = [" ".join(random.choices("abcdefgh", k=random.randint(6, 14))) for _ in range(number)]

    def system(mistakes):
        return [" ".join(word if random.random() > mistakes else "x" for word in text.split()) for text in references]

    return references, {"a": system(0.2), "b": system(0.2), "c": system(0.4)}


class TestCompareSystems:
    def test_equals_sacrebleu(self):
        references, systems = sentences_of_systems()
        found = compare_systems(systems, references, ["sacrebleu"], target_language="de", resamples=100, trials=200)
        assert [(each.baseline, each.system) for each in found] == [("a", "b"), ("a", "c")]
        for kind, samples, name in (("bs", 100, "bootstrap_p"), ("ar", 200, "randomization_p")):
            signatures, expected = PairedTest(list(systems.items()), {"BLEU": BLEU()}, [references], kind, samples)()
            assert [getattr(each, name) for each in found] == [result.p_value for result in expected["BLEU"][1:]]
            assert 0.02 < expected["BLEU"][1].p_value < 0.98
            assert {each.signatures[kind == "bs"] for each in found} == {str(signatures["BLEU"])}
        values = [score(systems[name], references, "sacrebleu").value for name in ("a", "b")]
        assert found[0].difference == values[1] - values[0]

    def test_identical_systems_do_not_differ(self):
        systems = {"a": HYPOTHESES, "b": list(HYPOTHESES)}
        for found in compare_systems(systems, REFERENCES, OF_TEXT, target_language="de", resamples=20, trials=50):
            assert (found.difference, found.bootstrap_p, found.randomization_p) == (0, 1, 1)

    def test_single_differing_sentence_is_not_significant(self):
        # Swapping it reverses the difference but does not shrink it, so it is equally large in every trial.
        systems = {"a": REFERENCES * 5, "b": [*REFERENCES[:3], "Schnee.", *REFERENCES * 4]}
        for found in compare_systems(systems, REFERENCES * 5, OF_TEXT, target_language="de", resamples=200, trials=200):
            assert found.difference != 0
            assert found.randomization_p == 1
            assert found.bootstrap_p > 0.05

        systems = {"a": REFERENCES[:1], "b": ["Ein Mann."]}  # and one sentence alone cannot be resampled
        [found] = compare_systems(systems, REFERENCES[:1], ["chrf"], target_language="de", resamples=20, trials=50)
        assert (found.bootstrap_p, found.randomization_p) == (1, 1)
        [alone] = score_translations(["Ein Mann."], REFERENCES[:1], ["chrf"], target_language="de", resamples=20)
        assert (alone.mean, alone.confidence) == (None, None)

    def test_invalid_arguments_are_rejected(self):
        for systems, options, message in (
            ({"a": HYPOTHESES, "b": REFERENCES}, {"resamples": 0}, "resamples=0"),
            ({"a": HYPOTHESES}, {}, "needs two systems"),
            ({"a": HYPOTHESES, "b": ["x", "y"]}, {}, "got 2 b and 4 references"),
        ):
            with pytest.raises(ValueError, match=message):
                compare_systems(systems, REFERENCES, ["chrf"], target_language="de", **options)

    @needs(WMT17)
    def test_agrees_with_published_wmt17_significance(self):
        # Published p-values against LIUM-NMT, by Moses' bootstrap and MultEval's randomisation: uedin 0.00000 and
        # 0.0001; online-B 0.381 and 0.941.
        names = ("LIUM-NMT.4900.en-de", "uedin-nmt.4722.en-de", "online-B.0.en-de")
        systems = {name: read_lines(WMT17 / f"system.{name}.de") for name in names}
        references = read_lines(WMT17 / "reference.de")
        uedin, online = compare_systems(
            systems, references, ["sacrebleu"], target_language="de", resamples=300, trials=300
        )
        assert max(uedin.bootstrap_p, uedin.randomization_p) < 0.01
        assert online.bootstrap_p > 0.2
        assert online.randomization_p > 0.7


def test_exact_match_by_hand():
    result = score(["a", "b ", "C", "d"], ["a", "b", "c", "d"], "exact_match")
    assert result.value == 50.0
    assert result.detail == "2 of 4 identical"
    assert result.signature.startswith("nrefs:1|case:mixed|norm:nfc|version:")
    assert score(["u\u0308ber"], ["\u00fcber"], "exact_match").value == 100.0  # composed and decomposed


def test_metrics_are_distinct_and_declare_language_needs():
    text = ["(S NN )S"] * 2  # also a linearised tree
    made = set()
    rows = {name: row for name, row in METRICS.items() if not row.needs_sources}
    for name, row in rows.items():
        assert row.name == name
        assert row.description
        made.add((type(build_metric(name, "de")), score(text, text, name).signature))
        if row.needs_language:
            with pytest.raises(ValueError, match="must be a language code"):
                build_metric(name)
        else:
            build_metric(name)
    assert len(made) == len(rows)  # no metric silently becomes another
    assert [name for name, row in METRICS.items() if row.lower_is_better] == ["ter"]


class TestScoreTranslations:
    def test_keeps_metric_order_and_rejects_unknown_metrics(self):
        names = OF_TEXT[::-1]
        scores = score_translations(HYPOTHESES, REFERENCES, names, target_language="de", test_set="flickr 2016")
        assert [result.metric for result in scores] == names
        assert {result.test_set for result in scores} == {"flickr 2016"}
        assert all(isinstance(result, Score) and result.signature for result in scores)
        with pytest.raises(ValueError, match="unknown metric 'sacrebluu'; did you mean 'sacrebleu'") as caught:
            score_translations(HYPOTHESES, REFERENCES, ["sacrebluu"], target_language="de")
        assert all(name in str(caught.value) for name in METRICS)

    def test_references_score_100_and_empty_hypotheses_0(self):
        for metric in set(OF_TEXT) - {"ter", "nist"}:
            assert score(REFERENCES, REFERENCES, metric).value == pytest.approx(100)
            assert score([""] * len(REFERENCES), REFERENCES, metric).value == 0

    @pytest.mark.parametrize(
        ("hypotheses", "references", "metrics", "language", "error", "message"),
        [
            (HYPOTHESES[:2], REFERENCES, ["chrf"], "de", ValueError, "got 2 hypotheses and 4 references"),
            (HYPOTHESES, [REFERENCES, ["x"] * 3], ["chrf"], "de", ValueError, r"4 hypotheses and 3 references\[1\]"),
            ([], [], ["chrf"], "de", ValueError, "nothing to score"),
            # A bare string would be scored character by character.
            ("abc", ["a", "b", "c"], ["chrf"], "de", TypeError, "hypotheses must be a sequence of strings"),
            (["a"], [None], ["chrf"], "de", TypeError, r"references\[0\] must be a string, got NoneType"),
            (HYPOTHESES, REFERENCES, "chrf", "de", TypeError, r"write \['chrf'\]"),
            *((HYPOTHESES, REFERENCES, ["chrf"], language, ValueError, "must be a language code")
              for language in ("German", "", "d")),
        ],
    )  # fmt: skip
    def test_invalid_arguments_are_rejected(self, hypotheses, references, metrics, language, error, message):
        with pytest.raises(error, match=message):
            score_translations(hypotheses, references, metrics, target_language=language)


class TestPerplexity:
    def test_is_the_exponential_of_the_loss(self):
        assert perplexity(0.0) == 1.0
        assert perplexity(math.log(4.92)) == pytest.approx(4.92)  # the paper's base model, Table 3
        assert perplexity(1e4) == perplexity(math.inf) == math.inf

    def test_per_token_and_per_word(self):
        # Two sentences of 3 and 2 words, 5 and 4 tokens with the end tokens, and 9 nats in all.
        token, word = perplexity_scores([-4.0, -5.0], [5, 4], ["a b c", "d e"], vocabulary_size=37_000)
        assert token.value == pytest.approx(math.exp(9 / 9))
        assert word.value == pytest.approx(math.exp(9 / (3 + 1 + 2 + 1)))
        assert (token.metric, word.metric) == ("perplexity_per_token", "perplexity_per_word")
        assert token.signature == "per:token|smoothing:no|vocabulary:37000"


class TestScripts:
    THAI = "แมวตัวเล็กนอนอยู่บนเก้าอี้", "แมวนอนอยู่บนเก้าอี้ใหญ่"
    CHINESE = "小猫睡在椅子上。", "小猫在椅子上睡觉。"

    def test_word_splitting_depends_on_the_language(self):
        reference, hypothesis = self.CHINESE
        expected = BLEU(trg_lang="zh").corpus_score([hypothesis], [[reference]]).score
        for language in ("zh", "zh_TW", "yue"):
            [found] = score_translations([hypothesis], [reference], ["sacrebleu"], target_language=language)
            assert found.value == expected > 30
            assert "|tok:zh|" in found.signature
        reference, hypothesis = self.THAI
        expected = BLEU(tokenize="char").corpus_score([hypothesis], [[reference]]).score
        plain, by_character = score_translations(
            [hypothesis], [reference], ["sacrebleu", "sacrebleu_char"], target_language="th"
        )
        assert (plain.value, by_character.value) == (0, expected)
        assert "|tok:char|" in by_character.signature
        assert [bleu_for(language) for language in ("th", "zh", "de", "gn")] == ["sacrebleu_char", *["sacrebleu"] * 3]
        assert without_words(["sacrebleu", "ter", "chrf"], "my") == ["sacrebleu", "ter"]
        assert without_words(["sacrebleu", "bleu_paper"], "ja") == ["bleu_paper"]
        assert without_words(METRICS, "ar") == []

    @pytest.mark.parametrize("language", ["ja", "ko"])
    def test_missing_package_error_names_the_extra(self, language, monkeypatch):
        module = import_module(f"sacrebleu.tokenizers.tokenizer_{language}_mecab")
        for name in {"MeCab", "mecab_ko"} & vars(module).keys():
            monkeypatch.setattr(module, name, None)
        with pytest.raises(ImportError, match=rf'pip install "sacrebleu\[{language}\]"; or ask for sacrebleu_char'):
            build_metric("sacrebleu", language)
        assert bleu_for(language) == "sacrebleu_char"  # a training without the package goes on

    def test_normal_forms_score_alike_and_signature_records_nfc(self):
        names = ["sacrebleu", "sacrebleu_char", "chrf", "ter", "bleu_lowercase_tokenized"]
        for language, text, other in (
            ("gn", "Ko mitã'i oho mbo'ehaópe, g̃uarani.", "Ko mitã oho ógape, g̃uarani."),
            ("hi", "क़लम मेज़ पर है।", "क़लम घर पर है।"),
            ("ar", "ذهبَ الولدُ إلى المدرسة آ.", "ذهبَ الولدُ إلى البيت آ."),
        ):
            texts = [[unicodedata.normalize(form, each) for each in (text, other)] for form in ("NFC", "NFD")]
            options = {"metrics": names, "target_language": language}
            plain = score_translations(texts[0][1:], texts[0][:1], **options)
            for hypothesis, reference in ((texts[0][1:], texts[1][:1]), (texts[1][1:], texts[1][:1])):
                found = score_translations(hypothesis, reference, **options)
                assert [each.value for each in found] == [each.value for each in plain]
                if texts[0] != texts[1]:
                    signatures = [each.signature.replace("|version:", "|form:nfc|version:") for each in plain]
                    assert [each.signature for each in found] == signatures
                assert score_segments(hypothesis, reference, **options) == score_segments(
                    texts[0][1:], texts[0][:1], **options
                )
        systems = {"a": [unicodedata.normalize("NFD", REFERENCES[1])], "b": [HYPOTHESES[1]]}
        [found] = compare_systems(systems, REFERENCES[1:2], ["chrf"], target_language="de", resamples=2, trials=2)
        assert found.difference < 0
        assert all("|form:nfc|" in each for each in found.signatures)
