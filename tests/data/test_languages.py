"""One model for several target languages: the tag that selects one, and how often each corpus is sampled."""

import copy

import pytest
from transformers import AutoTokenizer

from vanilla_transformer.data.corpora import TextCorpus
from vanilla_transformer.data.languages import language_tag, target_languages, tempered, towards
from vanilla_transformer.data.mixture import CorpusSettings, Mixture
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.run.recipe import recipe_of
from vanilla_transformer.training.finetuning import FinetuningArguments, Pairs


TEXTS = ["the dog is old", "der Hund ist alt", "le chien est vieux"]


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(TEXTS * 3, TokenizerSettings(vocab_size=280), tags=["<bt>", "<2de>", "<2fr>"])


def corpus(name: str, source: str, target: str, pairs: int) -> TextCorpus:
    rows = [(f"{source} {n}", f"{target} {n}") for n in range(pairs)]
    return TextCorpus(name, rows, {"languages": [source, target]})


def test_language_tag_is_added_to_sources_only(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    saved = AutoTokenizer.from_pretrained(tmp_path)  # as reloaded without this package's help
    assert list(target_languages(saved)) == ["de", "fr"]
    plain = saved(TEXTS).input_ids
    for language in ("de", "fr"):
        asking = towards(saved, language)
        tag = saved.get_added_vocab()[f"<2{language}>"]
        for _ in range(2):
            assert asking(TEXTS).input_ids == [[tag, *ids] for ids in plain]
            assert asking(text_target=TEXTS).input_ids == plain
            both = asking(TEXTS[0], text_target=TEXTS[1])
            assert (both["input_ids"], both["labels"]) == ([tag, *plain[0]], plain[1])
        assert asking(TEXTS, add_special_tokens=False).input_ids == [ids[:-1] for ids in plain]
        assert asking.batch_decode(asking(TEXTS).input_ids, skip_special_tokens=True) == TEXTS
    french = towards(saved, "fr")
    for asking, language in ((towards(french, "de"), "de"), (copy.deepcopy(french), "fr")):
        both = asking(TEXTS[0], text_target=TEXTS[1])
        assert both["input_ids"] == [saved.get_added_vocab()[f"<2{language}>"], *plain[0]]
        assert both["labels"] == plain[1]
    assert saved(TEXTS).input_ids == plain
    assert saved("<2de> the").input_ids[0] != saved.get_added_vocab()["<2de>"]  # text never becomes a tag


def test_finetuning_tags_sources_with_the_target_language(tokenizer, tmp_path):
    (tmp_path / "pairs.tsv").write_text("en\tfr\nthe dog\tle chien\n")
    choices = {"train_file": [str(tmp_path / "pairs.tsv")], "source_language": "en", "target_language": "fr"}
    with (tmp_path / "pairs.tsv").open("a") as file:
        file.write("   \tle chat\nthe cat\t \n")  # neither has anything to learn from
    [row] = Pairs(FinetuningArguments("model", **choices), tokenizer).for_training()
    assert row["input_ids"] == towards(tokenizer, "fr")("the dog").input_ids
    assert row["labels"] == tokenizer(text_target="le chien").input_ids


def test_missing_or_unknown_target_language_raises(tokenizer):
    alone = learn_tokenizer(TEXTS * 3, TokenizerSettings(vocab_size=280), tags=["<bt>"])
    assert towards(alone, None) is alone
    for asked, language, said in (
        (tokenizer, None, "Say into which: de, fr"),
        (tokenizer, "it", "not translate into 'it'; choose: de, fr"),
        (alone, "de", "one language"),
    ):
        with pytest.raises(ValueError, match=said):
            towards(asked, language)


def test_every_mixture_source_gets_its_tags():
    settings = [CorpusSettings("a"), CorpusSettings("b", tag="<bt>"), CorpusSettings("c")]
    corpora = [corpus("a", "en", "de", 3), corpus("b", "en", "fr", 2), corpus("c", "fr", "de", 2)]
    mixture = Mixture(settings, corpora)
    assert mixture.tags == ("<2de>", "<2fr>", "<bt>")
    rows = [row for unit in range(mixture.units) for row in mixture.read(unit)]
    for source, target, *front in rows:
        expected = [language_tag(target.split()[0]), *(["<bt>"] if target.startswith("fr") else [])]
        assert front == expected, source
    assert len(rows) == 7
    many_to_one = Mixture(settings[::2], corpora[::2])
    assert many_to_one.tags == ()


def test_temperature_oversamples_small_corpora():
    """Whole copies approximate the exact probabilities, computed here in float64."""
    pairs, weights = [100_000, 20_000, 1_000], [1.0, 1.0, 2.0]
    for temperature in (1.5, 2.0, 5.0, 100.0):
        copies = tempered(weights, pairs, temperature, most=100)
        shares = [count * copy for count, copy in zip(pairs, copies, strict=True)]
        wanted = [weight * count ** (1 / temperature) for count, weight in zip(pairs, weights, strict=True)]
        for share, each in zip(shares, wanted, strict=True):
            assert share / sum(shares) == pytest.approx(each / sum(wanted), rel=0.35)
    assert tempered([1.0, 1.0], [50, 50], 5.0, most=100) == [1, 1]
    settings = [CorpusSettings("a"), CorpusSettings("b")]
    mixture = Mixture(settings, [corpus("a", "en", "de", 400), corpus("b", "en", "fr", 25)], temperature=2.0)
    assert mixture.copies == [1, 4]  # 20 : 5 is 400 x 1 : 25 x 4
    assert sum(1 for unit in range(mixture.units) for _ in mixture.read(unit)) == 500


def test_recipes_set_languages_per_corpus():
    several = {
        "data.source_language": "en",
        "data.target_language": "de",
        "data.train": "[{corpus: [a.en, a.de]}, {corpus: [a.fr, a.de], source_language: fr}, "
        "{corpus: [a.en, a.fr], target_language: fr}]",
        "data.validation": "[{corpus: [v.en, v.de]}, {corpus: [v.en, v.fr], target_language: fr}]",
        "data.test": "{news: {corpus: [t.fr, t.de], source_language: fr}, small: t.tsv}",
        "data.sampling_temperature": "5",
    }
    data = recipe_of(several).data
    assert (data.source_languages, data.target_languages) == (["en", "fr"], ["de", "fr"])
    assert data.from_to == "en and fr into de and fr"
    assert data.measured == {
        "validation_en-de": (["v.en", "v.de"], "en", "de"),
        "validation_en-fr": (["v.en", "v.fr"], "en", "fr"),
        "news": (["t.fr", "t.de"], "fr", "de"),
        "small": ("t.tsv", "en", "de"),
    }
    for change, said in (
        ({"data.train": "[{corpus: a.tsv, target_language: german}]"}, "is not a language code"),
        ({"data.train": "[{corpus: a.tsv, target_language: de_ñ}]"}, "is not a language code"),
        ({"data.context_sentences": "2", "data.train": "[{corpus: a.tsv, documents: false}]"}, "has no effect"),
        ({"data.test": f"{{{'x' * 61}: t.tsv}}"}, "up to 60 letters"),
        ({"data.validation": "[{corpus: a.tsv}, {corpus: b.tsv}]"}, "another set validation_en-de"),
        ({"data.test": "{news: {corpus: a.tsv, language: fr}}"}, "data.test.news.language is unknown"),
        ({"data.sampling_temperature": "0.5"}, "at least 1"),
        ({"data.train": "[a.en, a.de]"}, "for a list of corpora"),
    ):
        with pytest.raises(ValueError, match=said):
            recipe_of({**several, **change})
