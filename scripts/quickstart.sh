#!/usr/bin/env bash
# From nothing to a trained translator: installs into .venv, trains on the built-in phrasebook (a minute or two on two CPU
# cores), scores sentences it has never seen, and translates. Arguments are English sentences to translate as well:
#   scripts/quickstart.sh "My sister is looking for her red book."
# It downloads Python packages only, no text and no model: torch, transformers and what they need, some 60 packages.
# With torch for CPUs they take 1.5 GB of disk; pip's torch for Linux brings NVIDIA's libraries, several GB more.
set -euo pipefail
to_install="some 60 packages, torch and transformers the largest: 1.5 GB, and several GB more where torch brings NVIDIA's \
libraries. That takes one to ten minutes, by the network; the training after it one or two"
. "$(dirname "$0")/environment.sh"
run=runs/phrasebook
if [ -e "$run/scores.json" ]; then
    echo "Using the translator in $run (remove that folder to train it again)." >&2
else
    .venv/bin/vanilla-transformer train phrasebook --output "$run" --resume
fi
sentences=( # these three are not training sentences: the phrasebook keeps them for its test set
    "If it rains, the children have to read their new books."
    "Yesterday the young teacher did not turn on the old lamp."
    "The boys whom my friendly mother is listening to are sad."
    "$@"
)
translations=$(.venv/bin/vanilla-transformer translate --model "$run" -- "${sentences[@]}")
echo
paste -d '\n' <(printf '%s\n' "${sentences[@]//$'\n'/ }") <(printf '%s\n' "$translations") | sed 'n;s/^/    /'
words=$(gzip -cd "$run/tokenizer/known_words.txt.gz" 2>/dev/null | cut -f1 | tr '[:upper:]' '[:lower:]' | sort -u | grep -c '[[:alpha:]]' || true)
cat <<MESSAGE

The language of this phrasebook has $words English words; \`translate\` warns of others.
Where everything lies: $run
    learning_curve.png   loss and BLEU while it learned
    attention.png        which source word each German word looked at
    scores.json          scores with their signatures
    translations/        what it made of the validation and test sentences
    config.json, ...     the model: AutoModelForSeq2SeqLM.from_pretrained takes the folder after import vanilla_transformer
What to try next:
    .venv/bin/vanilla-transformer translate --model $run "She is asking whether they will find the keys."
    .venv/bin/vanilla-transformer recipes
    .venv/bin/vanilla-transformer train --help
MESSAGE
