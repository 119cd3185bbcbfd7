"""transformers' own Seq2SeqTrainer on a model of this package, with the Noam schedule.

    python scripts/finetune_with_stock_trainer.py MODEL SOURCE.txt TARGET.txt OUTPUT [UPDATES]

MODEL is a run folder's `averaged` (or any saved model); SOURCE and TARGET are line-aligned text files.
"""

import sys

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

import vanilla_transformer  # makes the Auto classes know the architecture
from vanilla_transformer import create_noam_scheduler, load_corpus


def main(model_path: str, source: str, target: str, output: str, updates: int = 100) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)

    def encode(batch):
        texts = [list(pair.values()) for pair in batch["translation"]]
        sources, targets = map(list, zip(*texts, strict=True))
        return tokenizer(sources, text_target=targets)

    pairs = load_corpus([source, target], "source", "target").map(encode, batched=True, remove_columns="translation")
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=output,
            max_steps=updates,
            per_device_train_batch_size=32,
            train_sampling_strategy="group_by_length",
            max_grad_norm=0,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=pairs,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        optimizers=(optimizer, create_noam_scheduler(optimizer, model.config.d_model, warmup_steps=4000)),
    )
    print(trainer.train().metrics)
    trainer.save_model(output)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(f"{__doc__}\nvanilla_transformer {vanilla_transformer.__version__}")
    main(*sys.argv[1:5], *map(int, sys.argv[5:]))
