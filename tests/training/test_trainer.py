"""The trainer on a tiny model: its rates, batches, validation, elapsed time and resuming are exact."""

import math
import shutil

import pytest
import torch
from datasets import Dataset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.batching import TokenBatchSampler, TranslationCollator
from vanilla_transformer.data.encoding import PairLimits
from vanilla_transformer.data.languages import towards
from vanilla_transformer.data.mixture import CorpusSettings, open_mixture
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.evaluation.metrics import bleu_for
from vanilla_transformer.evaluation.scores import score_translations
from vanilla_transformer.training import trainer as trainer_module
from vanilla_transformer.training.arguments import create_noam_scheduler, noam
from vanilla_transformer.training.progress import TokenCounter
from vanilla_transformer.training.trainer import VanillaTransformerTrainer

from .conftest import Work


EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
DROPPED = {"bpe_dropout": 0.3}
BEST = {**EVALUATED, "load_best_model_at_end": True}


class FixedBatches(TokenBatchSampler):
    """The batches that a test wants, in the order it wants."""

    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        yield from self.batches


def logged(trainer, name):
    return [record[name] for record in trainer.state.log_history if name in record]


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def scripted(trainer, monkeypatch, losses):
    """Makes validation return these losses, one after the other."""
    losses = iter(losses)
    monkeypatch.setattr(trainer, "_loss_per_token", lambda model, dataset: next(losses))
    return trainer


def test_length_columns_replace_counting_tokens():
    rows = {"input_ids": [[5, 2]] * 4, "labels": [[5, 6, 2]] * 4}
    lengths = {"source_length": [7, 2, 9, 4], "target_length": [3, 8, 1, 6]}  # false on purpose, so their use shows
    [read, counted] = (
        trainer_module._token_batches(dataset.select([3, 0, 2]), 20, seed=0, shuffle=False)
        for dataset in (Dataset.from_dict(rows | lengths), Dataset.from_dict(rows))
    )
    assert (read.source_lengths.tolist(), read.target_lengths.tolist()) == ([4, 7, 9], [6, 3, 1])
    assert (counted.source_lengths.tolist(), counted.target_lengths.tolist()) == ([2, 2, 2], [3, 3, 3])


def test_learning_rates_match_the_paper_from_update_1(make_trainer):
    rates = [noam(step, 16, 4, 0.3) for step in range(1, 8)]
    cooled = [rate * factor for rate, factor in zip(rates, (1, 1, 1, 1, 1, 2 / 3, 1 / 3), strict=True)]
    for options, expected in (({}, rates), ({"cooldown_steps": 3}, cooled)):
        trainer = make_trainer(max_steps=7, noam_factor=0.3, **options)
        for _ in range(2):  # a second training restarts the schedule
            trainer.train()
            assert logged(trainer, "learning_rate") == expected


def test_transformers_schedules_are_used_without_noam(make_trainer):
    trainer = make_trainer(noam_factor=None, learning_rate=0.5, lr_scheduler_type="constant", warmup_steps=0)
    trainer.train()
    assert logged(trainer, "learning_rate") == [0.5] * 3


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_accumulated_batches_are_one_big_batch(smoothing, make_trainer, make_model):
    # Two batches with very different numbers of tokens: the mean of their means would be wrong.
    def updated(accumulation, *batches):
        trainer = make_trainer(
            make_model(dropout=0.0),
            max_steps=2,
            max_grad_norm=1.0,  # so that the logged norm shows the gradients themselves
            optim="sgd",  # Adam would hide the scale of the gradients
            gradient_accumulation_steps=accumulation,
            label_smoothing_factor=smoothing,
        )
        trainer.train_batches = FixedBatches(*batches)
        trainer.train()
        return trainer

    union = updated(1, [0, 1, 2, 3, 4, 5, 6])
    halves = updated(2, [0], [1, 2, 3, 4, 5, 6])
    assert logged(halves, "grad_norm") == pytest.approx(logged(union, "grad_norm"), rel=1e-4)
    assert logged(halves, "loss") == pytest.approx(logged(union, "loss"), rel=1e-4)
    expected = weights_of(union)
    for name, weight in weights_of(halves).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-6)


def test_every_epoch_is_shuffled_differently(make_trainer):
    seen = []

    class Recorder(TranslationCollator):
        def __call__(self, rows):
            seen.append(tuple(tuple(row["labels"]) for row in rows))
            return super().__call__(rows)

    trainer = make_trainer()
    length = len(trainer.train_batches)
    trainer.args.max_steps = 2 * length
    trainer.data_collator = Recorder()
    trainer.train()
    first, second = seen[:length], seen[length : 2 * length]
    assert sorted(row for batch in first for row in batch) == sorted(row for batch in second for row in batch)
    assert first != second


