"""Kills training at random moments and checks that, resumed, it ends as an unbroken run does, bit for bit.

    python scripts/faults/kills.py --kills 50 --json kills.json
    python scripts/faults/kills.py --kills 50 --text stream --processes 2

A run of a few seconds is started as `vanilla-transformer train ... --resume` and gets a SIGKILL at a moment drawn
uniformly from the whole life of the unbroken run, from its first import to its last picture; then it is started again,
and so on until it has been trained; in the end it is compared with the unbroken run. Then the next run begins, until
there have been enough kills. Lives and moments are seconds of processor time, which hardly depend on what else the
machine is doing. Few kills fall into the moments when a checkpoint is saved or an old one removed: with
`--around-saves` each kill waits for such a moment. (The figures show how many it hits.)

Everything that draws random numbers or keeps a state is on: every kind of dropout, LayerDrop, R-Drop, guided alignment,
BPE-dropout, augmentation, the moving average of the weights, the cooldown, accumulated batches; `--plain` leaves out
the regularisers. The text is a mixture of two corpora with weights and a tag, one of them read in pieces; or one corpus
in memory or as a stream. With two processes, started by torchrun, a kill ends all processes at once, or only one of
them. The exit status is 0 if all runs were equal to the unbroken one.
"""

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import psutil
import pyarrow
import torch
from pyarrow import parquet

from vanilla_transformer.data.phrasebook import phrasebook
from vanilla_transformer.run.folder import RunFolder


