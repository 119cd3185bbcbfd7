"""`pipeline("translation")` and `pipeline("translation_en_to_de")`, as they were before transformers 5 dropped them."""

import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import torch
from transformers import GenerationConfig, Pipeline
from transformers.utils import cached_file

from .checks_vanilla_transformer import OUR_GENERATION_FIELDS
from .code_vanilla_transformer import LANGUAGES_TASK
from .confidence_vanilla_transformer import (
    CONFIDENCE,
    Calibration,
    dropout_log_probabilities,
    load_calibration,
    token_log_probabilities,
)


# As `language_tag` of the package makes it; this file works without the package, too.
_LANGUAGE_TAG = re.compile(r"<2[A-Za-z]{2,3}([-_]\w+)?>")
_GENERATION_FIELDS = frozenset(name for name in vars(GenerationConfig()) if not name.startswith("_")) | {
    *OUR_GENERATION_FIELDS,
    "constraints",
    "force_words_ids",
    "generation_config",
    "stopping_criteria",
    "logits_processor",
    "prefix_allowed_tokens_fn",
    "streamer",
}


class TranslationPipeline(Pipeline):
    """Translates texts with any sequence-to-sequence model: text in, `{"translation_text": ...}` out.

    Inputs and outputs are those of the translation pipeline of transformers 4. In addition, it can return scores, and
    the confidence of a calibrated model.

    Example:
        >>> translator = pipeline("translation_en_to_de", model="runs/multi30k_en_de/averaged")
        >>> translator("A man sees the dog.")
        [{'translation_text': 'Ein Mann sieht den Hund.'}]

    Raises:
        ValueError: The task is `translation_xx_to_yy`, and the recipe beside the model, which every model of a run has,
            is for other languages.
    """

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_feature_extractor = _load_video_processor = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        named = LANGUAGES_TASK.fullmatch(self.task or "")
        languages = self._languages if named else None
        if languages and not all(map(_is_among, named.groups(), languages)):
            source, target = (each[0].replace("-", "_") for each in languages)
            raise ValueError(
                f"{self.model.name_or_path} translates {source} to {target}, not {named[1]} to {named[2]}: ask for "
                f'pipeline("translation_{source}_to_{target}"), or take a model of the other languages.'
            )

    def __call__(self, inputs, **kwargs):
        """Translates.

        Args:
            inputs: A text, a list of texts, or a generator or `KeyDataset` of them.
            batch_size: How many texts are translated together; by default 1.
            return_text: Whether to return `translation_text`; the default.
            return_tensors: Whether to return `translation_token_ids` instead.
            return_scores: Whether to return a `score` too: the log-probability of a beam search's hypothesis divided by
                its length penalty.
            return_confidence: Whether to return a `confidence` too: the probability that the translation is good, by
                the calibration beside the model's weights (`vanilla-transformer calibrate`).
            clean_up_tokenization_spaces: Passed to the tokenizer's `decode`.
            src_lang, tgt_lang: For models of several languages; `translation_xx_to_yy` sets them too. One of our models
                with several target languages needs `tgt_lang`, say "fr".
            glossary: A [`Glossary`] of this package, or anything with its methods `constraints` and `annotated`: terms
                with the translations that they must have.
            terms: `"hard"`, the default: beam search, with one of our models, puts the terms into every translation.
                `"soft"`: the model reads them in the text; it must have been trained for that.
            **kwargs: Fields of the generation config, say `num_beams`, `num_return_sequences` or `max_length`; and the
                streamer, logits processors, stopping criteria and constraints of `generate()`.

        Returns:
            A list of dictionaries for a text. A list of dictionaries, one for each text, for a list; with several
            translations of each text (`num_return_sequences`) a list of lists of them. For a generator or dataset an
            iterator of lists.

        Raises:
            ValueError: An input is not a text, an option is unknown, `tgt_lang` is none of the model's languages,
                scores are asked for without beam search, or the model cannot keep to a glossary, or not in this way.
            OSError: A confidence is asked for, and the model is not calibrated.
        """
        if isinstance(inputs, list) and not inputs:
            return []
        found = super().__call__(inputs, **kwargs)
        texts = isinstance(inputs, list) and all(isinstance(text, str) for text in inputs)
        if texts and all(len(translations) == 1 for translations in found):
            return [translations[0] for translations in found]
        return found

    def _sanitize_parameters(
        self,
        return_text: bool | None = None,
        return_tensors: bool | None = None,
        return_scores: bool | None = None,
        return_confidence: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
        glossary=None,
        terms: str | None = None,
        **generate_options,
    ) -> tuple[dict, dict, dict]:
        unknown = generate_options.keys() - _GENERATION_FIELDS
        if unknown:
            raise ValueError(f"A translation pipeline takes no {', '.join(sorted(unknown))}.")
        named = LANGUAGES_TASK.fullmatch(self.task or "")
        preprocess = {"truncation": truncation} if truncation is not None else {}
        if terms not in (None, "hard", "soft"):
            raise ValueError(f"terms must be hard or soft, not {terms!r:.100}.")
        preprocess |= {"terms": terms} if terms is not None else {}
        preprocess |= {"glossary": glossary} if glossary is not None else {}
        if src_lang or tgt_lang or named:
            preprocess["languages"] = {
                "src_lang": src_lang or (named and named[1]),
                "tgt_lang": tgt_lang or (named and named[2]),
            }
        if return_text:
            return_tensors = False
        postprocess = {
            "return_tensors": return_tensors,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        forward = dict(generate_options)
        if return_scores is not None:
            forward["return_scores"] = return_scores
        if return_confidence is not None:
            forward["calibration"] = self._calibration if return_confidence else None
        return preprocess, forward, {name: value for name, value in postprocess.items() if value is not None}

    def preprocess(
        self,
        text: str,
        truncation: bool | str = False,
        languages: dict | None = None,
        glossary=None,
        terms: str = "hard",
    ) -> dict:
        if not isinstance(text, str):
            raise ValueError(f"A translation pipeline translates texts, not {type(text).__name__}: {text!r:.60}.")
        text = text.strip()  # as in training
        build = getattr(self.tokenizer, "_build_translation_inputs", None)  # tokenizers of several languages have it
        if build is not None and languages is not None:
            inputs = build(text, return_tensors="pt", truncation=truncation, **languages)
        else:
            inputs = self.tokenizer(text, return_tensors="pt", truncation=truncation)
        inputs.pop("token_type_ids", None)
        front = self._language_tag((languages or {}).get("tgt_lang"))
        if glossary is not None and terms == "soft":
            ids = torch.tensor([glossary.annotated(text, self.tokenizer)])
            inputs.update(input_ids=ids, attention_mask=torch.ones_like(ids))
        if front:
            ids = torch.cat((torch.tensor([front]), inputs["input_ids"]), dim=1)
            inputs.update(input_ids=ids, attention_mask=torch.ones_like(ids))
        if glossary is not None and terms == "hard":
            inputs["glossary"] = self._constraints(text, glossary)
        return inputs

    @cached_property
    def _languages(self) -> list[list[str]] | None:
        """Source and target languages by the recipe of one of our models, if it has one."""
        is_ours = self.model.config.model_type == "vanilla_transformer"
        return _languages_of(self.model) if is_ours and self.model.name_or_path else None

    def _language_tag(self, language: str | None) -> list[int]:
        """The token in front of a source that names the target language, if the model has several."""
        tags = {token: i for token, i in self.tokenizer.get_added_vocab().items() if _LANGUAGE_TAG.fullmatch(token)}
        if not tags:
            if language and self._languages and not _is_among(language, into := self._languages[1]):
                raise ValueError(f"The model translates into {into[0]}, not into {language}: leave tgt_lang out.")
            return []
        by_name = {tag[2:-1].replace("-", "_"): token for tag, token in tags.items()}  # names of tasks have no hyphens
        if (token := by_name.get(str(language).replace("-", "_"))) is None:
            names = [each[2:-1] for each in tags]
            raise ValueError(f"The model translates into {', '.join(names)}: give tgt_lang, say {names[0]!r}.")
        return [token]

    def _constraints(self, text: str, glossary) -> dict:
        """The constraints for `generate`, in a dictionary, so that one text's can be told from those of a batch."""
        if not getattr(self.model, "takes_constraints", False):
            raise ValueError(f"The search of {type(self.model).__name__} cannot keep to a glossary.")
        return {"constraints": glossary.constraints(text, self.tokenizer)}

    @cached_property
    def _calibration(self) -> Calibration:
        """The model's calibration, wherever the model came from."""
        name = self.model.name_or_path
        try:
            return load_calibration(Path(cached_file(name, CONFIDENCE, **_place_of(self.model))).parent)
        except OSError as error:  # its message does not mention calibrations
            try:
                return load_calibration(name)
            except FileNotFoundError as missing:
                raise FileNotFoundError(f"{missing} ({error})") from error

    def _forward(
        self, inputs: dict, return_scores: bool = False, calibration: Calibration | None = None, **options
    ) -> dict:
        """Token ids (batch, translations, length), and scores and confidences (batch, translations) if asked for."""
        if calibration is not None:
            found = self._forward(inputs, return_scores, **options)
            confidences = [
                [self._confidence(source[mask == 1], ids, calibration) for ids in translations]
                for source, mask, translations in zip(
                    inputs["input_ids"], inputs["attention_mask"], found["output_ids"], strict=True
                )
            ]
            return {**found, "confidences": torch.tensor(confidences, dtype=torch.float64)}
        batch = len(inputs["input_ids"])
        terms = inputs.pop("glossary", None)
        if terms is not None:
            terms = terms if isinstance(terms, list) else [terms]
            options["constraints"] = [each["constraints"] for each in terms]
        options = {**options, "return_dict_in_generate": return_scores}
        if return_scores and not getattr(self.model, "scores_without_steps", False):
            options["output_scores"] = True
        output = self.model.generate(**inputs, **options)
        if not return_scores:
            return {"output_ids": output.view(batch, -1, output.shape[1])}
        if output.get("sequences_scores") is None:
            raise ValueError("Only a beam search has scores: ask for num_beams of at least 2.")
        ids = output.sequences
        return {"output_ids": ids.view(batch, -1, ids.shape[1]), "scores": output.sequences_scores.view(batch, -1)}

    def _confidence(self, source: torch.LongTensor, ids: torch.LongTensor, calibration: Calibration) -> float:
        """The confidence in one translation, from token ids of the source (source,) and of the output."""
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        target = torch.tensor(self.tokenizer(text_target=text).input_ids, device=source.device)
        [tokens] = token_log_probabilities(self.model, {"input_ids": source[None]}, target[None]).tolist()
        samples = []
        if calibration.dropout_samples:
            pair = source.tolist(), target.tolist()
            samples = dropout_log_probabilities(self.model, *pair, calibration.dropout_samples, calibration.seed)
        return calibration.confidence(tokens, samples)

    def postprocess(
        self, outputs: dict, return_tensors: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> list[dict]:
        records = []
        for ids in outputs["output_ids"][0]:
            if return_tensors:
                records.append({"translation_token_ids": ids})
                continue
            text = self.tokenizer.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
            )
            records.append({"translation_text": text})
        for name in ("score", "confidence"):
            if f"{name}s" in outputs:
                for record, value in zip(records, outputs[f"{name}s"][0].tolist(), strict=True):
                    record[name] = value
        return records


def _place_of(model) -> dict:
    """Where a model's files are, besides its name: at another revision they may say something else."""
    return dict(getattr(model, "loaded_from", {}))


def _languages_of(model) -> list[list[str]] | None:
    """Source and target languages of a model's recipe, as the package writes it; None if it names no languages."""
    with suppress(OSError, ValueError):  # no recipe, no such repository, no connection; or not text
        text = Path(cached_file(model.name_or_path, "recipe.yaml", **_place_of(model))).read_text(encoding="utf-8")
        found = [re.findall(rf"^ +{side}_language: '?([\w-]+)", text, re.M) for side in ("source", "target")]
        return found if all(found) else None
    return None


def _is_among(language: str, languages: list[str]) -> bool:
    """Whether a language is one of several, ignoring regions: pt matches pt_BR."""
    return _without_region(language) in map(_without_region, languages)


def _without_region(language: str) -> str:
    return re.split("[-_]", language)[0].lower()


class TaskAliases(dict):
    """transformers' aliases of tasks, and `translation_xx_to_yy` for `translation`."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or bool(LANGUAGES_TASK.fullmatch(str(task)))

    def __getitem__(self, task: str) -> str:
        return super().__getitem__(task) if super().__contains__(task) else "translation"


def register_translation_pipeline() -> None:
    """Brings back `pipeline("translation")` and `pipeline("translation_xx_to_yy")`.

    Uses private names of `transformers.pipelines`, checked on 5.17 and 5.23.
    """
    from transformers import AutoModelForSeq2SeqLM, pipelines

    registry = pipelines.PIPELINE_REGISTRY
    if registry.supported_tasks.get("translation", {}).get("impl") is TranslationPipeline:
        return
    registry.register_pipeline("translation", pipeline_class=TranslationPipeline, pt_model=AutoModelForSeq2SeqLM)
    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)  # since 5.19
    registry.task_aliases = TaskAliases(registry.task_aliases)


__all__ = ["TranslationPipeline", "register_translation_pipeline"]