@pytest.mark.parametrize("rewriting", [DROPPED, DROPPED | {"augmentation": {"upper": 0.4}}])
def test_each_epoch_is_rewritten_but_validation_never(make_trainer, make_model, tokenizer, pairs_of_words, rewriting):
    seen = {}
    for name, options in (
        ("without", {}),
        ("with", rewriting),
        ("again", rewriting),
        ("by workers", {**rewriting, "dataloader_num_workers": 1}),
        ("another seed", {**rewriting, "data_seed": 1}),
    ):
        trainer = make_trainer(make_model(), pairs_of_words, pairs_of_words, **options)
        loader, seen[name] = trainer.get_train_dataloader(), []
        for epoch in range(2):
            loader.batch_sampler.set_epoch(epoch)
            rows = [row for batch in loader for row in batch["labels"]]
            seen[name].append([tuple(row[row >= 0].tolist()) for row in rows])
        seen[name].append(trainer.evaluate()["eval_loss"])
    *plain, loss = seen["without"]
    *dropped, loss_with = seen["with"]
    assert seen["with"] == seen["again"] == seen["by workers"] != seen["another seed"]
    assert loss_with == loss
    for found, expected in zip(dropped, plain, strict=True):
        assert sorted(found) != sorted(expected)
        texts, originals = (
            sorted(tokenizer.batch_decode(each, skip_special_tokens=True)) for each in (found, expected)
        )
        assert any(text.isupper() for text in texts) == ("augmentation" in rewriting)
        assert sorted(text.lower() for text in texts) == originals
    assert sorted(dropped[0]) != sorted(dropped[1])


def test_rewriting_fits_positions_and_needs_a_tokenizer(make_trainer, make_model, pairs_of_words):
    lengths = [len(row) for side in ("input_ids", "labels") for row in pairs_of_words[side]]
    model = make_model(position_embedding_type="learned", max_position_embeddings=max(lengths))
    for name, much, some in (("bpe_dropout", 0.9, 0.1), ("augmentation", {"noise": 1.0}, {"upper": 0.1})):
        make_trainer(model, pairs_of_words, max_steps=8, **{name: much}).train()
        with pytest.raises(ValueError, match=f"{name} needs the tokenizer: give processing_class"):
            VanillaTransformerTrainer(model, make_trainer(**{name: some}).args, train_dataset=pairs_of_words)


@pytest.mark.parametrize("rewriting", [{"bpe_dropout": 0.9}, {"augmentation": {"upper": 1.0}}])
def test_rewriting_keeps_the_length_limits(make_trainer, make_model, tokenizer, pairs_of_words, rewriting):
    longest = [max(map(len, pairs_of_words[side])) for side in ("input_ids", "labels")]
    for sides in ((1, 1), (1, 9), (9, 1), (9, 9)):
        limits = PairLimits(*(length * times for length, times in zip(longest, sides, strict=True)))
        arguments = make_trainer(**rewriting, max_tokens=400).args
        trainer = VanillaTransformerTrainer(
            make_model(), arguments, train_dataset=pairs_of_words, processing_class=tokenizer, limits=limits
        )
        batches = list(trainer.get_train_dataloader())
        found = [max(batch[side].shape[1] for batch in batches) for side in ("input_ids", "labels")]
        grown = [length > most for length, most in zip(found, longest, strict=True)]
        assert any(grown) if sides == (9, 9) else grown in ([False, False], [times == 9 for times in sides])


def test_data_seed_decides_the_order_of_batches(make_trainer):
    def order(**seeds):
        return list(make_trainer(**seeds).train_batches)

    assert order(seed=1) == order(seed=1) == order(seed=2, data_seed=1)
    assert order(seed=1) != order(seed=2)


def test_bfloat16_trains_float32_weights(make_trainer):
    trainer = make_trainer(bf16=True, **EVALUATED)
    before, products = weights_of(trainer), set()
    for layer in (trainer.model.model.encoder.layers[0].fc1, trainer.model.model.decoder.layers[0].fc1):
        layer.register_forward_hook(lambda layer, inputs, output: products.add(output.dtype))
    trainer.train()
    assert products == {torch.bfloat16}  # in validation, too
    assert all(weight.dtype == torch.float32 for weight in trainer.model.parameters())
    assert any((weight != before[name]).any() for name, weight in weights_of(trainer).items())
    assert all(map(math.isfinite, logged(trainer, "loss") + logged(trainer, "eval_loss")))


