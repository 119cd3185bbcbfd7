"""Kills training at random moments and checks that, resumed, it ends as the run that nobody killed, bit for bit.

    python scripts/faults/kills.py --kills 50 --json kills.json

A run of a few seconds is started as `vanilla-transformer train ... --resume` and gets a SIGKILL at a moment drawn
uniformly from the whole life of the unbroken run, from its first import to its last picture; then it is started again,
and so on until it has been trained; in the end it is compared with the unbroken run. Then the next run begins, until
there were enough kills. Lives and moments are seconds of processor time, which hardly depend on what else the machine
has to do. Few of them fall into the moments in which a checkpoint is saved or an old one removed: with
`--around-saves` each kill waits for such a moment. (How many it then hits is in the figures.)
The exit status is 0 if all runs were equal to the unbroken one.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TextIO

import psutil
import torch

from vanilla_transformer.run.folder import RunFolder


ROOT = Path(__file__).resolve().parents[2]
# A model of seconds.
SMALL = {
    "data.train": "phrasebook:train:300",
    "data.validation": "phrasebook:validation:4",
    "data.test.phrasebook": "phrasebook:test:4",
    "tokenizer.vocab_size": 300,
    **{f"model.{name}": 32 for name in ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")},
    **{f"model.{name}": 1 for name in ("encoder_layers", "decoder_layers")},
    **{f"model.{side}_attention_heads": 2 for side in ("encoder", "decoder")},
}
# A checkpoint every two updates, of which only two are kept: much is written and removed.
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
MODELS = ("averaged/model.safetensors", "best/model.safetensors", "ema/model.safetensors")


def start(folder: Path, messages: TextIO) -> subprocess.Popen:
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "vanilla_transformer.cli", "train", "phrasebook", "--output", folder, "--resume"]
    return subprocess.Popen(
        [*command, *settings],
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=messages,
    )


def run(folder: Path, moment: float | None = None, around_save: bool = False) -> tuple[bool, str, float]:
    """Starts or resumes a run and kills it at a moment; whether it was killed, its messages and its life."""
    before = unfinished(folder)
    messages = folder.with_suffix(".messages")
    with messages.open("w", encoding="utf-8") as file:
        process = start(folder, file)
        life = 0.0
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):  # it has just ended
                times = psutil.Process(process.pid).cpu_times()
                life = times.user + times.system or life
            if moment is not None and life >= moment and not (around_save and unfinished(folder) <= before):
                # The system counts in steps of 0.01 s, and a save with the removal after it takes some of them.
                time.sleep(random.random() * (0.05 if around_save else 0.02))
                process.kill()
                break
            time.sleep(0.0005 if around_save else 0.002)
        process.wait()
    text = messages.read_text(encoding="utf-8")
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"{folder} could not go on:\n{text}")
    return process.returncode != 0, text, life


def unfinished(folder: Path) -> set[str]:
    """The checkpoints without the file that is written last."""
    found = (folder / "checkpoints").glob("checkpoint-*")
    return {path.name for path in found if not (path / "digests.json").exists()}


def state_of(folder: Path, since: float) -> dict:
    """What a kill left of a session that began at that time: whole checkpoints, and what it was doing."""
    run = RunFolder(folder)
    whole = run.good_checkpoints()
    damaged = [path for path in run.checkpoint_folders() if path not in whole]
    # Saving adds the newest folder and removing takes from an old one, whichever file comes first.
    newest = max((int(path.name.split("-")[1]) for path in (*whole, *damaged)), default=None)
    names = [{file.name for file in path.iterdir()} for path in whole]
    shortened = [path for path, has in zip(whole, names, strict=True) if has != max(names, key=len)]
    # A session that was killed before it could clear up leaves those of the one before as they were.
    damaged, shortened = ([path for path in paths if path.stat().st_mtime > since] for paths in (damaged, shortened))
    if run.finished.exists():
        phase = "averaging, scoring"
    elif any(path.name == f"checkpoint-{newest}" for path in damaged):
        phase = "saving"
    elif damaged or shortened:
        phase = "removing"
    else:  # the log is written anew when training begins
        phase = "training" if run.log.exists() and run.log.stat().st_mtime > since else "starting"
    return {"whole": [path.name for path in whole], "while": phase}


def result_of(folder: Path) -> dict:
    """All that must be the same in the end."""
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


def check_restart(messages: str, whole: list[str], killed: bool) -> int:
    """The update that a session went on from, the last whole checkpoint's or 0; ends everything if it did not."""
    expected = int(whole[-1].split("-")[1]) if whole else 0
    found = re.search(r"^Going on from .*checkpoint-(\d+)\.$", messages, flags=re.MULTILINE)
    said = int(found[1]) if found else None
    silent = killed or expected in (0, SETTINGS["training.max_steps"])  # killed before it spoke, or nothing to go on
    if said != expected and not (said is None and silent):
        sys.exit(f"It had to go on from update {expected}, but:\n{messages}")
    return expected


def crash(
    folder: Path, kills: int, life: float, moments: random.Random, around_saves: bool
) -> tuple[list[dict], list[int]]:
    """Kills a run at most so many times, until it has been trained; the kills, and from where each restart went on."""
    records, restarts = [], []
    while True:
        trained = (folder / "finished.json").exists()  # killed over and over it would only be scored again and again
        seconds = moments.uniform(0, life) if len(records) < kills and not trained else None
        before = records[-1]["whole"] if records else []
        started = time.time()
        killed, messages, _ = run(folder, seconds, around_saves)
        if records:
            restarts.append(check_restart(messages, before, killed))
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    moments, kills, runs = random.Random(options.seed), [], []
    with tempfile.TemporaryDirectory() as place:
        _, _, life = run(Path(place, "unbroken"))
        expected = result_of(Path(place, "unbroken"))
        print(f"The unbroken run takes {life:.1f} s.", file=sys.stderr, flush=True)
        while len(kills) < options.kills:
            folder = Path(place, f"run-{len(runs) + 1}")
            its_kills, restarts = crash(folder, options.kills - len(kills), life, moments, options.around_saves)
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
