"""Fine-tunes a translation model with transformers' own Seq2SeqTrainer: one of this package, or another seq2seq model.

The paper's schedule is `--lr_scheduler_type inverse_sqrt`, `--warmup_steps 4000`, `--adam_beta2 0.98` and
`--adam_epsilon 1e-9`, with `--learning_rate` for its peak.
"""

import argparse
import logging
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from datasets import Dataset, load_dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EvalPrediction,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from ..data.corpora import load_corpus
from ..data.languages import target_languages, towards
from ..data.readers import pair_of
from ..evaluation.metrics import METRICS, build_metric, metric_named
from ..evaluation.scores import score_translations
from ..model.weights_vanilla_transformer import check_weights


logger = logging.getLogger(__name__)
_METRICS = ["sacrebleu"]


@dataclass
class FinetuningArguments:
    """Model, pairs and scores; `vanilla-transformer finetune --help` says what each field means."""

    model_name_or_path: str
    source_language: str
    target_language: str
    model_revision: str = "main"
    trust_remote_code: bool = False
    new_tokens: list[str] = field(default_factory=list)
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    lora_target_modules: list[str] = field(default_factory=lambda: ["q_proj", "v_proj"])
    merge_adapter: bool = False
    r_drop_alpha: float = 0.0
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    train_file: list[str] | None = None
    validation_file: list[str] | None = None
    max_source_length: int = 256
    max_target_length: int = 256
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    num_beams: int | None = None
    metric: list[str] = field(default_factory=_METRICS.copy)


def training_arguments(words: Sequence[str]) -> Seq2SeqTrainingArguments:
    """transformers' training arguments, from words as they are typed: `["--learning_rate", "1e-4", "--do_train"]`."""
    parser = HfArgumentParser(Seq2SeqTrainingArguments, exit_on_error=False, allow_abbrev=False)
    parser.set_defaults(label_smoothing_factor=None)  # so that 0 can be asked for
    try:
        parsed, unknown = parser.parse_args_into_dataclasses(list(words), return_remaining_strings=True)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from error
    if unknown:
        raise ValueError(f"{unknown[0]} is neither an option of `finetune` nor of transformers' training arguments.")
    return parsed


def finetune(args: FinetuningArguments, training_args: Seq2SeqTrainingArguments) -> None:
    """Trains, validates, saves and uploads, as the arguments say."""
    _check_options(args, training_args)
    checkpoint = _checkpoint_to_go_on_from(training_args)
    set_seed(training_args.seed)
    training_args.dataloader_pin_memory &= training_args.device.type == "cuda"  # elsewhere torch warns that it is not
    model, tokenizer = _load_model(args)
    smoothing, training_args.label_smoothing_factor = training_args.label_smoothing_factor, 0.0
    if not hasattr(model.config, "label_smoothing"):
        training_args.label_smoothing_factor = smoothing or 0.0
    elif smoothing is not None:  # a model that smooths by itself gets the labels, which R-Drop needs
        model.config.label_smoothing = smoothing
    data = Pairs(args, tokenizer)
    training_args.generation_num_beams = args.num_beams or training_args.generation_num_beams
    if not any(getattr(model.generation_config, name, None) for name in ("max_length", "max_length_offset")):
        # transformers would end every translation at 20 tokens
        training_args.generation_max_length = training_args.generation_max_length or args.max_target_length
    trainer = Seq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=data.for_training() if training_args.do_train else None,
        eval_dataset=data.for_validation() if training_args.do_eval else None,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=data.score if training_args.predict_with_generate else None,
    )
    if training_args.do_train:
        metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
        if args.merge_adapter:
            trainer.model = trainer.model_wrapped = trainer.model.merge_and_unload()
        trainer.save_model()
        trainer.save_state()
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
    if training_args.do_eval:
        metrics = trainer.evaluate() | data.signatures
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    files = ", ".join(Path(file).name for file in args.train_file or ())
    card = {"language": [args.source_language, args.target_language], "tags": "translation"}
    card |= {"dataset": files or args.dataset_name, "dataset_tags": None if files else args.dataset_name}
    if training_args.push_to_hub:
        trainer.push_to_hub(**card)
    elif training_args.do_train:
        trainer.create_model_card(**card)


