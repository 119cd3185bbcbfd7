// Translates with encoder.onnx and decoder.onnx: greedy search, and the paper's beam search (section 6.1).

import { Tokenizer } from "./tokenizer.js";

const NEW_TOKENS = 20; // transformers' limit where no other is set
const MOST_TOKENS = 512; // of a source: attention grows with the square, and a page has little memory
const MOMENT = 30; // milliseconds after which the page may do something else

export class Translator {
  /**
   * @param {object} ort onnxruntime-web, ready to make sessions
   * @param {(name: string) => Promise<Uint8Array>} read the bytes of a file of the folder
   */
  static async load(ort, read) {
    const json = async (name) => JSON.parse(new TextDecoder().decode(await read(`model/${name}`)));
    const session = async (name) => ort.InferenceSession.create(await read(`model/${name}`));
    const [tokenizer, config, generation] = await Promise.all(
      ["tokenizer.json", "config.json", "generation_config.json"].map(json),
    );
    return new Translator(
      ort, new Tokenizer(tokenizer), config, generation, await session("encoder.onnx"), await session("decoder.onnx"),
    );
  }

  constructor(ort, tokenizer, config, generation, encoder, decoder) {
    Object.assign(this, { ort, tokenizer, config, generation, encoder, decoder });
    const of = (name) => generation[name] ?? config[name]; // the generation config comes first
    this.start = of("decoder_start_token_id");
    this.ends = new Set([of("eos_token_id")].flat());
    const bad = (of("bad_words_ids") ?? []).filter((ids) => ids.length === 1).flat();
    this.bad = bad.filter((id) => !this.ends.has(id)); // transformers forbids no end
    this.past = decoder.outputNames.filter((name) => name.startsWith("present."));
  }

  /**
   * The best translation that the search finds. Throws an Error if the text has too many tokens.
   *
   * @param {string} text one line, without blanks around it
   * @param {{beams?: number, lengthPenalty?: number, signal?: AbortSignal}} options those of the model where not given
   * @returns {Promise<{text: string, source: number[], target: number[], score: ?number, encoded: object}>}
   *     the translation, the ids of both with their ends, and what the encoder returned, for `attentions`
   */
  async translate(text, { beams, lengthPenalty, signal } = {}) {
    beams ??= this.generation.num_beams ?? 1;
    lengthPenalty ??= this.generation.length_penalty ?? 1;
    const source = this.tokenizer.encode(text);
    const isLearned = this.config.position_embedding_type === "learned";
    const most = Math.min(MOST_TOKENS, isLearned ? this.config.max_position_embeddings : MOST_TOKENS);
    if (source.length > most) throw new Error(`A line has ${source.length} tokens, and may have ${most}: shorten it.`);
    const encoded = await this.encode(source);
    const steps = new Steps(this, encoded, source.length, signal);
    const limit = this.longest(source.length);
    const [target, score] =
      beams === 1 ? [await greedySearch(steps, limit), null] : await beamSearch(steps, limit, beams, lengthPenalty);
    return { text: this.tokenizer.decode(target), source, target, score, encoded };
  }

  /** Everything that the encoder returns for the ids of a source. */
  async encode(source) {
    return this.encoder.run({ input_ids: this.integers([source]), attention_mask: this.ones(1, source.length) });
  }

  /**
   * What every head looks at, from one more pass of the decoder over the whole translation.
   *
   * @returns {Promise<{encoder: object[], decoder: object[], cross: object[]}>} a tensor for each layer, with `data`
   *     and `dims` (1, heads, queries, keys); the decoder's queries are its start token and all of `target` but the last
   */
  async attentions({ source, target, encoded }) {
    const read = [this.start, ...target.slice(0, -1)];
    const layers = (names, kind) => names.filter((name) => name.startsWith(`${kind}_attentions.`));
    const names = ["decoder", "cross"].flatMap((kind) => layers(this.decoder.outputNames, kind));
    const feeds = { input_ids: this.integers([read]), attention_mask: this.ones(1, source.length) };
    for (const name of this.past) {
      const of = encoded[name.replace("present", "encoder")];
      feeds[name.replace("present", "encoder")] = of;
      feeds[name.replace("present", "past")] = this.empty(of);
    }
    const found = await this.decoder.run(feeds, names);
    return {
      encoder: layers(this.encoder.outputNames, "encoder").map((name) => encoded[name]),
      decoder: layers(names, "decoder").map((name) => found[name]),
      cross: layers(names, "cross").map((name) => found[name]),
    };
  }

