"""Seq2SeqTrainer with token batches, the Noam schedule and a validation that means what it says."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from accelerate.utils import broadcast, gather_object
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedModel, PreTrainedTokenizerFast, Seq2SeqTrainer
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from ..data.augmentation import Augmentation
from ..data.batch_stream import TokenBatchStream
from ..data.batching import TokenBatchSampler, TranslationCollator
from ..data.context import SEPARATOR, texts_in_context
from ..data.encoding import PairLimits
from ..data.guided_alignment import GuidedAlignment
from ..data.languages import target_languages
from ..data.rewriting import GivenPairs, Rewriter, RewrittenBatches
from ..data.subword_dropout import BPEDropout
from ..data.terms import TERMS, TermAnnotation, TermLexicon
from ..evaluation.metrics import bleu_for, build_metric
from ..evaluation.scores import perplexity, score_translations
from ..files import write_json, write_text
from ..run.digests import DIGESTS, check_digests, write_digests
from ..signals import leave_signals_to_parent
from ..translation import translate
from .arguments import FLOORED_BLEU, VanillaTransformerTrainingArguments, create_noam_scheduler
from .checkpoints import remove_old_checkpoints, saving
from .ema import WeightAverage
from .initial_model import MATRICES_OF_PIECES
from .muon import MUON, Muon, muon_groups
from .processes import shard, turn_on_without_gpus, whole
from .progress import Clock, PresentIntervals, TimeBudget, TokenCounter
from .safety import UpdateGuard


class VanillaTransformerTrainer(Seq2SeqTrainer):
    """Trains as the paper does (section 5); everything else is transformers' Trainer.

    Args:
        model: A `VanillaTransformerForConditionalGeneration`. Its `config.label_smoothing` and
            `config.r_drop_alpha` are set from the arguments.
        args: The training arguments.
        train_dataset: Rows with `input_ids` and `labels`, lists of token ids that end in `</s>`; or a stream of
            batches, whose place is saved with every checkpoint; `train(resume_from_checkpoint=...)` resumes from it.
        eval_dataset: The same for validation.
        processing_class: The tokenizer; it turns ids back to text for validation BLEU and is saved with the model.
        callbacks: More callbacks; early stopping is added if the arguments ask for it.
        card: Makes the README.md of `push_to_hub`: `sharing.model_card.bare_card`, or a function with the same
            arguments. None: Trainer's own, which states neither the data nor how a score was computed.
        files_to_save: Files that every saved model gets a copy of, say the recipe.
        run_id: Identifies this run; every checkpoint has it beside the digests of its files.
        limits: Text that augmentation or BPE-dropout would make longer than this stays as it is. A stream uses its
            own limits.
        floor_datasets: Rows like those of validation for every set of `args.floors`.
        term_lexicon: The lexicon of the training text, if `args.augmentation` has a share of pairs with `terms`.
        target_language: Code of the target language, by which validation BLEU finds words.

    Attributes:
        guard: Skips updates that are not finite; after too many `train()` saves and raises FloatingPointError.
        ema: The moving average of the weights, with `args.ema_decay`; every checkpoint has it as `ema.safetensors`.

    Raises:
        ValueError: At once, if a training pair is longer than `args.max_tokens`, there are fewer batches than
            processes, the tokenizer does not support `args.bpe_dropout`, or a sharded model is to skip layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        args: VanillaTransformerTrainingArguments,
        *,
        train_dataset: Dataset | TokenBatchStream | None = None,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerFast | None = None,
        callbacks: list[TrainerCallback] | None = None,
        card: Callable[..., str] | None = None,
        files_to_save: tuple[Path, ...] = (),
        run_id: str | None = None,
        limits: PairLimits | None = None,
        term_lexicon: TermLexicon | None = None,
        floor_datasets: dict[str, Dataset] | None = None,
        target_language: str = "und",
        **kwargs,
    ):
        if max(model.config.encoder_layerdrop, model.config.decoder_layerdrop) > 0:
            if args.fsdp:
                raise ValueError(
                    "With fsdp all processes gather every layer together, but with LayerDrop each skips its own: set "
                    "encoder_layerdrop and decoder_layerdrop to 0, or leave fsdp out."
                )
            args.ddp_find_unused_parameters = True  # or processes would wait for the gradients of skipped layers
        super().__init__(
            model=model,
            args=args,
            data_collator=TranslationCollator(),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        # The model smooths its own loss while training: the Trainer's smoother would need all logits at once.
        model.config.label_smoothing = args.label_smoothing_factor
        model.config.r_drop_alpha = args.r_drop_alpha
        self.label_smoother = None
        self.floor_datasets, self.target_language = floor_datasets or {}, target_language
        self.card, self.files_to_save, self.run_id = card, files_to_save, run_id
        self.stream = train_dataset if isinstance(train_dataset, TokenBatchStream) else None
        self.train_batches = None
        self.rewriters: list[Rewriter] = []
        if train_dataset is not None:
            self.rewriters = self._make_rewriters(limits if self.stream is None else self.stream.limits, term_lexicon)
        if self.stream is not None:
            self.stream.rewriters = self.rewriters
            args.ignore_data_skip = True  # the stream itself resumes at its place
            self.stream_place = _StreamPlace(self.stream)
            self.add_callback(self.stream_place)
        elif train_dataset is not None:
            self.train_batches = _token_batches(train_dataset, args.max_tokens, seed=args.order_seed, shuffle=True)
            if len(self.train_batches) < args.world_size:
                raise ValueError(
                    f"{len(train_dataset)} pairs make {len(self.train_batches)} batches of at most {args.max_tokens} "
                    f"tokens, too few for {args.world_size} processes: lower max_tokens, or start fewer processes."
                )
        self.guide: GuidedAlignment | None = None  # learned in the first update
        if args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(args.early_stopping_patience))
        self.add_callback(PresentIntervals())
        if args.max_minutes is not None:
            self.add_callback(TimeBudget())
        self._save_total_limit = args.save_total_limit
        self._clock = Clock()
        self._tokens = TokenCounter()
        self.guard = UpdateGuard(args.max_skipped_updates, Path(args.output_dir) / "not_finite.jsonl")
        self.add_callback(self.guard)
        self.ema = WeightAverage(args.ema_decay, self.guard) if args.ema_decay else None
        if self.ema is not None:
            self.add_callback(self.ema)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fsdp:
            turn_on_without_gpus(self.accelerator, self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True

    # ------------------------------------------------------------------------------------------------- data

    def get_train_dataloader(self) -> DataLoader:
        if self.stream is not None:
            # Each process has its own stream, which accelerate would divide among processes.
            # A loader draws a seed when it begins. Drawn from dropout's generator, it would change a resumed run.
            own = torch.Generator()
            return DataLoader(self.stream, batch_size=None, pin_memory=self.args.dataloader_pin_memory, generator=own)
        if self.train_batches is None:
            raise ValueError("Training needs a train_dataset.")
        if not self.rewriters:
            return self._loader(self.train_dataset, self.train_batches)
        order = (self.args.order_seed, self.args.process_index, self.args.world_size)
        later = not self.args.dataloader_num_workers
        batches = RewrittenBatches(self.train_batches, self.train_dataset, self.rewriters, *order, later=later)
        return self._loader(GivenPairs(len(self.train_dataset)), batches)

    def _learn_alignment(self) -> GuidedAlignment:
        """Each process learns it for itself, from the same pairs."""
        if self.stream is not None:
            pairs = self.stream.first_pairs()
        else:  # pairs from everywhere: the corpus may be sorted
            order = np.random.default_rng(0).permutation(len(self.train_dataset))
            parts = (self.train_dataset[order[start : start + 1000]] for start in range(0, len(order), 1000))
            pairs = (pair for part in parts for pair in zip(part["input_ids"], part["labels"], strict=True))
        added = {} if self.processing_class is None else self.processing_class.get_added_vocab()
        return GuidedAlignment(pairs, self.args.guided_alignment, added.get(SEPARATOR))

    @torch.no_grad()
    def _align_embeddings(self, model: PreTrainedModel) -> None:
        """Turns the first embeddings towards those of their translations; a row keeps its length."""
        share, config = self.args.aligned_embeddings, model.config
        vectors = self.guide.vectors(config.vocab_size, config.d_model, self.args.seed)
        linked = vectors.any(dim=1)
        # One matrix if embeddings and output layer are tied (section 3.4), else three.
        for weight in (each for name, each in model.named_parameters() if name.endswith(MATRICES_OF_PIECES)):
            row = weight[linked]
            length = row.norm(dim=1, keepdim=True)
            mixed = math.sqrt(1 - share**2) * row / length + share * vectors[linked].to(row)
            weight[linked] = length * torch.nn.functional.normalize(mixed)
            # Processes that round differently would go on with different models.
            weight.copy_(broadcast(weight.clone()))

    def _make_rewriters(self, limits: PairLimits | None, lexicon: TermLexicon | None) -> list[Rewriter]:
        terms, dropout = self.args.augmentation.get(TERMS), self.args.bpe_dropout
        forms = any(share for name, share in self.args.augmentation.items() if name != TERMS)
        if terms and lexicon is None:
            raise ValueError("augmentation.terms needs a term_lexicon: give learn_lexicon(pairs), or leave it out.")
        config = self.model.config
        places = config.max_position_embeddings if config.position_embedding_type == "learned" else self.args.max_tokens
        longest = (places, places) if limits is None else (limits.max_source_length, limits.max_target_length)
        source, target = (min(places, each) for each in longest)
        room = {"max_source_length": source, "max_target_length": target}
        # For each argument: whether it is on, and a function that makes its rewriter. Text first, then its pieces.
        table = {
            "augmentation": (forms, lambda tokenizer: Augmentation(tokenizer, self.args.augmentation, **room)),
            f"augmentation.{TERMS}": (terms, lambda tokenizer: TermAnnotation(tokenizer, lexicon, terms, **room)),
            "bpe_dropout": (dropout, lambda tokenizer: BPEDropout(tokenizer, dropout, **room)),
        }
        wanted = {name: make for name, (is_on, make) in table.items() if is_on}
        if wanted and self.processing_class is None:
            name = next(iter(wanted))
            raise ValueError(f"{name} needs the tokenizer: give processing_class, or leave {name} out.")
        return [make(self.processing_class) for make in wanted.values()]

    def get_eval_dataloader(self, eval_dataset: Dataset | None = None) -> DataLoader:
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError("Evaluation needs an eval_dataset.")
        longest = max(map(len, (*dataset["input_ids"], *dataset["labels"])))
        batches = _token_batches(dataset, max(self.args.max_tokens, longest), seed=0, shuffle=False)
        return self._loader(dataset, batches)

    def _loader(self, dataset: Dataset | GivenPairs, batches: TokenBatchSampler | RewrittenBatches) -> DataLoader:
        loader = DataLoader(
            dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            worker_init_fn=_begin_worker if self.args.dataloader_num_workers else None,
        )
        loader = self.accelerator.prepare(loader)
        # Trainer (5.17 to 5.23) tells the first two samplers which epoch it is. With several processes ours is behind
        # one that distributes batches; in the first epoch of a resumed run, behind another that skips some.
        loader.batch_sampler.set_epoch = batches.set_epoch
        return loader

    # -------------------------------------------------------------------------------- optimizer and schedule

    def create_optimizer(self, model: PreTrainedModel | None = None) -> torch.optim.Optimizer:
        if self.args.optim != MUON or self.optimizer_cls_and_kwargs is not None:
            return super().create_optimizer(model)
        if self.optimizer is None:
            model = self.model if model is None else model
            groups = muon_groups(model, self.get_decay_parameter_names(model), self.args.weight_decay)
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            self.optimizer = Muon(groups, lr=self.args.learning_rate, betas=betas, eps=self.args.adam_epsilon)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.args.noam_factor is None:
            return super().create_scheduler(num_training_steps, optimizer)
        if self.lr_scheduler is None:
            d_model, warmup = self.model.config.d_model, self.args.get_warmup_steps(num_training_steps)
            falling = self.args.get_cooldown_steps(num_training_steps)
            end = {"cooldown_steps": falling, "max_steps": num_training_steps}
            if falling and self.args.max_minutes is not None:
                end["cooldown_now"] = self._cooldown_now
            self.lr_scheduler = create_noam_scheduler(
                optimizer or self.optimizer, d_model, warmup, self.args.noam_factor, **end
            )
            self._created_lr_scheduler = True  # so that a second train() begins its schedule anew
        return self.lr_scheduler

    def _cooldown_now(self) -> float:
        # Looked up each time: on resuming, transformers puts a new budget in the place of the old one.
        [budget] = (each for each in self.callback_handler.callbacks if isinstance(each, TimeBudget))
        return budget.cooldown(self.args)

    # ---------------------------------------------------------------------------------------------- updates

    def compute_loss_context_manager(self):
        """accelerate puts autocast round the forward pass of every model but a sharded one."""
        return self.accelerator.autocast() if self.is_fsdp_enabled else super().compute_loss_context_manager()

    def compute_loss(self, model: torch.nn.Module, inputs: dict, return_outputs: bool = False, **kwargs):
        """As in Trainer. Where the outputs are not asked for, the model skips the logits, the largest of them."""
        if model.training and not return_outputs:
            inputs = {**inputs, "return_logits": False}
        if model.training and self.guide is not None:  # the loss of validation is that of the tokens alone
            places = (inputs[name] for name in ("input_ids", "attention_mask", "labels"))
            inputs = {**inputs, "alignment": self.guide(*places)}
        config, alpha = self.model.config, self.model.config.r_drop_alpha
        if self.state.global_step < self.args.r_drop_start:
            config.r_drop_alpha = 0.0
        try:
            return super().compute_loss(model, inputs, return_outputs, **kwargs)
        finally:
            config.r_drop_alpha = alpha  # every checkpoint stores it

    def training_step(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], *args, **kwargs) -> torch.Tensor:
        if self.args.guided_alignment and self.guide is None:  # not before, so that `max_minutes` counts its seconds
            self.guide = self._learn_alignment()
            if self.args.aligned_embeddings and self.state.global_step == 0:
                unwrapped = self.accelerator.unwrap_model(model)
                self._align_embeddings(unwrapped)
                if self.ema is not None:  # begins with the weights before update 1
                    self.ema.on_train_begin(self.args, self.state, self.control, model=unwrapped)
        # Batches of a stream are not on the device yet, and processes on GPUs cannot add up what is not.
        inputs = self._prepare_inputs(inputs)
        loss = super().training_step(model, inputs, *args, **kwargs)
        self._tokens.saw(inputs)
        return self.guard.saw(inputs, loss)

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: torch.Tensor | None = None):
        """transformers 5.17 to 5.23 gets each update's norm here, to log it; the guard uses the same one."""
        self.guard.grad_norm = super()._get_grad_norm(model, grad_norm)
        return self.guard.grad_norm

    # ------------------------------------------------------------------------------------------- validation

    def evaluate(
        self,
        eval_dataset: Dataset | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **generate_options,
    ) -> dict[str, float]:
        """Loss per real token (nats, no label smoothing), its perplexity, and BLEU with `predict_with_generate`.

        Arguments are Trainer's; `ignore_keys` has no effect, and other arguments override the decoding.

        Returns:
            `{prefix}_loss`, `{prefix}_perplexity`, `{prefix}_bleu` (sacreBLEU of the detokenised text, 0 to 100),
            `{prefix}_chrf` (0 to 100) if the best checkpoint is chosen by it, and `{prefix}_runtime` in seconds.
        """
        # A loader draws a seed even if it has nothing to shuffle: evaluating must not change what is learned.
        with self._clock.stopped(), torch.random.fork_rng(devices=[]):
            started = time.perf_counter()
            dataset = self.eval_dataset if eval_dataset is None else eval_dataset
            with whole(self.accelerator.unwrap_model(self.model)) as model:
                loss = self._loss_per_token(model, dataset)
                metrics = {"loss": loss, "perplexity": perplexity(loss)}
                if self.args.predict_with_generate:
                    metrics |= self._scores(model, dataset, generate_options)
                if eval_dataset is None and self.args.floors:
                    metrics |= self._floored(model, metrics["bleu"], generate_options)
            metrics["runtime"] = round(time.perf_counter() - started, 3)
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            # If patience ends training, the updates since the last checkpoint would be lost. (No callback can see to
            # that: on resuming, transformers calls EarlyStoppingCallback after all others.)
            if self.args.early_stopping_patience is not None:
                self.control.should_save |= self.control.should_training_stop
        return metrics

    @torch.no_grad()
    def _loss_per_token(self, model: PreTrainedModel, dataset: Dataset) -> float:
        was_training = model.training
        model.eval()
        exact = torch.float32 if self.args.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        sums = torch.zeros(2, dtype=exact, device=self.args.device)  # nats, tokens
        for batch in self.get_eval_dataloader(dataset):
            batch = self._prepare_inputs(batch)
            with self.compute_loss_context_manager():
                nats = model(**batch, num_items_in_batch=1, return_logits=False).loss
            sums += torch.stack((nats.to(exact), (batch["labels"] != -100).sum().to(exact)))
        model.train(was_training)
        nats, tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        return nats / tokens

    def _floored(self, model: PreTrainedModel, bleu: float, generate_options: dict) -> dict[str, float]:
        """BLEU of sets with a floor, and of validation or, if a floor is missed, the worst shortfall (negative)."""
        sets = self.floor_datasets.items()
        found = {name: self._scores(model, rows, generate_options)["bleu"] for name, rows in sets}
        missing = min(found[name] - lowest for name, lowest in self.args.floors.items())
        return {**{f"{name}_bleu": each for name, each in found.items()}, FLOORED_BLEU: min(missing, 0.0) or bleu}

    def _scores(self, model: PreTrainedModel, dataset: Dataset, generate_options: dict) -> dict[str, float]:
        """BLEU, and chrF if the best checkpoint is chosen by it.

        With target languages whose words BLEU finds in different ways, say German and Chinese, it is the mean of both.
        """
        args = self.args
        options = {"num_beams": args.generation_num_beams, "max_length": args.generation_max_length}
        options = {name: value for name, value in options.items() if value is not None} | generate_options
        share = dataset[args.process_index :: args.world_size]  # it may be empty
        languages = [tag or self.target_language for tag in _tagged_languages(self.processing_class, share)]
        rows = zip(languages, *translated(model, self.processing_class, share, **options), strict=True)
        rows = gather_object(list(rows))
        by_bleu: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for row in rows:
            by_bleu.setdefault(_bleu_of(row[0]), []).append(row)
        found = {"bleu": fmean(_score(of_these, bleu) for (bleu, _), of_these in by_bleu.items())}
        return found | ({"chrf": _score(rows, "chrf")} if args.chooses_by("chrf") else {})

    # ---------------------------------------------------------------------------------- saving and resuming

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        """As in Trainer; a stream resumes where the checkpoint left it.

        Raises:
            DamagedError: A file of the checkpoint is not the one saved.
            ValueError: `guided_alignment` has no pairs to learn from.
            FloatingPointError: Too many updates in a row were not finite; see `guard`.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"There is no checkpoint in {self.args.output_dir} to go on from.")
        resume_from_checkpoint = resume_from_checkpoint or None  # transformers takes False, too
        if resume_from_checkpoint:
            check_digests(Path(resume_from_checkpoint))
        if self.stream is not None and resume_from_checkpoint:
            path = Path(resume_from_checkpoint) / self._stream_file
            if not path.exists():
                raise ValueError(
                    f"{path} is missing: training cannot go on in the stream from {resume_from_checkpoint}."
                )
            self.stream.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
            self.stream_place.state = self.stream.state_dict()  # also if it is lost before the next update
        if self.args.push_to_hub and self.args.should_save:
            # Pushes during training send this folder, where Trainer puts everything but the model's code.
            self.accelerator.unwrap_model(self.model).config.save_pretrained(self.args.output_dir)
        if self.is_fsdp_enabled:
            shard(self.model, self.accelerator.state.fsdp_plugin)
        self._clock.start()
        self._tokens = TokenCounter()
        self.guard.begin()
        if not resume_from_checkpoint:
            for each in self.callback_handler.callbacks:
                if isinstance(each, TimeBudget):
                    each.begin()
        if self.ema is not None:
            self.ema.begin(resume_from_checkpoint)
        at_start = self.args.eval_on_start
        if resume_from_checkpoint:
            self.args.eval_on_start = False  # the checkpoint has been evaluated; again, it would use up patience
        try:
            with self._keeping_all_checkpoints():
                output = super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self.args.eval_on_start = at_start
        if self.guard.error is not None:
            raise FloatingPointError(self.guard.error)
        return output

    @contextmanager
    def _keeping_all_checkpoints(self) -> Iterator[None]:
        """Tells transformers to remove no checkpoints: `remove_old_checkpoints` decides which ones go.

        transformers orders them by their time; at the end it removes all but the best, and any folder named like them.
        """
        limit = self.args.save_total_limit
        self._save_total_limit, self.args.save_total_limit = limit or self._save_total_limit, None
        try:
            yield
        finally:
            self.args.save_total_limit = limit

    def push_to_hub(self, *args, **kwargs):
        """As in Trainer, but after its upload in the background has ended: the same files are written anew here."""
        self._finish_current_push()
        return super().push_to_hub(*args, **kwargs)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """transformers 5.17 to 5.23 copies a checkpoint's files into the folder that it may still be sending."""
        self._list_digests(Path(checkpoint_folder))  # so that they are sent too
        if self.args.hub_always_push:
            self._finish_current_push()
        super()._push_from_checkpoint(checkpoint_folder)

    def create_model_card(self, license: str | None = None, model_name: str | None = None, **kwargs) -> None:
        """Writes the card beside the model; without `card` it is Trainer's own."""
        if self.card is None:
            super().create_model_card(license=license, model_name=model_name, **kwargs)
        elif self.is_world_process_zero():
            output = Path(self.args.output_dir)
            repository = self.hub_model_id or self.args.hub_model_id or output.resolve().name
            title = model_name or repository.rpartition("/")[2]
            write_text(output / "README.md", self.card(output, title=title, repository=repository, license=license))

    def save_checkpoint(self) -> None:
        """Saves a checkpoint of the last update now. Allowed only between updates, and with one process."""
        self._save_checkpoint(self.model, trial=None)

    def _save_rng_state(self, output_dir: str) -> None:
        """Saves the state of every process, before the file that makes a checkpoint complete."""
        if self.stream is not None:
            Path(output_dir).mkdir(exist_ok=True)
            write_json(Path(output_dir) / self._stream_file, self.stream_place.state)
        super()._save_rng_state(output_dir)
        if self.args.world_size > 1:
            torch.distributed.barrier()  # the first process then writes the file that makes it complete

    @property
    def _stream_file(self) -> str:
        return f"stream_{self.args.process_index}.json"

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As in Trainer, with the counts of guard and counter, and the seconds of training without validation."""
        self._clock.carry_on_from(self.state.log_history)
        logs = {**logs, **self.guard.record(logs)}
        if "loss" in logs:
            logs |= self._tokens.record(self._clock.lap())
        super().log({**logs, "elapsed_seconds": round(self._clock.seconds(), 2)}, start_time)

    def _determine_best_metric(self, metrics, trial) -> bool:
        """If only some evaluations save a checkpoint, the others cannot be the best: there is nothing to load."""
        if self.args.save_strategy == "steps" and self.args.max_minutes is None:
            # Not as `control` says: an interruption saves as well, and would make another checkpoint the best.
            step = self.state.global_step
            saves = step % self.state.save_steps == 0 or step >= self.state.max_steps
        else:
            saves = self.control.should_save or self.args.save_strategy in ("no", "best")
        return saves and super()._determine_best_metric(metrics, trial)

    def _save_checkpoint(self, model: torch.nn.Module, trial) -> None:
        """transformers 5.17 to 5.23 writes all of a checkpoint here."""
        folder = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        with self._keeping_all_checkpoints(), saving(folder):
            (folder / DIGESTS).unlink(missing_ok=True)  # of an earlier save of this checkpoint
            if self.ema is not None and self.args.should_save:
                self.ema.save(folder)
            super()._save_checkpoint(model, trial)
            self._list_digests(folder)
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            remove_old_checkpoints(folder.parent, self.args, Path(best).name if best else None, self._save_total_limit)

    def _list_digests(self, checkpoint: Path) -> None:
        """Writes the list of all files last: it makes a checkpoint complete."""
        if self.args.should_save and not (checkpoint / DIGESTS).exists():
            write_digests(checkpoint, run=self.run_id, step=self.state.global_step)

    def _save(self, output_dir: str | None = None, state_dict=None) -> None:
        if self.is_fsdp_enabled and state_dict is not None:  # gathered by name, tied weights too
            tied = self.accelerator.unwrap_model(self.model).all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            for path in self.files_to_save:
                shutil.copy(path, output_dir or self.args.output_dir)


def translated(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, rows: Mapping[str, list], **options
) -> tuple[list[str], list[str]]:
    """Translations of encoded pairs, and their references: the tokenizer is reversible, so ids give back the text.

    Args:
        model: With several target languages it translates each source into that of its tag.
        tokenizer: The model's.
        rows: Columns `input_ids` and `labels`, of token ids.
        **options: As for [`translate`].
    """
    sources, contexts = texts_in_context(tokenizer, rows["input_ids"])
    references = tokenizer.batch_decode(rows["labels"], skip_special_tokens=True) if len(rows["labels"]) else []
    tags = _tagged_languages(tokenizer, rows)
    found = [""] * len(sources)
    for language in dict.fromkeys(tags):
        chosen = [i for i, tag in enumerate(tags) if tag == language]
        before = [contexts[i] for i in chosen]
        texts = translate(model, tokenizer, [sources[i] for i in chosen], contexts=before, to=language, **options)
        for i, text in zip(chosen, texts, strict=True):
            found[i] = text
    return found, references


def _tagged_languages(tokenizer: PreTrainedTokenizerFast, rows: Mapping[str, list]) -> list[str | None]:
    """The target language of each source by its tag; None without a tag."""
    languages = {number: language for language, number in target_languages(tokenizer).items()}
    return [languages.get(ids[0]) for ids in rows["input_ids"]]


def _score(rows: Sequence[tuple[str, str, str]], metric: str) -> float:
    """The score of rows of language, hypothesis and reference."""
    [language, *_], hypotheses, references = zip(*rows, strict=True)
    return score_translations(hypotheses, references, [metric], target_language=language)[0].value


@cache
def _bleu_of(language: str) -> tuple[str, str]:
    """The BLEU for translations into a language, and how it finds words in them."""
    name = bleu_for(language)
    return name, build_metric(name, language).tokenizer.signature()


def _begin_worker(number: int) -> None:
    leave_signals_to_parent(number)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a fork of a process with threads; tokenizers would warn of it


class _StreamPlace(TrainerCallback):
    """Where a stream was after the last update; it may have yielded more since, for an update that never happened.

    Trainer (5.17 to 5.23) does not know how long a stream is. It logs as `epoch` the share of `max_steps` that this
    session has done; the stream knows its passes.
    """

    def __init__(self, stream: TokenBatchStream):
        self.stream = stream
        self.state = stream.state_dict()

    def on_step_end(self, args, state, control, **kwargs):
        self.state, state.epoch = self.stream.state_dict(), self.stream.passes_done


def _token_batches(dataset: Dataset, max_tokens: int, *, seed: int, shuffle: bool) -> TokenBatchSampler:
    lengths = (_lengths(dataset, "input_ids", "source_length"), _lengths(dataset, "labels", "target_length"))
    return TokenBatchSampler(*lengths, max_tokens, seed=seed, shuffle=shuffle)


def _lengths(dataset: Dataset, tokens: str, length: str) -> np.ndarray:
    """(rows,) tokens of each row: a prepared corpus has them in a column, so that its tokens need not be read."""
    if length in dataset.column_names:
        return dataset.with_format("numpy", columns=[length])[:][length]
    return np.array([len(row) for row in dataset[tokens]], dtype=np.int64)
