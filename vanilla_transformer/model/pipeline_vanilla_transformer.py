"""`pipeline("translation")` and `pipeline("translation_en_to_de")`, which transformers 5 dropped, as they were."""

import re
from contextlib import suppress
from pathlib import Path

from transformers import GenerationConfig, Pipeline
from transformers.utils import cached_file

from .code_vanilla_transformer import LANGUAGES_TASK
from .generation_vanilla_transformer import OUR_GENERATION_FIELDS


_GENERATION_FIELDS = frozenset(name for name in vars(GenerationConfig()) if not name.startswith("_")) | {
    *OUR_GENERATION_FIELDS,
    "generation_config",
    "stopping_criteria",
    "logits_processor",
}


class TranslationPipeline(Pipeline):
    """Translates texts with any sequence-to-sequence model: text in, `{"translation_text": ...}` out.

    Inputs and outputs are those of the translation pipeline of transformers 4. Beyond it there are scores.

    Example:
        >>> translator = pipeline("translation_en_to_de", model="runs/multi30k_en_de/averaged")
        >>> translator("A man sees the dog.")
        [{'translation_text': 'Ein Mann sieht den Hund.'}]

    Raises:
        ValueError: The task is `translation_xx_to_yy`, and the recipe that lies beside every model of a run has other
            languages.
    """

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_feature_extractor = _load_video_processor = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        named, languages = LANGUAGES_TASK.fullmatch(self.task or ""), None
        if named and self.model.name_or_path and self.model.config.model_type == "vanilla_transformer":
            languages = _languages_of(self.model)
        if languages and [*map(_without_region, named.groups())] != [*map(_without_region, languages)]:
            source, target = (language.replace("-", "_") for language in languages)
            raise ValueError(
                f"{self.model.name_or_path} translates {source} to {target}, not {named[1]} to {named[2]}: ask for "
                f'pipeline("translation_{source}_to_{target}"), or take a model of the other languages.'
            )

    def __call__(self, inputs, **kwargs):
        """Translates.

        Args:
            inputs: A text, a list of texts, or a generator or `KeyDataset` of them.
            batch_size: How many texts are translated together; 1 if it is not given.
            return_text: Whether to return `translation_text`; the default.
            return_tensors: Whether to return `translation_token_ids` instead.
            return_scores: Whether to return a `score` too: the log-probability of a beam search's hypothesis divided by
                its length penalty.
            clean_up_tokenization_spaces: Handed to the tokenizer's `decode`.
            src_lang, tgt_lang: For tokenizers of several languages; `translation_xx_to_yy` sets them too.
            **kwargs: Anything that `generate()` takes, say `num_beams`, `num_return_sequences` or `max_length`.

        Returns:
            A list of dictionaries for a text. A list of dictionaries, one for each text, for a list; with several
            translations of each text (`num_return_sequences`) a list of lists of them. For a generator or dataset an
            iterator of lists.

        Raises:
            ValueError: An input is not a text.
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
        clean_up_tokenization_spaces: bool | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
        **generate_options,
    ) -> tuple[dict, dict, dict]:
        unknown = generate_options.keys() - _GENERATION_FIELDS
        if unknown:
            raise ValueError(f"A translation pipeline takes no {', '.join(sorted(unknown))}.")
        named = LANGUAGES_TASK.fullmatch(self.task or "")
        preprocess = {"truncation": truncation} if truncation is not None else {}
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
        return preprocess, forward, {name: value for name, value in postprocess.items() if value is not None}

    def preprocess(self, text: str, truncation: bool | str = False, languages: dict | None = None) -> dict:
        if not isinstance(text, str):
            raise ValueError(f"A translation pipeline translates texts, not {type(text).__name__}: {text!r:.60}.")
        build = getattr(self.tokenizer, "_build_translation_inputs", None)  # of tokenizers of several languages
        if build is not None and languages is not None:
            inputs = build(text, return_tensors="pt", truncation=truncation, **languages)
        else:
            inputs = self.tokenizer(text, return_tensors="pt", truncation=truncation)
        inputs.pop("token_type_ids", None)
        return inputs

    def _forward(self, inputs: dict, return_scores: bool = False, **options) -> dict:
        """Token ids (batch, translations, length), and scores (batch, translations) if they are asked for."""
        batch = len(inputs["input_ids"])
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
        if "scores" in outputs:
            for record, score in zip(records, outputs["scores"][0].tolist(), strict=True):
                record["score"] = score
        return records


def _languages_of(model) -> list[str] | None:
    """Source and target language of a model's recipe, as the package writes it; None where there is none."""
    revision = getattr(model.config, "_commit_hash", None)
    with suppress(OSError, ValueError):  # no recipe, no such repository, no connection; or no text
        text = Path(cached_file(model.name_or_path, "recipe.yaml", revision=revision)).read_text(encoding="utf-8")
        found = [re.search(rf"^  {side}_language: '?([\w-]+)", text, re.M) for side in ("source", "target")]
        return [each[1] for each in found] if all(found) else None
    return None


def _without_region(language: str) -> str:
    return re.split("[-_]", language)[0].lower()


class TaskAliases(dict):
    """transformers' aliases of tasks, and `translation_xx_to_yy` for `translation`."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or bool(LANGUAGES_TASK.fullmatch(str(task)))

    def __getitem__(self, task: str) -> str:
        return super().__getitem__(task) if super().__contains__(task) else "translation"


def register_translation_pipeline() -> None:
    """Gives `pipeline("translation")` and `pipeline("translation_xx_to_yy")` back.

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
