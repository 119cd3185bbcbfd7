"""What is kept of a run's log."""

import json
import math
from types import SimpleNamespace

from vanilla_transformer.training.progress import LogFile


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_diverged_loss_is_null_in_the_log(tmp_path):
    log = LogFile(tmp_path / "log.jsonl")
    state = SimpleNamespace(is_world_process_zero=True, log_history=[{"loss": math.inf, "step": 1}])
    log.on_train_begin(None, state, None)
    state.log_history.append({"loss": math.nan, "eval_bleu": 1.5, "step": 2})
    log.on_log(None, state, None)
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [strict(line) for line in lines] == [{"loss": None, "step": 1}, {"loss": None, "eval_bleu": 1.5, "step": 2}]
