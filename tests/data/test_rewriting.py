"""Rewritten windows keep every pair, in as many batches of similar lengths, and can start anywhere."""

from accelerate.data_loader import skip_first_batches
from datasets import Dataset
from torch.utils.data import DataLoader

from vanilla_transformer.data.augmentation import Augmentation
from vanilla_transformer.data.batching import TokenBatchSampler
from vanilla_transformer.data.rewriting import GivenPairs, RewrittenBatches, rewritten_windows
from vanilla_transformer.data.subword_dropout import BPEDropout
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer


TEXTS = ["the cat's whiskers, 2nd of   three", "zwei kätzchen (klein) schlafen\tüber nacht", "bananas  \n can ban"] * 4


def test_rewritten_windows_keep_pairs_and_number_of_batches():
    tokenizer = learn_tokenizer(TEXTS, TokenizerSettings(vocab_size=310))
    texts = [tokenizer((f"{text} " * times).strip()).input_ids for text in TEXTS for times in range(1, 9)]
    pairs = [{"input_ids": ids, "labels": ids} for ids in texts]
    budget = max(map(len, texts)) * 3
    batches = [[pairs[i] for i in batch] for batch in TokenBatchSampler(*[list(map(len, texts))] * 2, budget)] * 3
    dropout, upper, tokens = BPEDropout(tokenizer, 0.3), Augmentation(tokenizer, {"upper": 0.5}), 40_000

    def texts_of(batches):
        return sorted(tokenizer.decode(pair["labels"]).lower() for batch in batches for pair in batch)

    def cells(batches):
        return sum(len(batch) * max(len(pair["labels"]) for pair in batch) for batch in batches)

    for rewriters in ([dropout], [upper], [upper, dropout]):
        found = list(rewritten_windows(rewriters, batches, (7,), tokens))
        assert len(found) == len(batches) > 8
        for start in range(0, len(batches), 4):  # each window has four batches
            assert texts_of(found[start : start + 4]) == texts_of(batches[start : start + 4])
        in_one_window = list(rewritten_windows(rewriters, batches, (7,), max_tokens=budget))
        left_as_they_are = batches
        for rewrite in rewriters:
            left_as_they_are = [rewrite(batch, (7, place)) for place, batch in enumerate(left_as_they_are)]
        assert cells(in_one_window) < cells(left_as_they_are)
        for start in range(0, len(batches) + 1, 5):  # anywhere in a window, as after an interruption
            assert list(rewritten_windows(rewriters, batches, (7,), tokens, start)) == found[start:]
        assert list(rewritten_windows(rewriters, batches, (8,), tokens)) != found


def test_batches_that_a_resumed_run_skips_are_not_rewritten():
    class Reversing:
        def __init__(self):
            self.keys = []

        def __call__(self, pairs, key):
            self.keys.append(key)
            return [{name: ids[::-1] for name, ids in pair.items()} for pair in pairs]

    ids = [[*range(4, 4 + 3 + number % 5), 2] for number in range(60)]
    pairs = Dataset.from_dict({"input_ids": ids, "labels": ids})
    lengths = [len(each) for each in ids]
    reversing, sampler = Reversing(), TokenBatchSampler(lengths, lengths, 8)
    sampler.max_tokens = 20_000  # windows of six batches
    for workers in (0, 2):
        batches = RewrittenBatches(sampler, pairs, [reversing], seed=3, later=not workers)
        loader = DataLoader(GivenPairs(len(pairs)), batch_sampler=batches, collate_fn=list, num_workers=workers)
        whole = list(loader)
        assert len(whole) == len(batches) > 20
        assert sorted(pair["labels"] for batch in whole for pair in batch) == sorted(each[::-1] for each in ids)
        reversing.keys.clear()
        assert list(skip_first_batches(loader, 15)) == whole[15:]
        assert reversing.keys[0] == (3, 0, 0, 0 if workers else 2)  # without workers, the third window