def test_training_lowers_the_loss(make_trainer, make_model):
    trainer = make_trainer(make_model(dropout=0.0), max_steps=40, noam_factor=0.3, label_smoothing_factor=0.0)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 1


def test_oversized_pair_and_missing_datasets_raise(make_trainer):
    with pytest.raises(ValueError, match=r"Pair \d+ has \d+ source and \d+ target tokens, more than max_tokens = 5"):
        make_trainer(max_tokens=5)
    trainer = make_trainer(train_dataset=None, eval_dataset=None)
    with pytest.raises(ValueError, match="Training needs a train_dataset"):
        trainer.train()
    with pytest.raises(ValueError, match="Evaluation needs an eval_dataset"):
        trainer.evaluate()


def test_stock_trainer_trains_with_our_parts(tmp_path, make_model, pairs):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    trainer = Seq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(
            str(tmp_path), use_cpu=True, disable_tqdm=True, max_steps=3, logging_steps=1, save_strategy="no"
        ),
        data_collator=TranslationCollator(),
        train_dataset=pairs,
        optimizers=(optimizer, create_noam_scheduler(optimizer, 16, 4)),
    )
    trainer.train()
    assert logged(trainer, "learning_rate") == [noam(step, 16, 4) for step in (1, 2, 3)]
    assert all(map(math.isfinite, logged(trainer, "loss")))


def test_custom_compute_loss_receives_logits(make_trainer, make_model, pairs, tmp_path):
    """In subclasses of our trainer and of transformers' that compute the loss from the outputs."""
    seen = []

    class Looks:
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs, num_items_in_batch=num_items_in_batch)
            seen.append(outputs.logits.shape[:2] == inputs["labels"].shape)
            return (outputs.loss, outputs) if return_outputs else outputs.loss

    ours = make_trainer(make_model(), max_steps=1)
    ours.__class__ = type("Ours", (Looks, type(ours)), {})
    args = Seq2SeqTrainingArguments(tmp_path, max_steps=1, use_cpu=True, report_to="none", disable_tqdm=True)
    theirs = type("Theirs", (Looks, Seq2SeqTrainer), {})(
        make_model(), args, train_dataset=pairs, data_collator=TranslationCollator()
    )
    for trainer in (ours, theirs):
        trainer.train()
    assert seen == [True, True]


@pytest.mark.slow
def test_compiled_training_matches_plain_training(make_trainer, make_model):
    torch.compiler.reset()
    how = {"torch_compile": True, "torch_compile_backend": "aot_eager"}
    torch._dynamo.utils.counters.clear()
    compiled = make_trainer(make_model(dropout=0.0), **how)
    compiled.train()  # before the next one is made: accelerate has one global state
    assert torch._dynamo.utils.counters["frames"]["ok"]  # something was compiled
    plain = make_trainer(make_model(dropout=0.0))
    plain.train()
    for one, other in zip(logged(compiled, "loss"), logged(plain, "loss"), strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def nats_per_token(model, pairs):
    """One pair at a time, with float64 log-probabilities."""
    model.eval()
    nats = tokens = 0
    for pair in pairs:
        labels = torch.tensor([pair["labels"]])
        inputs = torch.cat([torch.zeros(1, 1, dtype=torch.long), labels[:, :-1]], dim=1)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([pair["input_ids"]]), decoder_input_ids=inputs).logits.double()
        nats -= logits.log_softmax(-1).gather(-1, labels[..., None]).sum().item()
        tokens += labels.numel()
    return nats / tokens


def test_validation_loss_is_unsmoothed_mean_per_token(make_trainer, make_model, pairs):
    model = make_model(seed=3)
    expected = nats_per_token(model, pairs)
    for options in ({"max_tokens": 12}, {"max_tokens": 1000}, {"label_smoothing_factor": 0.5}):
        trainer = make_trainer(model, **options)
        metrics = trainer.evaluate()
        assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)
        assert metrics["eval_perplexity"] == pytest.approx(math.exp(metrics["eval_loss"]), rel=1e-12)
        assert trainer.model.config.label_smoothing == options.get("label_smoothing_factor", 0.1)


