#!/usr/bin/env bash
# From nothing to a trained translator: installs into .venv, trains on the built-in phrasebook (about two minutes on two
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
echo
for sentence in \
    "The old teacher is reading a good book." \
    "Does your little brother want to sell the red car?" \
    "On Monday Anna gets up at half past six." \
    "$@"; do
    printf '%s\n' "$sentence"
done | tee /tmp/quickstart.$$ | .venv/bin/vanilla-transformer translate --model "$run" | paste -d '\n' /tmp/quickstart.$$ - |
    sed 'n;s/^/    /'
rm -f /tmp/quickstart.$$
cat <<MESSAGE

Where everything lies: $run
    learning_curve.png   loss and BLEU while it learned
    attention.png        which source word each German word looked at
    scores.json          scores with their signatures
    translations/        what it made of the validation and test sentences
    averaged/            the model: AutoModelForSeq2SeqLM.from_pretrained("$run/averaged") after import vanilla_transformer
What to try next:
    .venv/bin/vanilla-transformer translate --model $run "We do not know if the train leaves at ten o'clock."
    .venv/bin/vanilla-transformer recipes
    .venv/bin/vanilla-transformer train --help
MESSAGE