  /** Tokens that the translation of so many source tokens may have, as in Python's `Decoding.longest`. */
  longest(source) {
    const { max_new_tokens: most, max_length: all, max_length_offset: offset } = this.generation;
    const forced = this.generation.forced_eos_token_id == null ? 0 : 1;
    const limits = [];
    if (most != null) limits.push(most - forced);
    else {
      if (all != null) limits.push(all - 1 - forced);
      if (offset != null) limits.push(source + offset);
      if (limits.length === 0) limits.push(NEW_TOKENS - forced);
    }
    if (this.config.position_embedding_type === "learned") {
      limits.push(this.config.max_position_embeddings - (most == null ? 1 : 0) - forced);
    }
    return Math.max(Math.min(...limits), 1);
  }

  /** The tokens that may not come next: `no_repeat_ngram_size` tokens would then come in the same order twice. */
  repeating(target) {
    const size = this.generation.no_repeat_ngram_size ?? 0;
    const tokens = [this.start, ...target];
    const last = tokens.slice(tokens.length - size + 1);
    const found = [];
    for (let begin = 0; size > 0 && begin + size <= tokens.length; begin++) {
      if (last.every((token, place) => token === tokens[begin + place])) found.push(tokens[begin + size - 1]);
    }
    return found;
  }

  integers(rows) {
    return new this.ort.Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);
  }

  ones(rows, length) {
    return new this.ort.Tensor("int64", new BigInt64Array(rows * length).fill(1n), [rows, length]);
  }

  /** Keys or values of no positions, as wide as these. */
  empty({ dims }) {
    return new this.ort.Tensor("float32", new Float32Array(0), [dims[0], dims[1], 0, dims[3]]);
  }

  /** Keys or values (rows, heads, length, dim) of the rows chosen, in that order. */
  rows(tensor, chosen) {
    const size = tensor.size / tensor.dims[0];
    const data = new Float32Array(chosen.length * size);
    chosen.forEach((row, place) => data.set(tensor.data.subarray(row * size, (row + 1) * size), place * size));
    return new this.ort.Tensor("float32", data, [chosen.length, ...tensor.dims.slice(1)]);
  }
}

/** The decoder for one more token of every hypothesis at a time. */
class Steps {
  constructor(translator, encoded, sourceLength, signal) {
    Object.assign(this, { translator, sourceLength, signal, rowCount: 0, feeds: {}, rested: performance.now() });
    this.encoded = translator.past.map((name) => name.replace("present", "encoder")).map((name) => [name, encoded[name]]);
    for (const [name, tensor] of this.encoded) this.feeds[name.replace("encoder", "past")] = translator.empty(tensor);
  }

  /**
   * Scores of what follows tokens: float32 (hypotheses * vocabulary).
   *
   * @param {number[]} tokens the newest of each hypothesis
   * @param {number[]} parents the hypotheses of the step before that these continue
   */
  async scores(tokens, parents) {
    const { translator, feeds } = this;
    if (performance.now() - this.rested > MOMENT) {
      await new Promise((resolve) => setTimeout(resolve));
      this.rested = performance.now();
    }
    this.signal?.throwIfAborted();
    if (this.rowCount > 0 && (tokens.length !== this.rowCount || parents.some((parent, i) => parent !== i))) {
      for (const name of translator.past.map((each) => each.replace("present", "past"))) {
        feeds[name] = translator.rows(feeds[name], parents);
      }
    }
    if (tokens.length !== this.rowCount) {
      this.rowCount = tokens.length;
      for (const [name, tensor] of this.encoded) feeds[name] = translator.rows(tensor, tokens.map(() => 0));
      feeds.attention_mask = translator.ones(tokens.length, this.sourceLength);
    }
    feeds.input_ids = translator.integers(tokens.map((token) => [token]));
    const found = await translator.decoder.run(feeds, ["logits", ...translator.past]);
    for (const name of translator.past) feeds[name.replace("present", "past")] = found[name];
    return found.logits.data;
  }
}

/** The likeliest token, again and again: the ids of the translation. */
async function greedySearch(steps, limit) {
  const { start, ends, bad } = steps.translator;
  const found = [];
  while (found.length < limit && !ends.has(found.at(-1))) {
    const scores = await steps.scores([found.at(-1) ?? start], [0]);
    for (const token of [...bad, ...steps.translator.repeating(found)]) scores[token] = -Infinity;
    let best = 0;
    for (let token = 1; token < scores.length; token++) if (scores[token] > scores[best]) best = token;
    found.push(best);
  }
  return found;
}

/**
 * The ids of the translation with the best score, and that score.
 *
 * The score is the log-probability divided by |Y|^alpha, or by ((5 + |Y|) / 6)^alpha (Wu et al. 2016), as the
 * generation config's `length_penalty_type` says; `early_stopping` means what it does in transformers.
 */
