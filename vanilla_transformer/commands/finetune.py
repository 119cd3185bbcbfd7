"""A model trained further by transformers' own trainer."""


def finetune(
    *,
    model_name_or_path: str,
    output_dir: str,
    source_language: str,
    target_language: str,
    train_file: list[str] | None = None,
    validation_file: list[str] | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    model_revision: str = "main",
    trust_remote_code: bool = False,
    new_tokens: list[str] | None = None,
    lora_rank: int | None = None,
    lora_alpha: int | None = None,
    lora_dropout: float = 0.0,
    lora_target_modules: list[str] | None = None,
    merge_adapter: bool = False,
    r_drop_alpha: float = 0.0,
    max_source_length: int = 256,
    max_target_length: int = 256,
    max_train_samples: int | None = None,
    max_eval_samples: int | None = None,
    num_beams: int | None = None,
    metric: list[str] | None = None,
    more_options: list[str],
) -> None:
    """Fine-tunes a translation model with transformers' own Seq2SeqTrainer: one of this package, or Marian's.

    Besides the options below, all of transformers' Seq2SeqTrainingArguments but --debug and --do_predict are options:
    --do_train, --do_eval, --predict_with_generate, --learning_rate 1e-4, --num_train_epochs 3,
    --resume_from_checkpoint last ...

    A model of this package keeps the dropout, word dropout and LayerDrop of its configuration, and its label smoothing
    unless --label_smoothing_factor is given. R-Drop is off unless --r_drop_alpha is given, whatever the model was
    trained with.

    Args:
        model_name_or_path: A model's id on the Hub, or its folder.
        output_dir: Folder of the checkpoints and of the model at the end.
        source_language: Language code of the source, as the data have it.
        target_language: Language code of the target, as the data have it.
        train_file: A .jsonl, .tsv or .parquet file, or two line-aligned text files.
        validation_file: The same for validation.
        dataset_name: A dataset on the Hub with a column `translation`, or one per language.
        dataset_config_name: Its configuration, say de-en.
        model_revision: Branch, tag or commit of the model on the Hub.
        trust_remote_code: Run code that comes with the model; models of this package need none of it.
        new_tokens: Words to add to the vocabulary, each as one token.
        lora_rank: Train only LoRA adapters of this rank and the rows of new tokens.
        lora_alpha: With --lora_rank: scale of the adapters; by default twice the rank.
        lora_dropout: With --lora_rank: dropout on the inputs of the adapters.
        lora_target_modules: Names of the layers that get adapters; by default q_proj and v_proj.
        merge_adapter: Save the whole model with its adapters merged in, not the adapters.
        r_drop_alpha: Weight of R-Drop: each pair passes twice; 5 in its paper. Only for models of this package.
        max_source_length: Train on no pair with more source tokens than this.
        max_target_length: Train on no pair with more target tokens than this.
        max_train_samples: Train on at most this many pairs, the first ones.
        max_eval_samples: Validate on at most this many pairs, the first ones.
        num_beams: With --predict_with_generate: hypotheses of validation's search; by default the model's own setting.
        metric: With --predict_with_generate: scores, named as in `evaluate`; by default sacrebleu.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from ..training.finetuning import FinetuningArguments, finetune, training_arguments

    words = ["--output_dir", given.pop("output_dir"), *given.pop("more_options")]
    finetune(FinetuningArguments(**given), training_arguments(words))