ROOT = Path(__file__).resolve().parents[2]
# A model that trains in seconds.
SMALL = {
    "data.train": "phrasebook:train:300",
    "data.validation": "phrasebook:validation:4",
    "data.test.phrasebook": "phrasebook:test:4",
    "tokenizer.vocab_size": 300,
    **{f"model.{name}": 32 for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")},
    **{f"model.{name}": 1 for name in ("encoder_layers", "decoder_layers")},
    **{f"model.{side}_attention_heads": 2 for side in ("encoder", "decoder")},
}
# A checkpoint every two updates, with only two kept: much is written and removed.
SETTINGS = {
    **SMALL,
    "model.dropout": 0.1,
    "training.max_steps": 160,
    "training.warmup_steps": 40,
    "training.max_tokens": 256,
    "training.eval_steps": 40,
    "training.save_steps": 2,
    "training.load_best_model_at_end": "false",
    "training.logging_steps": 1,
    "training.average_last": 2,
    "training.ema_decay": 0.9,
    "training.cooldown_steps": 60,
    "training.save_total_limit": 2,
    "training.predict_with_generate": "false",
    "decoding.num_beams": 1,
}
REGULARISED = {
    "training.max_steps": 60,
    "training.warmup_steps": 20,
    "training.cooldown_steps": 30,
    "training.eval_steps": 20,
    **{f"model.{side}_layers": 2 for side in ("encoder", "decoder")},  # so that one can be skipped
    **{f"model.{side}_layerdrop": 0.3 for side in ("encoder", "decoder")},
    **{f"model.{name}_dropout": 0.1 for name in ("attention", "activation", "source_word", "target_word")},
    "training.r_drop_alpha": 5,
    "training.guided_alignment": 0.3,
    "training.aligned_embeddings": 0.8,
    "training.optim": "muon",
    "training.bpe_dropout": 0.1,
    "training.augmentation": "{upper: 0.1, typos: 0.2, noise: 0.1}",
    "training.gradient_accumulation_steps": 2,
}
# The second corpus is written to the folder of the runs.
MIXTURE = "[{corpus: phrasebook:train:300}, {corpus: synthetic.parquet, weight: 0.5, tag: <bt>}]"
STREAM = {"data.stream": "true", "data.buffer_pairs": 100}
TEXTS = {"mixture": {"data.train": MIXTURE, **STREAM}, "memory": {}, "stream": STREAM}
MODELS = ("averaged/model.safetensors", "best/model.safetensors", "ema/model.safetensors")


@dataclass
class Task:
    """The run to train, and how to kill it."""

    settings: dict
    processes: int
    around_saves: bool

    def start(self, folder: Path, messages: TextIO) -> subprocess.Popen:
        launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(self.processes), "-m"]
        command = [sys.executable, "-m", *(launcher if self.processes > 1 else []), "vanilla_transformer"]
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        return subprocess.Popen(
            [*command, "train", "phrasebook", "--output", folder, "--resume", *settings],
            cwd=ROOT,
            env={**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=messages,
        )

    def run(self, folder: Path, moment: float | None = None) -> tuple[bool, str, float]:
        """Starts or resumes a run and kills it at `moment`; returns whether it was killed, its messages and life."""
        before, killed = unfinished(folder), False
        messages = folder.with_suffix(".messages")
        with messages.open("w", encoding="utf-8") as file:
            process = self.start(folder, file)
            family, life = [], 0.0
            while process.poll() is None:
                if len(family) < (3 if self.processes == 2 else 1):  # torchrun is one more process
                    family = family_of(process)
                life = max(life, sum(map(processor_seconds, family)))
                late = moment is not None and life >= moment
                if late and not killed and not (self.around_saves and unfinished(folder) <= before):
                    # The system counts in steps of 0.01 s, and a save with the removal after it takes several.
                    time.sleep(random.random() * (0.05 if self.around_saves else 0.02))
                    kill(process)
                    killed = True  # any remaining processes end by themselves
                time.sleep(0.0005 if self.around_saves else 0.005)
        text = messages.read_text(encoding="utf-8")
        if process.returncode != 0 and not killed:
            sys.exit(f"{folder} could not go on:\n{text}")
        return process.returncode != 0, text, life


def family_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The process and its descendants."""
    with contextlib.suppress(psutil.Error):  # it has just ended
        first = psutil.Process(process.pid)
        return [first, *first.children(recursive=True)]
    return []


def processor_seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def kill(process: subprocess.Popen) -> None:
    """Kills the process and its descendants, or by chance only one of the latter."""
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(process.pid)
        first.suspend()  # it might start another one meanwhile
        started = first.children(recursive=True)
        victims = [random.choice(started)] if started and random.random() < 0.5 else [first, *started]
        for victim in victims:
            with contextlib.suppress(psutil.Error):
                victim.kill()
        first.resume()


def unfinished(folder: Path) -> set[str]:
    """The checkpoints without the file that is written last."""
    found = (folder / "checkpoints").glob("checkpoint-*")
    return {path.name for path in found if not (path / "digests.json").exists()}


def state_of(folder: Path, since: float) -> dict:
    """The state after a kill of a session begun at `since`: whole checkpoints, and what it was doing."""
    run = RunFolder(folder)
    whole = run.good_checkpoints()
    damaged = [path for path in run.checkpoint_folders() if path not in whole]
    # Saving adds to the newest folder and removing takes from an old one, whichever file comes first.
    newest = max((int(path.name.split("-")[1]) for path in (*whole, *damaged)), default=None)
    names = [{file.name for file in path.iterdir()} for path in whole]
    shortened = [path for path, has in zip(whole, names, strict=True) if has != max(names, key=len)]
    # A session that was killed before it could clean up leaves those of the previous session as they were.
    damaged, shortened = ([path for path in paths if path.stat().st_mtime > since] for paths in (damaged, shortened))
    if run.finished.exists():
        phase = "averaging, scoring"
    elif any(path.name == f"checkpoint-{newest}" for path in damaged):
        phase = "saving"
    elif damaged or shortened:
        phase = "removing"
    else:  # the log is rewritten when training begins
        phase = "training" if run.log.exists() and run.log.stat().st_mtime > since else "starting"
    return {"whole": [path.name for path in whole], "while": phase}


def result_of(folder: Path) -> dict:
    """Everything that must be the same in the end."""
    run = RunFolder(folder)
    last = run.good_checkpoints()[-1]
    optimizer = torch.load(last / "optimizer.pt", weights_only=True)["state"]
    times = ("elapsed_seconds", "eval_runtime", "target_tokens_per_second")
    training = [record for record in run.log_records() if "train_runtime" not in record]
    return {
        **{name: (folder / name).read_bytes() for name in MODELS},
        "last weights": (last / "model.safetensors").read_bytes(),
        "optimizer": {n: {k: v.tolist() for k, v in state.items()} for n, state in optimizer.items()},
        "checkpoints": [path.name for path in run.good_checkpoints()],
        "log": [{key: value for key, value in record.items() if key not in times} for record in training],
        "scores": run.scores.read_text(encoding="utf-8"),
        "files": sorted(path.name for path in folder.iterdir()),
    }


def check_restart(messages: str, whole: list[str], killed: bool, max_steps: int) -> int:
    """The update that a session resumed from, the last whole checkpoint's or 0; exits if it was another."""
    expected = int(whole[-1].split("-")[1]) if whole else 0
    found = re.search(r"^Going on from .*checkpoint-(\d+)\.$", messages, flags=re.MULTILINE)
    said = int(found[1]) if found else None
    silent = killed or expected in (0, max_steps)  # killed before it spoke, or nothing to resume
    if said != expected and not (said is None and silent):
        sys.exit(f"It had to go on from update {expected}, but:\n{messages}")
    return expected


def crash(task: Task, folder: Path, kills: int, life: float, moments: random.Random) -> tuple[list[dict], list[int]]:
    """Kills a run at most `kills` times, until it is trained; returns the kills, and where each restart resumed."""
    records, restarts = [], []
    while True:
        trained = (folder / "finished.json").exists()  # more kills would only repeat its scoring
        seconds = moments.uniform(0, life) if len(records) < kills and not trained else None
        before = records[-1]["whole"] if records else []
        started = time.time()
        killed, messages, _ = task.run(folder, seconds)
        if records:
            restarts.append(check_restart(messages, before, killed, task.settings["training.max_steps"]))
        if not killed:
            return records, restarts
        left = state_of(folder, started)
        if before and not left["whole"]:
            sys.exit(f"{folder} had {before[-1]} before it was killed, and has no whole checkpoint now.")
        records.append({"run": folder.name, "seconds": round(seconds, 2), **left})
        print(f"{folder.name}: killed after {seconds:5.1f} s, while {left['while']}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="decides when to kill")
    parser.add_argument("--around-saves", action="store_true", help="kill only while or after one is saved")
    parser.add_argument("--plain", action="store_true", help="leave out the regularisers")
    parser.add_argument("--text", choices=TEXTS, default="mixture")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    settings = SETTINGS | ({} if options.plain else REGULARISED) | TEXTS[options.text]
    moments, kills, runs = random.Random(options.seed), [], []
    with tempfile.TemporaryDirectory() as place:
        settings |= {"data.folder": place}
        rows = pyarrow.Table.from_pylist(list(islice(phrasebook("train"), 400, 500)))
        parquet.write_table(rows, Path(place, "synthetic.parquet"), row_group_size=20)
        task = Task(settings, options.processes, options.around_saves)
        _, _, life = task.run(Path(place, "unbroken"))
        expected = result_of(Path(place, "unbroken"))
        print(f"The unbroken run takes {life:.1f} s.", file=sys.stderr, flush=True)
        while len(kills) < options.kills:
            folder = Path(place, f"run-{len(runs) + 1}")
            its_kills, restarts = crash(task, folder, options.kills - len(kills), life, moments)
            kills += its_kills
            found = result_of(folder)
            differs = [name for name in expected if found[name] != expected[name]]
            runs.append({"run": folder.name, "kills": len(its_kills), "restarts_from": restarts, "differs": differs})
            if differs:
                print(f"{folder.name} differs in {', '.join(differs)}", file=sys.stderr, flush=True)
    figures = {
        "kills": len(kills),
        "kills_while": dict(Counter(kill["while"] for kill in kills)),
        "runs": len(runs),
        "equal_runs": sum(not r["differs"] for r in runs),
        "unbroken_seconds": round(life, 1),
        "seed": options.seed,
        "only_around_saves": options.around_saves,
        "plain": options.plain,
        "text": options.text,
        "processes": options.processes,
    }
    print("| run | kills | restarts from update | equal to the unbroken run |\n| --- | --- | --- | --- |")
    for r in runs:
        restarts = ", ".join(map(str, r["restarts_from"])) or "–"
        equal = f"no: {', '.join(r['differs'])}" if r["differs"] else "yes"
        print(f"| {r['run']} | {r['kills']} | {restarts} | {equal} |")
    print("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps({**figures, "each_run": runs, "each_kill": kills}, indent=2) + "\n")
    return 0 if figures["equal_runs"] == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
