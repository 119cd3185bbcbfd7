#!/usr/bin/env bash
# From nothing to a trained translator: installs into .venv, trains on the built-in phrasebook (three to five minutes on two
# CPU cores), scores sentences it has never seen, and translates. Arguments are English sentences to translate as well:
#   scripts/quickstart.sh "My sister is looking for her red book."
set -euo pipefail
. "$(dirname "$0")/environment.sh"
run=runs/phrasebook
if [ -e "$run/scores.json" ]; then
    echo "Using the translator in $run (remove that folder to train it again)." >&2
else
    .venv/bin/vanilla-transformer train phrasebook --output "$run" --resume
fi
sentences=( # these three are no training sentences: the phrasebook keeps them for its test set
    "On Monday the bus to Munich leaves at ten past one."
    "We want to know whether the famous student will lose her old knife."
    "Paul is listening to the boys who are allowed to turn on the expensive radio."
    "$@"
)
translations=$(.venv/bin/vanilla-transformer translate --model "$run" -- "${sentences[@]}")
echo
paste -d '\n' <(printf '%s\n' "${sentences[@]//$'\n'/ }") <(printf '%s\n' "$translations") | sed 'n;s/^/    /'
cat <<MESSAGE

Where everything lies: $run
    learning_curve.png   loss and BLEU while it learned
    attention.png        which source word each German word looked at
    scores.json          scores with their signatures
    translations/        what it made of the validation and test sentences
    averaged/            the model, for AutoModelForSeq2SeqLM.from_pretrained after import vanilla_transformer
What to try next:
    .venv/bin/vanilla-transformer translate --model $run "Nobody knows whether they will find the boxes."
    .venv/bin/vanilla-transformer recipes
    .venv/bin/vanilla-transformer train --help
MESSAGE
