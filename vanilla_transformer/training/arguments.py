"""The paper's training settings (section 5): Seq2SeqTrainingArguments with its values, and its learning rate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import SchedulerType, Seq2SeqTrainingArguments, get_scheduler
from transformers.training_args import OptimizerNames

from ..data.forms import check_shares
from ..data.terms import TERMS
from .muon import MUON


# Arguments of transformers that a run ignores, and what to set instead, or why not.
_BATCHES = "batches are made of tokens: set max_tokens"
_VALIDATION = "validation reads all pairs by itself: leave it out"
_LOADER = "the loader of batches does not use it: leave it out"
_COMMAND = "`vanilla-transformer train` decides that: leave it out"
WITHOUT_EFFECT = {
    "num_train_epochs": "a run is measured in updates: set max_steps",
    **dict.fromkeys(("per_device_train_batch_size", "auto_find_batch_size", "train_sampling_strategy"), _BATCHES),
    **dict.fromkeys(("length_column_name", "sortish_sampler", "dataloader_drop_last"), _BATCHES),
    "prediction_loss_only": "another argument decides what validation computes: set predict_with_generate",
    **dict.fromkeys(("per_device_eval_batch_size", "eval_accumulation_steps", "eval_do_concat_batches"), _VALIDATION),
    **dict.fromkeys(("eval_use_gather_object", "include_for_metrics", "batch_eval_metrics"), _VALIDATION),
    **dict.fromkeys(("bf16_full_eval", "fp16_full_eval"), "validation is as precise as training: set bf16 or fp16"),
    **dict.fromkeys(("dataloader_persistent_workers", "dataloader_prefetch_factor"), _LOADER),
    **dict.fromkeys(("dataloader_multiprocessing_context", "dataloader_in_order"), _LOADER),
    **dict.fromkeys(("remove_unused_columns", "label_names"), "the collator takes what it needs: leave it out"),
    **dict.fromkeys(("do_train", "do_eval", "do_predict", "disable_tqdm", "local_rank"), _COMMAND),
    "neftune_noise_alpha": "its noise would not reach the model, which looks its embeddings up by itself: leave it out",
    "resume_from_checkpoint": "a run continues from its last complete checkpoint: use --resume",
}
_NOAM = "the Noam schedule is on: set noam_factor, or noam_factor: null to use it"
UNDER_NOAM = dict.fromkeys(("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs"), _NOAM)

# Schedules of transformers that do not depend on how long the run is.
_WITHOUT_END = ("constant", "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau", "greedy")

_BY_MEASUREMENT = ("reduce_lr_on_plateau", "greedy")

# What validation measures; the best checkpoint is chosen by one of these.
MEASURED = ("bleu", "chrf", "loss", "perplexity")
# Validation BLEU; below 0 for a checkpoint that scores less on a set than its floor.
FLOORED_BLEU = "floored_bleu"
_UNSET_LEARNING_RATE = Seq2SeqTrainingArguments.learning_rate

# The only value that each field of `fsdp_config` may have, and why.
_ONLY_FSDP = {
    "version": (2, "the first one is on its way out of torch"),
    "state_dict_type": ("FULL_STATE_DICT", "one process can load every checkpoint"),
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "each layer is gathered when it is its turn"),
    "transformer_layer_cls_to_wrap": (None, "each layer is gathered when it is its turn"),
    "cpu_offload": (False, "everything stays on its device"),
    "activation_checkpointing": (False, "training.gradient_checkpointing does it"),
    "xla": (False, "there is no sharding for XLA devices"),
}


@dataclass
class VanillaTransformerTrainingArguments(Seq2SeqTrainingArguments):
    """All of transformers' training arguments, with the paper's values where it gives any.

    New arguments: `max_tokens`, `update_tokens`, `max_minutes`, `noam_factor`, `cooldown_steps`, `average_last`,
    `ema_decay`, `early_stopping_patience`, `max_skipped_updates`, `augmentation`, `bpe_dropout`, `r_drop_alpha`,
    `r_drop_start`, `guided_alignment`, `aligned_embeddings`, `floors`, `lora_rank`.

    Changed defaults, beside what transformers has:

    | argument | here | transformers | why |
    | --- | --- | --- | --- |
    | `adam_beta2` | 0.98 | 0.999 | section 5.3 |
    | `adam_epsilon` | 1e-9 | 1e-8 | section 5.3 |
    | `warmup_steps` | 4000 | 0 | section 5.3; with equation 3 for the schedule, see `noam_factor` |
    | `max_steps` | 100,000 | -1 | section 5.2, base models |
    | `label_smoothing_factor` | 0.1 | 0 | section 5.4; the model's own loss does it, in training only |
    | `max_grad_norm` | 0 | 1 | the paper does not clip |
    | `weight_decay` | 0 | 0 | none in the paper: without it AdamW is Adam |
    | `eval_strategy` | steps | no | validation loss and BLEU belong to a run |
    | `eval_steps`, `save_steps` | 1000 | 500 | a checkpoint every so many updates (the paper: every 10 minutes) |
    | `save_total_limit` | `average_last` + 1 | none | for averaging, and the best one, kept in any case; at least 2 |
    | `metric_for_best_model` | bleu | none | decides "best" and early stopping; or chrf; "loss" without generation |
    | `load_best_model_at_end` | True | False | the best checkpoint is kept and saved |
    | `predict_with_generate` | True | False | validation BLEU by translating |
    | `remove_unused_columns` | False | True | the collator takes what it needs |
    | `report_to` | none | none | named here because it stays so |
    | `average_tokens_across_devices` | True | True | the loss is a mean over all tokens of an update |
    | `ddp_find_unused_parameters` | False | True | every parameter is used |
    | `accelerator_config` | even_batches off | on | no pair is trained on twice to make processes even |
    | `logging_steps` | 100 | 500 | the learning curve is drawn from the log |
    | `learning_rate` | 1.0 | 5e-5 | under the Noam schedule, which it multiplies; without it 5e-5 |
    | `logging_nan_inf_filter` | False | True | updates that are not finite are skipped and counted, not covered up |
    | `restore_callback_states_from_checkpoint` | True | False | a resumed run stops early when the unbroken one would |

    `per_device_train_batch_size` has no effect: `max_tokens` decides how many pairs make a batch. Others without effect
    are listed in `WITHOUT_EFFECT`; a recipe that sets one of these is refused.

    `fsdp=True` shards the model between processes (FSDP 2, full state dict, each layer a unit), with or without GPUs;
    of `fsdp_config` only `reshard_after_forward` may differ from that.

    `optim` may also be `muon`: see `Muon`. It takes the same rates as Adam, and short runs learn more with it.

    Args:
        max_tokens: Maximum padded source tokens of a batch, and maximum padded target tokens (section 5.1: 25,000
            each). With several processes or accumulation this is per process and per accumulated batch.
        update_tokens: Maximum padded source and target tokens of an update, over all processes. Batches of `max_tokens`
            are then accumulated as often as needed, and made smaller so that the product fits. None: `max_tokens` on
            each process, `gradient_accumulation_steps` times.
        max_minutes: Training ends after this many minutes by the clock, validation included, if it has not ended
            before. The run then saves 20 checkpoints in that time, and evaluates as often, or less often if
            evaluations would take more than a tenth of it, whatever `eval_steps` and `save_steps` say. Sessions of a
            resumed run count together. How many updates that makes depends on the machine. None: no limit.
        noam_factor: Multiplies the Noam schedule (equation 3); None leaves the learning rate to `learning_rate` and
            `lr_scheduler_type`.
        cooldown_steps: Number of final updates over which the Noam schedule is multiplied by a factor that falls
            linearly from 1 to 0 (Hägele et al. 2024, https://arxiv.org/abs/2405.18392); 0 for none. A number below 1
            is a share of the run, as with `warmup_steps`: of its updates and, with `max_minutes`, of its time,
            whichever comes first. By the clock, the factor lags an update behind, and the rate rises again if a
            resumed run gets more minutes. With `noam_factor: null` transformers' `warmup_stable_decay` is similar.
        average_last: How many of the last checkpoints are averaged at the end (section 6.1: 5 for base, 20 for big);
            0 for none.
        ema_decay: After every update the exponential moving average of the weights becomes `ema_decay` times itself
            plus 1 - `ema_decay` times the weights; say 0.999. The decay of update t is (1 + t) / (10 + t) as long as
            that is smaller. At the end the average becomes one more model, `ema`. None or 0: no average.
        early_stopping_patience: Stop after this many evaluations without a better `metric_for_best_model`, with a
            checkpoint; None: never.
        max_skipped_updates: An update whose loss or gradients are not finite is skipped: no parameter changes, the
            schedule and the count of updates continue, and the log counts it under `skipped_updates`. After this many
            in a row, training stops with a checkpoint, and the pairs of the last skipped update are written to
            `not_finite.jsonl`. (Not with fp16: its gradient scaler skips by itself.)
        augmentation: Share of the training pairs that come in each form of text, `{upper: 0.07, typos: 0.05}`; {} for
            none. A pair gets one form at most, drawn anew in every pass, so the shares sum to at most 1. `upper`,
            `title`, `no_end_punctuation`, `doubled_end_punctuation` and `noise` change both sides, `lower`, `typos`
            and `no_diacritics` only the source. Only for training; batches are cut again as with `bpe_dropout`.
            (OpusTrainer's modifiers, Bogoychev et al. 2023, https://arxiv.org/abs/2311.14838, are similar.) `terms` is
            the share of pairs, of any form, in which up to three words of the source have their translations beside
            them, so that the model learns to follow a glossary (soft terms); 0.1, say. The vocabulary must have been
            learned with it.
        bpe_dropout: Probability of leaving out each merge when source and target are cut into pieces, drawn anew in
            every pass (BPE-dropout, Provilkov et al. 2020, who use 0.1); 0 for none. Only for training, and only with
            tokenizers of kind bpe. Batches are cut again by the new lengths, into as many batches of the same pairs:
            with 0.1 they have a third more padded tokens on Multi30k, so `max_tokens` is not an upper limit then.
        r_drop_alpha: Weight of R-Drop (Liang et al. 2021; 5 in its translation experiments). Each pair passes twice
            with different dropout; the loss is the mean of both plus alpha/2 times the mean divergence of one from the
            other, see `linear_cross_entropy`. 0: off, one pass. An update takes at least twice the time and memory;
            `max_tokens` counts each pair once. The log's `loss` then includes the divergence: compare runs by
            `eval_loss`, which is never regularised.
        r_drop_start: Updates before R-Drop begins. Up to then each pair passes once, in half the time: a model that
            has hardly begun to learn does not overfit yet. 0: from the first update on, as in its paper.
        guided_alignment: Weight of guided alignment (Chen et al. 2016; Garg et al. 2019, https://arxiv.org/abs/1909.02074):
            when training begins, a word aligner learns from some of the pairs which tokens translate each other, and
            one head of the decoder's last layer learns to attend to them, see `guided_alignment_loss`. 0: off. Models
            need fewer updates with it. The log's `loss` then includes it: compare runs by `eval_loss`, which does not.
        aligned_embeddings: With `guided_alignment`: how near the first embedding of each token is to those of its
            translations, from 0 (random, off) to 1; see `GuidedAlignment.vectors`. A row is its random direction times
            sqrt(1 - a^2) plus its vector times a, as long as before. Only for random weights: trained embeddings would
            be lost.
        floors: BLEU by name of a test set, `{old: 38.5}`: these sets too are translated in every evaluation, and a
            checkpoint that scores less on one of them is neither the best nor the model of the run. {} for none.
        lora_rank: Train only low-rank adapters of this rank on the projections of queries and values (LoRA, Hu et al.
            2021), W + 2 B A, and the new rows of a vocabulary that has grown. Needs PEFT. The adapters are merged into
            the run's final models. 0: train everything.

    Raises:
        ValueError: A value is invalid; the message names the argument.
    """

    max_tokens: int = field(default=25_000, metadata={"help": "padded tokens of a batch, on either side"})
    update_tokens: int | None = field(default=None, metadata={"help": "padded tokens of an update, on either side"})
    max_minutes: float | None = field(default=None, metadata={"help": "minutes after which training ends"})
    noam_factor: float | None = field(default=1.0, metadata={"help": "factor of the Noam schedule; null turns it off"})
    cooldown_steps: float = field(
        default=0, metadata={"help": "last updates, or share of the run, in which the Noam schedule falls to 0"}
    )
    average_last: int = field(default=5, metadata={"help": "checkpoints to average at the end"})
    ema_decay: float | None = field(default=None, metadata={"help": "decay of the weights' moving average"})
    early_stopping_patience: int | None = field(default=None, metadata={"help": "evaluations without a better score"})
    max_skipped_updates: int = field(default=10, metadata={"help": "updates in a row that may be skipped"})
    augmentation: dict[str, float] = field(
        default_factory=dict, metadata={"help": "share of the pairs that come in each form of text"}
    )
    bpe_dropout: float = field(default=0.0, metadata={"help": "probability of each merge of BPE to be left out"})
    r_drop_alpha: float = field(default=0.0, metadata={"help": "weight of R-Drop; 0 turns it off"})
    r_drop_start: int = field(default=0, metadata={"help": "updates before R-Drop begins"})
    guided_alignment: float = field(default=0.0, metadata={"help": "weight of guided alignment; 0 turns it off"})
    aligned_embeddings: float = field(
        default=0.0, metadata={"help": "how near the first embeddings are to their translations, from 0 to 1"}
    )
    floors: dict[str, float] = field(default_factory=dict, metadata={"help": "least BLEU on test sets"})
    lora_rank: int = field(default=0, metadata={"help": "rank of LoRA adapters; 0 trains everything"})

    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-9
    warmup_steps: float = 4000
    max_steps: int = 100_000
    label_smoothing_factor: float = 0.1
    max_grad_norm: float = 0.0
    eval_strategy: str = "steps"
    eval_steps: float | None = 1000
    logging_steps: float = 100
    save_steps: float = 1000
    save_total_limit: int | None = None
    metric_for_best_model: str | None = "bleu"
    greater_is_better: bool | None = None
    load_best_model_at_end: bool = True
    predict_with_generate: bool = True
    remove_unused_columns: bool = False
    report_to: None | str | list[str] = "none"  # noqa: RUF036 -- in this order for HfArgumentParser
    logging_nan_inf_filter: bool = False
    ddp_find_unused_parameters: bool | None = False
    restore_callback_states_from_checkpoint: bool = True
    accelerator_config: dict | str | None = field(default_factory=lambda: {"even_batches": False})

    @property
    def n_gpu(self) -> int:
        """GPUs of this process: one at most. For several, transformers would take torch's `DataParallel`."""
        return min(1, super().n_gpu)

    def __post_init__(self):
        for name in ("max_tokens", "max_skipped_updates", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("seed", "data_seed"):  # numpy takes the fewest
            if not 0 <= (getattr(self, name) or 0) < 2**32:
                raise ValueError(f"{name} must be from 0 to {2**32 - 1}, not {getattr(self, name)}.")
        if self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {self.max_steps}: a run is measured in updates.")
        if not 0 <= self.max_grad_norm < math.inf:
            raise ValueError(f"max_grad_norm must be finite, 0 for no clipping, not {self.max_grad_norm}.")
        if self.ddp_timeout < 1:
            raise ValueError(f"ddp_timeout must be at least 1 second, not {self.ddp_timeout}.")
        if self.deepspeed:  # it takes its steps and writes its checkpoints where neither can be checked
            raise ValueError("deepspeed is not supported, its runs could not be resumed: set fsdp to shard a model.")
        if self.lora_rank < 0 or (self.lora_rank and self.fsdp):
            raise ValueError(f"lora_rank must be at least 0, and 0 with fsdp, not {self.lora_rank}.")
        if self.lora_rank and self.weight_decay:
            raise ValueError(
                "weight_decay would change rows of the vocabulary that lora_rank leaves alone: set it to 0."
            )
        self._check_regularisation()
        self._settle_schedule()
        self._settle_what_is_kept()
        if isinstance(self.accelerator_config, dict):
            self.accelerator_config = {"even_batches": False, **self.accelerator_config}
        if isinstance(self.fsdp_config, dict):
            self.fsdp_config = dict(self.fsdp_config)  # transformers fills it in
        is_muon = self.optim == MUON
        if is_muon:
            self._check_muon()
            self.optim = self.default_optim  # transformers (5.23) does not know it
        elif self.optim not in [each.value for each in OptimizerNames]:
            known = ", ".join([MUON, *(each.value for each in OptimizerNames)])
            raise ValueError(f"optim must be one of {known}, not {self.optim!r}.")
        super().__post_init__()
        self.optim = MUON if is_muon else self.optim
        if self.world_size > 1 and "epoch" in (self.eval_strategy, self.logging_strategy, self.save_strategy):
            raise ValueError(
                "eval_strategy, logging_strategy and save_strategy cannot be epoch with several processes, whose "
                "epochs end after different updates: choose steps."
            )
        if self.fsdp:
            check_sharding(self.fsdp_config, self.world_size)
        if self.update_tokens is not None:
            self._share_out_update()
        if self.noam_factor is None:
            self._check_room_to_fall()

    def _check_muon(self):
        """Raises ValueError for what does not work with Muon."""
        for name, why in (
            ("lora_rank", "the products of its adapters are what should be orthogonal, not the adapters"),
            ("optim_args", "it has no effect"),
            ("optim_target_modules", "it has no effect"),
        ):
            if getattr(self, name):
                raise ValueError(f"{name} does not work with optim {MUON}: {why}. Leave one of the two out.")

    def _check_regularisation(self):
        """Raises ValueError for regularisation that is out of range."""
        if not 0 <= self.label_smoothing_factor < 1:
            raise ValueError(
                f"label_smoothing_factor must be at least 0 and below 1, not {self.label_smoothing_factor}."
            )
        check_shares(self.augmentation, others=(TERMS,))
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(f"bpe_dropout must be at least 0 and below 1, not {self.bpe_dropout}; 0 turns it off.")
        if not 0 <= self.r_drop_alpha < math.inf:
            raise ValueError(f"r_drop_alpha must be at least 0 and finite, 0 for no R-Drop, not {self.r_drop_alpha}.")
        if not 0 <= self.guided_alignment < math.inf:
            raise ValueError(
                f"guided_alignment must be at least 0 and finite, 0 for none, not {self.guided_alignment}."
            )
        if not 0 <= self.aligned_embeddings <= 1:
            raise ValueError(f"aligned_embeddings must be from 0, for none, to 1, not {self.aligned_embeddings}.")
        if self.aligned_embeddings and not self.guided_alignment:
            raise ValueError(
                "aligned_embeddings needs a word aligner: set guided_alignment, say to 0.1, or leave it out."
            )
        shared_out = "each process has only a part of the embeddings"
        for name, why in (("fsdp", shared_out), ("lora_rank", "its embeddings are trained")):
            if self.aligned_embeddings and getattr(self, name):
                raise ValueError(f"{name} does not work with aligned_embeddings: {why}. Leave one of the two out.")
        if not 0 <= self.r_drop_start <= (self.max_steps if self.r_drop_alpha else 0):
            raise ValueError(
                "r_drop_start must be at least 0, at most max_steps, and 0 without r_drop_alpha, not "
                f"{self.r_drop_start}."
            )

    def _settle_schedule(self):
        """Completes the schedule and, with `max_minutes`, when to validate and save; ValueError for bad values."""
        if self.max_minutes is not None:
            if not 0 < self.max_minutes < math.inf:
                raise ValueError(f"max_minutes must be above 0, or null for no limit, not {self.max_minutes}.")
            if self.cooldown_steps >= 1:
                raise ValueError(
                    f"cooldown_steps {self.cooldown_steps} needs a known last update, and max_minutes has none: give "
                    "the share of the time in which the rate is to fall, say 0.2."
                )
            if self.eval_delay:
                raise ValueError(
                    "eval_delay has no effect with max_minutes, whose clock asks for evaluations: leave it out."
                )
            self.eval_steps = self.save_steps = self.max_steps  # the clock asks for them
        if self.noam_factor is not None and not (self.warmup_steps >= 1 and self.noam_factor > 0):
            raise ValueError(
                f"The Noam schedule needs warmup_steps of at least 1 and a factor above 0, not {self.warmup_steps} "
                f"and {self.noam_factor}; noam_factor: null turns it off."
            )
        if not 0 <= self.cooldown_steps <= self.max_steps or (self.cooldown_steps > 1 and self.cooldown_steps % 1):
            raise ValueError(
                f"cooldown_steps must be a share of the run from 0 to below 1, or a whole number of updates up to the "
                f"{self.max_steps} of max_steps, not {self.cooldown_steps}."
            )
        if self.cooldown_steps and self.noam_factor is None:
            raise ValueError(
                f"cooldown_steps {self.cooldown_steps} has no effect without the Noam schedule: set it to 0, and set "
                "lr_scheduler_type: warmup_stable_decay with lr_scheduler_kwargs: {num_decay_steps: "
                f"{self.get_cooldown_steps(self.max_steps)}, decay_type: linear}} instead."
            )
        if self.noam_factor is not None:
            if self.learning_rate not in (_UNSET_LEARNING_RATE, 1.0):
                raise ValueError(
                    f"learning_rate {self.learning_rate} has no effect under the Noam schedule: set noam_factor "
                    "instead, or noam_factor: null to use learning_rate and lr_scheduler_type."
                )
            self.learning_rate = 1.0  # the schedule multiplies it

    def _settle_what_is_kept(self):
        """Completes how checkpoints are chosen, averaged and kept; raises ValueError for bad values."""
        if self.ema_decay is not None and not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must be at least 0 (for none) and below 1, not {self.ema_decay}.")
        if self.ema_decay and self.fsdp:
            raise ValueError(
                "ema_decay needs all weights in every process, which fsdp shares out: leave it out, and average "
                "checkpoints (average_last)."
            )
        if self.average_last < 0:
            raise ValueError(f"average_last must be 0 or more, not {self.average_last}.")
        if self.floors:
            self._choose_above_floors()
        if self.metric_for_best_model is not None:
            self.metric_for_best_model, higher = chosen_by(self.metric_for_best_model, self.predict_with_generate)
            if self.metric_for_best_model not in (*MEASURED, *([FLOORED_BLEU] if self.floors else [])):
                raise ValueError(
                    f"metric_for_best_model {self.metric_for_best_model!r} is not measured during training: choose "
                    f"from {', '.join(MEASURED)}."
                )
            if self.greater_is_better is None:
                self.greater_is_better = higher
        if (patience := self.early_stopping_patience) is not None:
            if patience < 1:
                raise ValueError(f"early_stopping_patience must be at least 1, or null for never, not {patience}.")
            if self.eval_strategy == "no" or self.metric_for_best_model is None:
                raise ValueError("early_stopping_patience needs validation (eval_strategy) and metric_for_best_model.")
        if self.noam_factor is None and SchedulerType(self.lr_scheduler_type).value in _BY_MEASUREMENT:
            # They watch `metric_for_best_model`, and by torch's default take it for a loss.
            mode = "max" if self.greater_is_better else "min"
            self.lr_scheduler_kwargs = {"mode": mode, **(self.lr_scheduler_kwargs or {})}
        if self.save_total_limit is None:
            self.save_total_limit = max(2, self.average_last + 1)  # the best one and the last one in any case
        if self.save_total_limit < self.average_last:
            raise ValueError(
                f"save_total_limit {self.save_total_limit} keeps fewer checkpoints than the {self.average_last} of "
                "average_last: raise the one or lower the other."
            )

    def get_cooldown_steps(self, max_steps: int) -> int:
        """Updates of the cooldown in a run of `max_steps`, like transformers' `get_warmup_steps` for the warm-up."""
        return math.ceil(max_steps * self.cooldown_steps) if self.cooldown_steps < 1 else int(self.cooldown_steps)

    def chooses_by(self, metric: str) -> bool:
        """Whether the best checkpoint is the one with the best value of this metric on the validation set."""
        return (self.metric_for_best_model or "").removeprefix("eval_") == metric

    def _choose_above_floors(self):
        """Makes the best checkpoint the one with the best BLEU of those above all floors."""
        for name, lowest in self.floors.items():
            if isinstance(lowest, bool) or not isinstance(lowest, (int, float)) or not 0 <= lowest <= 100:
                raise ValueError(f"floors must be BLEU from 0 to 100, by name of the test set; {name} has {lowest!r}.")
        if self.metric_for_best_model not in ("bleu", "eval_bleu", FLOORED_BLEU) or not self.predict_with_generate:
            raise ValueError("floors choose by BLEU: leave metric_for_best_model and predict_with_generate out.")
        if self.eval_strategy == "no":
            raise ValueError("floors need validation: leave eval_strategy out, or set it to steps.")
        if self.average_last or self.ema_decay:
            raise ValueError("floors choose a checkpoint: set average_last to 0, and leave ema_decay out.")
        self.metric_for_best_model = FLOORED_BLEU

    def __getstate__(self) -> dict:
        """Without the token: Trainer writes the arguments beside every checkpoint, and pushes them to the Hub."""
        return {**vars(self), "hub_token": None}

    @property
    def device(self) -> torch.device:
        """As in transformers, but a CPU has no index: transformers 5.17 cannot load an optimizer to `cpu:0`."""
        device = super().device
        return torch.device("cpu") if device.type == "cpu" else device

    @property
    def order_seed(self) -> int:
        """The random seed of the order of batches."""
        return self.seed if self.data_seed is None else self.data_seed

    def _check_room_to_fall(self):
        """Raises ValueError if a schedule of transformers that decays to the run's end has no updates to decay in."""
        name, options = SchedulerType(self.lr_scheduler_type).value, self.lr_scheduler_kwargs or {}
        if name == "warmup_stable_decay" and "num_decay_steps" not in options:
            raise ValueError(f"lr_scheduler_type {name} needs lr_scheduler_kwargs: {{num_decay_steps: UPDATES}}.")
        warmup, decay = self.get_warmup_steps(self.max_steps), options.get("num_decay_steps", 0)
        if name not in _WITHOUT_END and warmup + decay > self.max_steps:
            raise ValueError(
                f"lr_scheduler_type {name} would not fall to its end in {self.max_steps} updates (max_steps): "
                f"warmup_steps are {warmup}{f', num_decay_steps {decay}' if decay else ''}. Set fewer, or 0."
            )

    def _share_out_update(self):
        """`update_tokens` = processes x accumulated batches x tokens of a batch."""
        if self.update_tokens < self.world_size:
            raise ValueError(f"update_tokens {self.update_tokens} is too few for {self.world_size} processes.")
        steps = -(-self.update_tokens // (self.max_tokens * self.world_size))
        if self.gradient_accumulation_steps not in (1, steps):
            raise ValueError(
                f"gradient_accumulation_steps {self.gradient_accumulation_steps} is not the {steps} that update_tokens "
                f"{self.update_tokens} and max_tokens {self.max_tokens} on {self.world_size} processes come to: leave "
                "it out."
            )
        self.gradient_accumulation_steps = steps
        self.max_tokens = self.update_tokens // (steps * self.world_size)


def chosen_by(metric: str, generates: bool = True) -> tuple[str, bool]:
    """The metric that chooses the best checkpoint where `metric_for_best_model` is this metric.

    Args:
        metric: With or without the prefix `eval_`.
        generates: Whether validation translates (`predict_with_generate`). If it does not, the loss takes the place of
            BLEU and chrF.

    Returns:
        The metric without `eval_`, and whether the higher value is the better one.
    """
    name = metric.removeprefix("eval_")
    if name in ("bleu", "chrf") and not generates:
        name = "loss"
    return name, not name.endswith(("loss", "perplexity"))


def check_sharding(config: dict, processes: int) -> None:
    """Raises ValueError if there is one process, or a field of `fsdp_config` has a value that is not supported here."""
    if processes == 1:
        raise ValueError(
            "fsdp divides a model among several processes, but there is only one: start it with torchrun "
            "--nproc_per_node, or leave fsdp out."
        )
    for name, (only, why) in _ONLY_FSDP.items():
        if config.get(name, only) != only:
            raise ValueError(f"fsdp_config.{name} cannot be {config[name]!r}, only {only!r}: {why}. Leave it out.")


def noam(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Learning rate of an update: factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    It rises in a straight line for `warmup_steps` updates and then falls with the inverse square root.

    Args:
        step: Number of the update, counted from 1.
        d_model: Width of the model.
        warmup_steps: Updates of the rise; the paper's 4,000.
        factor: 1 in the paper.

    Raises:
        ValueError: If `step` or `warmup_steps` is below 1.
    """
    if step < 1 or warmup_steps < 1:
        raise ValueError(f"Updates count from 1: step is {step}, warmup_steps is {warmup_steps}.")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """Factor of an update's learning rate: min(1, (max_steps + 1 - step) / cooldown_steps).

    It is 1 up to the first of the last `cooldown_steps` updates and falls in a straight line, to 1 / cooldown_steps at
    the last update. Only the next one would have 0, so that no update is wasted. (The linear cooldown of Hägele et al.
    2024, https://arxiv.org/abs/2405.18392, counted as transformers counts in its schedules.)

    Args:
        step: Number of the update, counted from 1 to `max_steps`.
        max_steps: Updates of the run.
        cooldown_steps: Updates of the fall; 0: the factor is always 1.
    """
    return min(1.0, (max_steps + 1 - step) / cooldown_steps) if cooldown_steps else 1.0


def create_noam_scheduler(
    optimizer: Optimizer,
    d_model: int,
    warmup_steps: int = 4000,
    factor: float = 1.0,
    *,
    cooldown_steps: int = 0,
    max_steps: int = 0,
    cooldown_now: Callable[[], float] | None = None,
) -> LambdaLR:
    """The Noam schedule for any optimizer whose own learning rate is 1, exact from update 1.

    Works with the stock Trainer as `optimizers=(optimizer, create_noam_scheduler(optimizer, ...))`.

    Args:
        optimizer: Its `lr` multiplies the schedule: 1.0 for the paper's rates.
        d_model: Width of the model.
        warmup_steps: Updates of the rise.
        factor: 1 in the paper.
        cooldown_steps: Last updates of the run, in which the rate falls to 0 in a straight line; the paper has none.
        max_steps: Updates of the run; needed for a cooldown.
        cooldown_now: Called at every update; returns another such factor, by the clock. The lower one counts.
    """

    sizes = {"d_model": d_model, "warmup_steps": warmup_steps, "factor": factor}
    end = {"max_steps": max_steps, "cooldown_steps": cooldown_steps}
    return LambdaLR(optimizer, partial(_rate_after, sizes=sizes, end=end, cooldown_now=cooldown_now))


def _rate_after(updates: int, sizes: dict, end: dict, cooldown_now: Callable[[], float] | None) -> float:
    factor = cooldown(updates + 1, **end)
    return noam(updates + 1, **sizes) * (factor if cooldown_now is None else min(factor, cooldown_now()))


def rate_factors(args: VanillaTransformerTrainingArguments, max_steps: int, updates: int) -> list[float]:
    """Factors of the first updates' rates, as far as they depend on the run's `max_steps`.

    Under the Noam schedule they are the cooldown's, else the whole of transformers' schedule. A schedule that follows
    measurements has no factors.
    """
    if args.noam_factor is not None:
        return [cooldown(step, max_steps, args.get_cooldown_steps(max_steps)) for step in range(1, updates + 1)]
    scheduler = get_scheduler(
        args.lr_scheduler_type,
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0),
        args.get_warmup_steps(max_steps),
        max_steps,
        args.lr_scheduler_kwargs,
    )
    return [scheduler.lr_lambdas[0](done) for done in range(updates)] if isinstance(scheduler, LambdaLR) else []
