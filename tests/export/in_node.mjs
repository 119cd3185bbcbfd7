// Runs the page's code in Node.js: reads a JSON request from standard input and writes a JSON reply.

import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const { page, folder, tokenizers, texts, beams } = JSON.parse(await readFile("/dev/stdin", "utf8"));
const load = (name) => import(pathToFileURL(`${page}/${name}`));

async function tokenised() {
  const { Tokenizer } = await load("tokenizer.js");
  return tokenizers.map((saved) => {
    const tokenizer = new Tokenizer(JSON.parse(saved));
    return texts.map((text) => {
      const ids = tokenizer.encode(text);
      return [ids, tokenizer.decode(ids), tokenizer.labels(ids)];
    });
  });
}

async function translated() {
  const [{ runtime }, { Translator }] = [await load("runtime.js"), await load("translator.js")];
  const read = async (name) => new Uint8Array(await readFile(`${folder}/${name}`));
  const translator = await Translator.load(await runtime(read), read);
  const found = [];
  for (const text of texts) {
    const best = await translator.translate(text, { beams, lengthPenalty: beams && 0.6 });
    const { source, target, score } = best;
    const attentions = await translator.attentions(best);
    for (const kind in attentions) {
      attentions[kind] = attentions[kind].map(({ dims, data }) => ({ dims, data: Array.from(data) }));
    }
    found.push({ text: best.text, source, target, score, attentions });
  }
  return found;
}

process.stdout.write(JSON.stringify(await (tokenizers ? tokenised() : translated())));