def test_training_loss_is_smoothed(make_trainer, make_model):
    def first_loss(smoothing):
        trainer = make_trainer(make_model(dropout=0.0, label_smoothing=0.3), label_smoothing_factor=smoothing)
        trainer.train_batches = FixedBatches([0, 1, 2])
        trainer.train()
        batch = TranslationCollator()([trainer.train_dataset[i] for i in range(3)])
        return logged(trainer, "loss")[0], batch

    plain, batch = first_loss(0.0)
    smoothed, _ = first_loss(0.4)
    with torch.no_grad():
        log_probabilities = make_model(dropout=0.0).eval()(**batch).logits.log_softmax(-1)[batch["labels"] != -100]
    assert smoothed == pytest.approx(0.6 * plain - 0.4 * log_probabilities.mean().item(), rel=1e-4)


def test_r_drop_begins_after_r_drop_start_updates(make_trainer, make_model):
    def losses(**options):
        trainer = make_trainer(make_model(dropout=0.3), max_steps=6, gradient_accumulation_steps=2, **options)
        trainer.train()
        return logged(trainer, "loss"), trainer.model.config.r_drop_alpha

    without, _ = losses()
    late, alpha = losses(r_drop_alpha=2.0, r_drop_start=4)
    assert late[:4] == without[:4]
    assert late[4] > without[4]
    assert alpha == 2.0
    assert losses(r_drop_alpha=2.0)[0][0] > without[0]


def test_guided_alignment_teaches_attention_and_leaves_validation_alone(make_trainer, make_model):
    source = [list(range(70, 76))[k % 6 :] + list(range(70, 76))[: k % 6] for k in range(24)]
    text = Dataset.from_dict(
        {"input_ids": [[*ids, 2] for ids in source], "labels": [[i + 20 for i in ids] + [2] for ids in source]}
    )
    options = {
        "train_dataset": text,
        "eval_dataset": text,
        "eval_strategy": "steps",
        "eval_steps": 120,
        "max_steps": 120,
        "noam_factor": 0.3,
    }

    def trained(**more):
        trainer = make_trainer(make_model(dropout=0.0), **options, **more)
        trainer.train()
        batch = TranslationCollator()([text[0]])
        with torch.no_grad():
            attention = trainer.model.eval()(**batch, output_attentions=True).cross_attentions[-1][0, 0]
        return trainer, attention[range(6), range(6)].mean().item()

    (_, before), (guided, after) = trained(), trained(guided_alignment=1.0)
    assert after > 0.9 > 0.5 > before
    batch = TranslationCollator()(list(text))
    with torch.no_grad():
        alone = guided.model.eval()(**batch).loss.item()
    assert logged(guided, "eval_loss")[-1] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_begin_near_their_translations(make_trainer, make_model, tied):
    source = [[70 + k % 6, 70 + k % 5, 2] for k in range(60)]
    text = Dataset.from_dict({"input_ids": source, "labels": [[*(i + 20 for i in ids[:-1]), 2] for ids in source]})

    def matrices(**options):
        """Those of embeddings and output before the first update."""
        model = make_model(tie_word_embeddings=tied, dropout=0.0)
        options = {"max_steps": 1, "guided_alignment": 0.1, "warmup_steps": 1, "noam_factor": 1e-12, **options}
        trainer = make_trainer(model, train_dataset=text, eval_strategy="no", ema_decay=0.9, **options)
        trainer.train()
        for name, weight in trainer.ema.weights.items():  # the average begins there, too
            torch.testing.assert_close(weight, model.state_dict()[name])
        embeddings = (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head)
        return [each.weight.detach() for each in embeddings]

    for before, after in zip(matrices(), matrices(aligned_embeddings=0.8), strict=True):
        linked = [*range(70, 76), *range(90, 96), 2]
        rest = [row for row in range(len(before)) if row not in linked]
        torch.testing.assert_close(after[rest], before[rest])
        torch.testing.assert_close(after.norm(dim=1), before.norm(dim=1))
        alike = torch.nn.functional.cosine_similarity(after[70:76, None], after[None, 90:96], dim=2)
        assert alike.argmax(1).tolist() == list(range(6))
        assert alike.diagonal().min() > 0.3