def _check_options(args: FinetuningArguments, training_args: Seq2SeqTrainingArguments) -> None:
    """Raises ValueError if options do not go together, or a metric cannot be computed."""
    if not training_args.do_train and not training_args.do_eval:
        raise ValueError("There is nothing to do: give --do_train, --do_eval or both.")
    if training_args.do_predict:
        command = f"vanilla-transformer translate --model {training_args.output_dir}"
        raise ValueError(f"There is no --do_predict: `{command}` translates.")
    if training_args.do_train and not (args.dataset_name or args.train_file):
        raise ValueError("There are no pairs to train on: give --dataset_name or --train_file.")
    if training_args.do_eval and not (args.dataset_name or args.validation_file):
        raise ValueError("There are no pairs to validate on: give --dataset_name or --validation_file.")
    for name in ("max_train_samples", "max_eval_samples"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, not {value}.")
    for name in ("merge_adapter", "lora_alpha", "lora_dropout"):
        if getattr(args, name) and args.lora_rank is None:
            raise ValueError(f"--{name} needs adapters: give --lora_rank.")
    chosen_by = (training_args.metric_for_best_model or "").removeprefix("eval_")
    if chosen_by in METRICS and training_args.greater_is_better == METRICS[chosen_by].lower_is_better:
        better = str(not METRICS[chosen_by].lower_is_better)
        raise ValueError(f"--metric_for_best_model {chosen_by} needs --greater_is_better {better}.")
    if not 0 <= args.r_drop_alpha < math.inf:
        raise ValueError(f"--r_drop_alpha must be at least 0 and finite, not {args.r_drop_alpha}.")
    for name in args.metric:
        if metric_named(name).needs_sources:
            raise ValueError(f"--metric {name} reads the sources too: score the finished model by `evaluate`.")
        build_metric(name, args.target_language)
    if (args.metric != _METRICS or args.num_beams) and not training_args.predict_with_generate:
        raise ValueError("--metric and --num_beams are for translations: give --predict_with_generate too.")


def _checkpoint_to_go_on_from(training_args: Seq2SeqTrainingArguments) -> str | None:
    """The checkpoint of `--resume_from_checkpoint`, if it is given.

    Raises ValueError if the output folder has no such checkpoint, or has some although training starts anew.
    """
    output, resume = training_args.output_dir, training_args.resume_from_checkpoint
    last = get_last_checkpoint(output) if Path(output).is_dir() else None
    if training_args.do_train and resume is None and last is not None:
        raise ValueError(f"{output} has checkpoints: go on with --resume_from_checkpoint last, or name another folder.")
    if resume == "last" and last is None:
        raise ValueError(f"{output} has no checkpoint to go on from: leave out --resume_from_checkpoint.")
    return last if resume == "last" else resume


# ------------------------------------------------------------------------------------------------------------ the model


def _load_model(args: FinetuningArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer, with new tokens and adapters as asked for.

    A new token that is already a piece of the vocabulary is refused: it would stand for that piece, which may be half
    of a character.
    """
    options = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path, **options)
    check_weights(args.model_name_or_path, {"revision": args.model_revision})  # Marian's class does not
    model = AutoModelForSeq2SeqLM.from_pretrained(args.model_name_or_path, use_safetensors=True, **options)
    if hasattr(model.config, "r_drop_alpha"):
        model.config.r_drop_alpha = args.r_drop_alpha
    elif args.r_drop_alpha:
        raise ValueError(f"--r_drop_alpha is for models of this package, and {args.model_name_or_path} is none.")
    if known := [token for token in args.new_tokens if token in tokenizer.get_vocab()]:
        raise ValueError(f"The vocabulary has {', '.join(known)} already: leave that out of --new_tokens.")
    tokenizer.add_tokens(args.new_tokens)
    if args.new_tokens and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    if args.lora_rank is not None:
        model = with_adapters(model, args, tokenizer.convert_tokens_to_ids(args.new_tokens))
    learning = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    logger.info(f"{learning:,} of {sum(parameter.numel() for parameter in model.parameters()):,} parameters learn.")
    return model, tokenizer


def with_adapters(model: PreTrainedModel, args: FinetuningArguments, new_ids: list[int]) -> PreTrainedModel:
    """The model with LoRA adapters; besides them, only the rows of new tokens learn. Needs PEFT."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ImportError("--lora_rank needs PEFT: pip install 'vanilla-transformer[finetune]'") from error
    rows = new_ids  # of the one matrix, if embeddings are tied
    if not model.config.tie_word_embeddings:
        embeddings = model.get_input_embeddings(), model.get_decoder().get_input_embeddings()
        matrices = (*embeddings, model.get_output_embeddings())
        rows = {name: new_ids for name, module in model.named_modules() if any(module is each for each in matrices)}
    config = LoraConfig(
        task_type="SEQ_2_SEQ_LM",
        r=args.lora_rank,
        lora_alpha=args.lora_alpha or 2 * args.lora_rank,
        lora_dropout=args.lora_dropout,
        target_modules=args.lora_target_modules,
        trainable_token_indices=rows if new_ids else None,
    )
    return get_peft_model(model, config)


# ------------------------------------------------------------------------------------------------------------- the data


class Pairs:
    """Training and validation pairs as token ids, and scores of validation's translations.

    `signatures` has those of the last scores, by the names of the metrics that Trainer writes.
    """

    def __init__(self, args: FinetuningArguments, tokenizer: PreTrainedTokenizerBase):
        # A model of several target languages reads from a tag which one is meant.
        to = args.target_language if target_languages(tokenizer) else None
        self.args, self.tokenizer = args, towards(tokenizer, to)
        self.languages = (args.source_language, args.target_language)
        # By their token ids, because Trainer may validate in another order. Several may have the same ids.
        self.references: dict[tuple[int, ...], deque[str]] = defaultdict(deque)
        self.signatures: dict[str, str] = {}

    def for_training(self) -> Dataset:
        """The pairs whose sides are neither blank nor too long; logs how many others there are."""
        args = self.args
        encoded = self._encoded(self._read("train", args.train_file, args.max_train_samples))
        blank = len(self.tokenizer("").input_ids), len(self.tokenizer(text_target="").input_ids)

        def fits(row: dict) -> bool:
            source, target = len(row["input_ids"]), len(row["labels"])
            return blank[0] < source <= args.max_source_length and blank[1] < target <= args.max_target_length

        kept = encoded.filter(fits)
        logger.info(
            f"{len(kept):,} pairs to train on; {len(encoded) - len(kept):,} left out, with a blank side or more than "
            f"{args.max_source_length} source or {args.max_target_length} target tokens."
        )
        if not len(kept):
            raise ValueError("No pair is left to train on: raise --max_source_length and --max_target_length.")
        return kept

    def for_validation(self) -> Dataset:
        """All pairs, of whatever length: a score covers the whole set."""
        pairs = self._read("validation", self.args.validation_file, self.args.max_eval_samples)
        encoded = self._encoded(pairs)
        for row, ids in zip(pairs, encoded["labels"], strict=True):
            self.references[self._key(ids)].append(pair_of(row, self.languages, "")[1])
        logger.info(f"{len(pairs):,} pairs to validate on.")
        return encoded

    def score(self, found: EvalPrediction) -> dict[str, float]:
        """Scores of detokenised translations against the references as they are written in the data."""
        ids = np.where(found.predictions == -100, self.tokenizer.pad_token_id, found.predictions)
        translations = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        references = []
        for labels in found.label_ids:
            of_these = self.references[self._key(labels.tolist())]
            references.append(of_these[0])
            of_these.rotate(-1)  # each is used once in an evaluation
        language = self.languages[1]
        scores = score_translations(translations, references, self.args.metric, target_language=language)
        self.signatures = {f"eval_{score.metric}_signature": score.signature for score in scores}
        return {score.metric: score.value for score in scores}

    def _read(self, split: str, files: list[str] | None, most: int | None) -> Dataset:
        if files:
            pairs = load_corpus(files[0] if len(files) == 1 else files, *self.languages)
        else:
            pairs = load_dataset(self.args.dataset_name, self.args.dataset_config_name, split=split)
        return pairs if most is None else pairs.select(range(min(most, len(pairs))))

    def _encoded(self, pairs: Dataset) -> Dataset:
        def encode(batch: dict, numbers: list[int]) -> dict:
            rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
            sides = [pair_of(row, self.languages, f"Pair {n + 1:,}") for row, n in zip(rows, numbers, strict=True)]
            sources, targets = ([text.strip() for text in side] for side in zip(*sides, strict=True))
            labels = self.tokenizer(text_target=targets)["input_ids"]
            return {"input_ids": self.tokenizer(sources)["input_ids"], "labels": labels}

        return pairs.map(encode, batched=True, with_indices=True, remove_columns=pairs.column_names)

    def _key(self, ids: list[int]) -> tuple[int, ...]:
        return tuple(each for each in ids if each not in (-100, self.tokenizer.pad_token_id))