async function beamSearch(steps, limit, beams, alpha) {
  const { start, ends, bad, generation } = steps.translator;
  const early = generation.early_stopping ?? false;
  const isGnmt = generation.length_penalty_type === "gnmt";
  const penalty = (length) => (isGnmt ? (5 + length) / 6 : length) ** alpha;
  // Where the penalty grows with the length, the best an open hypothesis can become it becomes at its limit.
  const looksAhead = early === "never" && penalty(2) > penalty(1);
  const finished = [];
  let open = [{ tokens: [], logProbability: 0, parent: 0 }];
  for (let length = 1; open.length > 0; length++) {
    const newest = open.map(({ tokens }) => tokens.at(-1) ?? start);
    const scores = await steps.scores(newest, open.map(({ parent }) => parent));
    // As many as ending may take away, and as many again to go on with.
    const forbidden = open.map(({ tokens }) => [...bad, ...steps.translator.repeating(tokens)]);
    const count = Math.max(2, 1 + ends.size) * beams;
    const candidates = bestOf(scores, open, count, forbidden, generation.renormalize_logits ?? false);
    const enough = early === true && finished.length === beams;
    const goingOn = [];
    for (const [rank, { logProbability, parent, token }] of candidates.entries()) {
      if (goingOn.length === beams) break;
      const tokens = [...open[parent].tokens, token];
      if (!ends.has(token) && length < limit) goingOn.push({ tokens, logProbability, parent });
      else if (rank < beams && !enough) finished.push({ tokens, score: logProbability / penalty(length) });
    }
    finished.sort((one, other) => other.score - one.score);
    finished.splice(beams);
    open = goingOn;
    if (open.length > 0 && finished.length === beams) {
      const best = open[0].logProbability / penalty(looksAhead ? limit : length);
      if (early === true || best <= finished.at(-1).score) break;
    }
  }
  const bare = finished.map(({ tokens }) => (ends.has(tokens.at(-1)) ? tokens.slice(0, -1) : tokens));
  const { tokens, score } = finished[generation.minimum_bayes_risk ? mostLikeTheOthers(bare) : 0];
  return [tokens, score];
}

/** The place of the translation of the lowest Bayes risk, as in Python's `least_risk_first`. */
function mostLikeTheOthers(candidates) {
  const countsOf = (tokens, order) => {
    const counts = new Map();
    for (let begin = 0; begin + order <= tokens.length; begin++) {
      const key = tokens.slice(begin, begin + order).join(" ");
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    return { counts, total: Math.max(0, tokens.length - order + 1) };
  };
  const ngrams = candidates.map((tokens) => [1, 2].map((order) => countsOf(tokens, order)));
  const utility = (one, other) => {
    let [precision, recall, orders] = [0, 0, 0];
    for (const [place, { counts, total }] of ngrams[one].entries()) {
      const others = ngrams[other][place];
      if (total === 0 || others.total === 0) continue;
      let shared = 0;
      for (const [key, count] of counts) shared += Math.min(count, others.counts.get(key) ?? 0);
      [precision, recall, orders] = [precision + shared / total, recall + shared / others.total, orders + 1];
    }
    return precision === 0 ? 0 : (5 * (precision * recall)) / (4 * precision + recall) / orders;
  };
  let [best, highest] = [0, -1];
  for (const one of candidates.keys()) {
    let sum = 0;
    for (const other of candidates.keys()) if (other !== one) sum += utility(one, other);
    if (sum > highest) [best, highest] = [one, sum];
  }
  return best;
}

/**
 * The likeliest `count` continuations of the open hypotheses, best first; `forbidden` has the tokens that none takes.
 * With `renormalized`, the probabilities of the others sum to 1.
 */
function bestOf(scores, open, count, forbidden, renormalized) {
  const vocabulary = scores.length / open.length;
  const found = [];
  for (const [parent, { logProbability }] of open.entries()) {
    const row = scores.subarray(parent * vocabulary, (parent + 1) * vocabulary);
    const forbid = () => forbidden[parent].forEach((token) => (row[token] = -Infinity));
    if (renormalized) forbid();
    let [greatest, sum] = [-Infinity, 0];
    for (const score of row) if (score > greatest) greatest = score;
    for (const score of row) sum += Math.exp(score - greatest);
    const toAdd = logProbability - greatest - Math.log(sum);
    forbid();
    for (let token = 0; token < vocabulary; token++) {
      const value = row[token] + toAdd;
      if (value === -Infinity || (found.length === count && value <= found.at(-1).logProbability)) continue;
      let place = found.length;
      while (place > 0 && found[place - 1].logProbability < value) place--;
      found.splice(place, 0, { logProbability: value, parent, token });
      if (found.length > count) found.pop();
    }
  }
  return found;
}