def test_stream_is_aligned_by_all_its_corpora(make_trainer, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.data.guided_alignment.MOST_CELLS", 400)
    texts = {"a": ("tiny words", "words tiny"), "b": ("of vocabulary", "vocabulary of")}
    for name, pair in texts.items():
        (tmp_path / f"{name}.tsv").write_text(("\t".join(pair) + "\n") * 60)
    mixed = open_mixture([CorpusSettings(f"{name}.tsv") for name in texts], "en", "de", folder=tmp_path)
    stream = TokenBatchStream(mixed, tokenizer, 40, collate=TranslationCollator())
    trainer = make_trainer(train_dataset=stream, guided_alignment=1.0)
    assert trainer.guide is None  # nothing is learned for a run that does not train
    trainer.train()
    for source, target in texts.values():
        ids = [tokenizer(text, return_tensors="pt") for text in (source, target)]
        [links] = trainer.guide(*ids[0].values(), ids[1].input_ids)
        assert links[:-1, :-1].sum() > 1  # without </s>


def test_validation_takes_pairs_longer_than_a_training_batch(make_trainer):
    long = Dataset.from_dict({"input_ids": [[70] * 60 + [2]], "labels": [[71] * 70 + [2]]})
    assert math.isfinite(make_trainer().evaluate(long)["eval_loss"])


def test_validation_keeps_mode_random_state_and_decoding(make_trainer, pairs):
    """transformers' own evaluation writes its defaults into the generation config that is saved with the model."""
    trainer = make_trainer(predict_with_generate=True, generation_num_beams=2)
    decoding, numbers = trainer.model.generation_config.to_dict(), torch.get_rng_state()
    for training in (True, False):
        trainer.model.train(training)
        trainer.evaluate(max_new_tokens=2)
        assert trainer.model.training is training
    assert torch.equal(torch.get_rng_state(), numbers)
    assert trainer.model.generation_config.to_dict() == decoding
    assert len(trainer.predict(pairs).predictions) == len(pairs)
    # Prediction is transformers' own and writes its defaults: chosen settings must survive.
    chosen = {name: value for name, value in decoding.items() if value is not None}
    assert trainer.model.generation_config.to_dict().items() >= chosen.items()


def test_evaluation_reports_the_expected_metric_names(make_trainer):
    keys = {"eval_loss", "eval_perplexity", "eval_runtime"}
    assert make_trainer().evaluate().keys() == keys
    assert make_trainer(predict_with_generate=True).evaluate(max_new_tokens=3).keys() == keys | {"eval_bleu"}
    metrics = make_trainer().evaluate(metric_key_prefix="test")
    assert metrics.keys() == {"test_loss", "test_perplexity", "test_runtime"}


def test_bleu_compares_translations_with_label_text(make_trainer, tokenizer, monkeypatch):
    texts = [("a dog sleeps in the park", "ein Hund schläft im Park"), ("two cats", "zwei Katzen sind hier")]
    rows = [{"input_ids": tokenizer(one).input_ids, "labels": tokenizer(other).input_ids} for one, other in texts]
    right = dict(texts)
    wrong = {source: "?" * len(target) for source, target in texts}
    for found, bleu in ((right, 100), (wrong, 0)):

        def translate(model, tokenizer, sentences, found=found, **options):
            return [found[sentence] for sentence in sentences]

        monkeypatch.setattr(trainer_module, "translate", translate)
        metrics = make_trainer(predict_with_generate=True).evaluate(Dataset.from_list(rows))
        assert metrics["eval_bleu"] == pytest.approx(bleu, abs=1e-9)


def test_bleu_finds_words_as_each_target_language_has_them(make_trainer, monkeypatch):
    tokenizer = learn_tokenizer(["一二三四五六七八"] * 3, TokenizerSettings(vocab_size=270), tags=["<2de>", "<2zh>"])
    german, chinese = "ein Hund schläft im Park", "我们今天去公园玩"
    pairs = {"de": (german, german), "zh": (chinese, f"{chinese}耍")}
    rows = []
    for language, (said, reference) in pairs.items():
        source = towards(tokenizer, language)(said).input_ids
        rows.append({"input_ids": source, "labels": tokenizer(text_target=reference).input_ids})
    monkeypatch.setattr(trainer_module, "translate", lambda model, tokenizer, sources, **options: sources)
    trainer = make_trainer(predict_with_generate=True)
    trainer.processing_class, trainer.target_language = tokenizer, "de"
    monkeypatch.setattr(trainer, "_loss_per_token", lambda model, dataset: 1.0)
    expected = {}
    for language, (said, reference) in pairs.items():
        [score] = score_translations([said], [reference], [bleu_for(language)], target_language=language)
        expected[language] = score.value
    assert expected["de"] == pytest.approx(100) != pytest.approx(expected["zh"])
    assert trainer.evaluate(Dataset.from_list(rows[1:]))["eval_bleu"] == pytest.approx(expected["zh"])
    assert trainer.evaluate(Dataset.from_list(rows))["eval_bleu"] == pytest.approx(sum(expected.values()) / 2)


def test_early_stopping_stops_when_patience_runs_out(make_trainer, monkeypatch):
    trainer = make_trainer(max_steps=9, early_stopping_patience=2, **BEST)
    scripted(trainer, monkeypatch, [3.0, 2.0, 2.5, 2.0, 1.0]).train()
    assert trainer.state.global_step == 4


def test_best_and_last_are_kept_and_best_loaded(make_trainer, monkeypatch, tmp_path):
    def trained(average_last, losses):
        trainer = make_trainer(max_steps=6, average_last=average_last, **BEST)
        scripted(trainer, monkeypatch, losses).train()
        return trainer, {path.name for path in (tmp_path / "checkpoints").iterdir()}

    trainer, kept = trained(2, [5.0, 1.0, 3.0, 4.0, 5.0, 6.0])
    assert kept == {"checkpoint-2", "checkpoint-5", "checkpoint-6"}
    best = type(trainer.model).from_pretrained(tmp_path / "checkpoints" / "checkpoint-2").state_dict()
    assert all(torch.equal(weight, best[name]) for name, weight in trainer.model.state_dict().items())
    # The last ones are enough to average if the best is among them.
    _, kept = trained(3, [6.0, 5.0, 4.0, 3.0, 1.0, 2.0])
    assert kept >= {"checkpoint-4", "checkpoint-5", "checkpoint-6"}


def test_limit_of_one_keeps_newest_best_and_foreign_folders(make_trainer, monkeypatch, tmp_path):
    foreign = tmp_path / "checkpoints" / "checkpoint-1-copy"
    foreign.mkdir(parents=True)
    trainer = make_trainer(average_last=1, **BEST | {"save_total_limit": 1})
    scripted(trainer, monkeypatch, [1.0, 2.0, 3.0]).train()
    assert {path.name for path in foreign.parent.iterdir()} == {"checkpoint-1", "checkpoint-3", foreign.name}
    assert trainer.args.save_total_limit == 1


def test_best_checkpoint_is_a_saved_one(make_trainer, monkeypatch):
    trainer = make_trainer(max_steps=6, average_last=0, **{**BEST, "save_steps": 3})
    scripted(trainer, monkeypatch, [1.0, 2.0, 5.0, 3.0, 3.0, 6.0]).train()  # the best ones have no checkpoint
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-3")
    assert trainer.state.best_metric == 5.0
    for strategy in ("best", "no"):  # only the best is saved, or nothing: patience counts all evaluations
        options = {**BEST, "save_strategy": strategy, "load_best_model_at_end": False, "metric_for_best_model": "loss"}
        trainer = make_trainer(max_steps=6, average_last=0, early_stopping_patience=2, **options)
        scripted(trainer, monkeypatch, [5.0, 4.0, 6.0, 6.0, 6.0, 6.0]).train()
        assert (trainer.state.global_step, trainer.state.best_metric) == (4, 4.0)


def test_a_stop_makes_no_other_checkpoint_the_best(make_trainer, monkeypatch):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_save = control.should_training_stop = state.global_step == 2

    trainer = make_trainer(max_steps=6, average_last=0, **{**BEST, "save_steps": 3})
    trainer.add_callback(Stop())
    scripted(trainer, monkeypatch, [1.0, 9.0]).train()
    assert (trainer.state.global_step, trainer.state.best_model_checkpoint) == (2, None)


def test_tokens_are_counted_where_the_model_is(make_trainer, monkeypatch):
    class OnDevice(torch.Tensor):
        pass

    trainer = make_trainer(max_steps=1)
    prepare = trainer._prepare_inputs  # transformers moves a batch there; a stream's is still on the CPU
    trainer._prepare_inputs = lambda batch: {name: each.as_subclass(OnDevice) for name, each in prepare(batch).items()}
    seen = []
    monkeypatch.setattr(TokenCounter, "saw", lambda self, batch: seen.extend(map(type, batch.values())))
    trainer.train()
    assert {*seen} == {OnDevice}


def test_best_checkpoint_must_reach_all_floors(make_trainer, monkeypatch):
    options = {**BEST, "floors": {"old": 30.0, "older": 10.0}, "average_last": 0, "predict_with_generate": True}
    trainer = make_trainer(max_steps=5, early_stopping_patience=2, **options)
    validation = trainer.eval_dataset
    trainer.floor_datasets = {"old": "old", "older": "older"}
    # For each evaluation: validation, old, older. The third is too low on old, the fourth on older.
    found = iter([(5, 40, 20), (6, 30, 10), (9, 29.5, 20), (8, 40, 7), (1, 40, 20)])

    def scores(model, dataset, options):
        nonlocal now
        if dataset is validation:
            now = dict(zip((None, "old", "older"), next(found), strict=True))
        return {"bleu": now[None if dataset is validation else dataset]}

    now = {}
    monkeypatch.setattr(trainer, "_scores", scores)
    trainer.train()
    assert logged(trainer, "eval_floored_bleu") == [5, 6, -0.5, -3]  # then patience runs out
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    assert logged(trainer, "eval_older_bleu") == [20, 10, 20, 7]


def test_every_saved_model_includes_files_to_save(make_trainer, tmp_path):
    (tmp_path / "recipe.yaml").write_text("description: x\n")
    trainer = make_trainer(max_steps=1, files_to_save=(tmp_path / "recipe.yaml",), **EVALUATED)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    for folder in (tmp_path / "checkpoints" / "checkpoint-1", tmp_path / "saved"):
        names = {path.name for path in folder.iterdir()}
        assert names >= {"recipe.yaml", "config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}


def test_given_card_replaces_the_generated_one(make_trainer, tmp_path):
    def card(output, **options):
        return f"{output.name} {options}"

    trainer, readme = make_trainer(max_steps=1), tmp_path / "checkpoints" / "README.md"
    trainer.train()
    trainer.create_model_card(license="mit", model_name="Mine")
    assert "generated automatically" in readme.read_text(encoding="utf-8")
    trainer.card = card
    trainer.create_model_card(license="mit", model_name="Mine")
    told = {"title": "Mine", "repository": "checkpoints", "license": "mit"}
    assert readme.read_text(encoding="utf-8") == f"checkpoints {told}"


# transformers' own schedules, and the last rate of 12 updates, 4 of them warm-up, as a share of the highest.
DECAYS = (
    ({"lr_scheduler_type": "cosine"}, (1 + math.cos(7 / 8 * math.pi)) / 2),
    ({"lr_scheduler_type": "linear"}, 1 / 8),
    ({"lr_scheduler_type": "inverse_sqrt"}, (4 / 11) ** 0.5),
    ({"lr_scheduler_type": "warmup_stable_decay",
      "lr_scheduler_kwargs": {"num_decay_steps": 3, "decay_type": "linear"}}, 1 / 3),
)  # fmt: skip


@pytest.mark.parametrize(
    ("epochs", "evaluation", "accumulation", "more"),
    [
        *((epochs, evaluation, 1, {}) for epochs in (0.5, 1, 1.5) for evaluation in ("no", "steps")),
        (0.5, "no", 2, {}),
        *((epochs, "steps", 2, {**DROPPED, "augmentation": {"title": 0.4}}) for epochs in (0.5, 1.5)),
        (1, "steps", 1, {"ema_decay": 0.5, "cooldown_steps": 4}),
        (1, "steps", 2, {"r_drop_alpha": 2.0, "r_drop_start": 4}),
        (1.5, "steps", 2, {**DROPPED, "guided_alignment": 0.5}),
        (1.5, "steps", 1, {"optim": "muon", "weight_decay": 0.1}),
        *((1, "no", 1, {"noam_factor": None, "learning_rate": 1e-2, **decay}) for decay, _ in DECAYS),
    ],
)
def test_resumed_run_equals_unbroken_run_batch_for_batch(
    epochs, evaluation, accumulation, more, make_trainer, make_model, pairs_of_words, tmp_path
):
    # Dropout is on, so the random state must be restored as well; an epoch has several batches.
    text = {"train_dataset": pairs_of_words} if "bpe_dropout" in more else {}
    batches = len(make_trainer(**text).train_batches)
    save_at = int(epochs * batches / accumulation)
    options = {
        "max_steps": save_at + batches + 2,
        "gradient_accumulation_steps": accumulation,
        "save_strategy": "steps",
        "save_steps": save_at,
        "save_total_limit": 9,
        "eval_strategy": evaluation,
        "eval_steps": 2,
        **text,
        **more,
    }
    unbroken = make_trainer(make_model(dropout=0.3), **options)
    unbroken.train()
    if "noam_factor" in more:
        [last] = [share for decay, share in DECAYS if decay.items() <= more.items()]
        rates = logged(unbroken, "learning_rate")
        assert (len(rates), max(rates), rates[4]) == (12, 1e-2, 1e-2)
        assert rates[-1] == pytest.approx(last * 1e-2, rel=1e-9)
    resumed = make_trainer(make_model(seed=99, dropout=0.3), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / f"checkpoint-{save_at}"))
    assert batches >= 4
    for name in ("loss", "grad_norm", "learning_rate", "eval_loss"):
        assert logged(resumed, name) == logged(unbroken, name)
    expected = weights_of(unbroken)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(resumed).items())
    if "ema_decay" in more:
        assert all(torch.equal(weight, unbroken.ema.weights[name]) for name, weight in resumed.ema.weights.items())
        assert resumed.ema.updates == unbroken.ema.updates == options["max_steps"]


