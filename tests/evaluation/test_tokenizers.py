"""Words as BLEU counts them: equal to the output of the literature's scripts, worked out by hand."""

import pytest

from tests.evaluation.test_scores import bleu_by_the_formula
from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.evaluation.tokenizers import Multi30kTokenizer, PaperTokenizer, TokenizedText


# Reference, hypothesis, and both after replace-unicode-punctuation.perl, tokenizer.perl -l de and the
# substitution s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g, worked out by hand.
BY_HAND = [
    ("Der Bericht-Entwurf liegt vor.", "Der Bericht-Vorschlag liegt jetzt vor.",
     "Der Bericht ##AT##-##AT## Entwurf liegt vor .", "Der Bericht ##AT##-##AT## Vorschlag liegt jetzt vor ."),
    ("„Das ist gut“, sagte er.", '"Das ist gut", sagte sie.',
     # replace-unicode-punctuation.perl knows “ but not „
     "„ Das ist gut &quot; , sagte er .", "&quot; Das ist gut &quot; , sagte sie ."),
    ("Die Nord-Süd-Achse wird gebaut.", "Die Nordsüd-Achse wird gebaut.",
     "Die Nord ##AT##-##AT## Süd ##AT##-##AT## Achse wird gebaut .", "Die Nordsüd ##AT##-##AT## Achse wird gebaut ."),
    # The B is used up by the first match, as in Perl.
    ("A-B-C ist kurz.", "A-B-C ist lang.", "A ##AT##-##AT## B-C ist kurz .", "A ##AT##-##AT## B-C ist lang ."),
    ("2013-2014 kostete es 3,5 Mio. Euro.", "2013-2014 kostet es 3,5 Millionen Euro.",
     "2013 ##AT##-##AT## 2014 kostete es 3,5 Mio. Euro .", "2013 ##AT##-##AT## 2014 kostet es 3,5 Millionen Euro ."),
    ("Er kam – endlich…", "Er kam - endlich...", "Er kam – endlich ...", "Er kam - endlich ..."),
    ("Das E-Mail-Konto (neu) geht.", "Das neue E-Mail-Konto geht.",
     "Das E ##AT##-##AT## Mail ##AT##-##AT## Konto ( neu ) geht .",
     "Das neue E ##AT##-##AT## Mail ##AT##-##AT## Konto geht ."),
    ("Es ist 10 % teurer.", "Es ist um 10% teurer.", "Es ist 10 % teurer .", "Es ist um 10 % teurer ."),
    ("Sie sagt: 'Nein!'", "Sie sagte: 'Nein!'", "Sie sagt : &apos; Nein ! &apos;", "Sie sagte : &apos; Nein ! &apos;"),
    ("Die R&D-Abteilung, in den USA", "Die R&D-Gruppe, in den USA",
     "Die R &amp; D ##AT##-##AT## Abteilung , in den USA", "Die R &amp; D ##AT##-##AT## Gruppe , in den USA"),
]  # fmt: skip


class TestPaperTokenizer:
    def test_bleu_by_hand(self):
        references, hypotheses, reference_words, hypothesis_words = zip(*BY_HAND, strict=True)
        assert [*map(PaperTokenizer("de"), references)] == [*reference_words]
        assert [*map(PaperTokenizer("de"), hypotheses)] == [*hypothesis_words]
        [result] = score_translations(hypotheses, references, ["bleu_paper"], target_language="de")
        expected = bleu_by_the_formula(hypothesis_words, reference_words)
        assert 40 < expected < 80
        assert result.value == pytest.approx(expected, abs=1e-9)
        words = sum(len(text.split()) for text in reference_words)
        assert result.statistics["reference_length"] == words
        assert "-de-escaped-atat|smooth:none" in result.signature

    def test_only_german_compounds_are_split(self):
        assert PaperTokenizer("fr")("le porte-parole d'hier") == "le porte-parole d&apos; hier"
        assert PaperTokenizer("de", split_compounds=False)("ein Bericht-Entwurf") == "ein Bericht-Entwurf"
        text = ["le porte-parole parle d'hier et de demain"]
        [paper, tokenized] = score_translations(text, text, ["bleu_paper", "bleu_tokenized"], target_language="fr")
        assert paper.signature == tokenized.signature

    def test_hyphen_after_no_break_space_is_not_split(self):
        # Moses' tokenizer first turns every kind of space into a plain one, which \S does not match.
        assert PaperTokenizer("de")("zehn\u00a0-jährig und süß-sauer") == "zehn -jährig und süß ##AT##-##AT## sauer"


class TestMulti30kTokenizer:
    def test_full_stop_follows_a_final_quotation(self):
        # From line 656 of multi30k/dataset's data/task1/tok/val.lc.norm.tok.de, where the full stop comes last.
        raw = 'ein schild, auf dem steht: "come on now... what\'s gayer than tea."'
        words = "ein schild , auf dem steht : &quot; come on now ... what &apos; s gayer than tea &quot; ."
        assert Multi30kTokenizer("de")(raw) == words

    def test_full_stop_placement_depends_on_language(self):
        # As normalize-punctuation.perl and tokenizer.perl print it. English keeps it inside, Czech leaves it alone.
        for languages, words in (
            (("de", "es", "fr", "it", "ru"), "er sagte : &quot; hallo &quot; . er kam &quot; ..."),
            (("en", "cs"), "er sagte : &quot; hallo . &quot; er kam ... &quot;"),
        ):
            for tokenizer in map(Multi30kTokenizer, languages):
                assert tokenizer('er sagte: "hallo." er kam..."') == words
                for end in ("", " ", "\n", "\r\n"):
                    assert tokenizer(f'er sagte: "hallo."{end}') == words.partition(" er kam")[0]

    def test_final_abbreviation_keeps_its_full_stop(self):
        for tokenizer in (Multi30kTokenizer("de"), PaperTokenizer("de")):
            assert tokenizer("bei ram.is.") == "bei ram.is."
            assert tokenizer("hunde, katzen usw.") == "hunde , katzen usw."
            assert tokenizer("hunde und katzen.") == "hunde und katzen ."


def test_tokenized_text_splits_only_at_ascii_spaces():
    # "10 km" with a no-break space is one word to multi-bleu.perl, which reads bytes, and two to str.split.
    text = ["a b c 10\u00a0km"]
    [one] = score_translations(text, text, ["bleu_pretokenized"], target_language="de")
    assert one.statistics["hypothesis_length"] == 4
    assert TokenizedText()("a\tb  c") == "a\tb  c"