class Updates(TrainerCallback):
    """Records which updates were made."""

    def __init__(self):
        self.made = []

    def on_step_end(self, args, state, control, **kwargs):
        self.made.append(state.global_step)


def test_resume_true_needs_and_takes_last_checkpoint(make_trainer, tmp_path):
    with pytest.raises(ValueError, match="There is no checkpoint in"):
        make_trainer(max_steps=2).train(resume_from_checkpoint=True)
    make_trainer(max_steps=2, save_strategy="steps", save_steps=1, ema_decay=0.9).train(resume_from_checkpoint=False)
    updates = Updates()
    longer = make_trainer(max_steps=3, save_strategy="steps", save_steps=1, ema_decay=0.9, callbacks=[updates])
    longer.train(resume_from_checkpoint=True)
    assert updates.made == [3]


def test_early_stopping_patience_survives_a_resume(make_trainer, monkeypatch, tmp_path):
    options = {**BEST, "max_steps": 9, "early_stopping_patience": 3, "save_total_limit": 9}
    scripted(make_trainer(**options), monkeypatch, [1.0, 2.0, 2.0, 2.0]).train()
    resumed = scripted(make_trainer(**options), monkeypatch, [2.0] * 9)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-3"))
    assert resumed.state.global_step == 4


def test_resumed_run_saves_when_patience_runs_out(make_trainer, monkeypatch, tmp_path):
    options = {**BEST, "save_steps": 3, "max_steps": 9, "early_stopping_patience": 2, "save_total_limit": 9}
    checkpoint = str(tmp_path / "checkpoints" / "checkpoint-3")
    for resume, found in ((None, [5.0, 4.0, 3.0, 3.0, 3.0]), (checkpoint, [3.0, 3.0])):
        trainer = scripted(make_trainer(eval_on_start=resume is not None, **options), monkeypatch, found)
        trainer.train(resume_from_checkpoint=resume)  # it is not evaluated again at the start
        assert trainer.state.global_step == 5
        assert (tmp_path / "checkpoints" / "checkpoint-5").is_dir()
        shutil.rmtree(tmp_path / "checkpoints" / "checkpoint-5")


def slow_validation(trainer, clock, monkeypatch):
    """Makes every validation take 300 seconds."""

    def loss(model, dataset):
        clock.seconds += 300
        return 1.0

    monkeypatch.setattr(trainer, "_loss_per_token", loss)
    return trainer


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, [10, 10, 20, 20, 30, 30]), ({"logging_steps": 4, "max_steps": 4}, [10, 20, 30, 40, 40])],
)
def test_elapsed_seconds_exclude_validation(options, expected, clock, make_trainer, monkeypatch):
    trainer = make_trainer(callbacks=[Work(clock, 10)], eval_strategy="steps", eval_steps=1, **options)
    slow_validation(trainer, clock, monkeypatch).train()
    assert logged(trainer, "elapsed_seconds")[: len(expected)] == expected


@pytest.mark.parametrize("logging_steps", [1, 4])
def test_elapsed_seconds_continue_after_a_resume(logging_steps, clock, make_trainer, monkeypatch, tmp_path):
    options = {**EVALUATED, "save_steps": 2, "max_steps": 4, "logging_steps": logging_steps}
    slow_validation(make_trainer(callbacks=[Work(clock, 10)], **options), clock, monkeypatch).train()
    clock.seconds += 5000  # between the sessions
    resumed = slow_validation(make_trainer(callbacks=[Work(clock, 10)], **options), clock, monkeypatch)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-2"))
    seconds = [(record["step"], record["elapsed_seconds"]) for record in resumed.state.log_history]
    assert dict(seconds) == {1: 10, 2: 20, 3: 30, 4: 40}
    assert seconds == sorted(seconds)
