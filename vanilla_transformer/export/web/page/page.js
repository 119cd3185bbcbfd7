// The page: what is typed goes to the translator, and its translation and attention come here.

import { drawHeads, drawMap } from "./attention.js";
import { runtime } from "./runtime.js";
import { Translator } from "./translator.js";

const PAUSE = 300; // milliseconds without a key that count as a pause

const element = (id) => document.getElementById(id);
const state = { translator: null, lines: [], attentions: null, layer: -1, head: 0, work: null, timer: 0 };

async function read(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be read (${response.status} ${response.statusText})`);
  return new Uint8Array(await response.arrayBuffer());
}

function say(text, isWrong = false) {
  element("status").textContent = text;
  element("status").classList.toggle("wrong", isWrong);
}

/** The tag of a language as HTML has it: pt-BR for pt_BR. */
const tagOf = (code) => code.replaceAll("_", "-");

/** The name of a language in English: German for de. */
function nameOf(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(tagOf(code));
  } catch {
    return code; // which nobody standardised
  }
}

function introduce({ source_language: source, target_language: target, examples }) {
  if (source && target) {
    document.title = element("title").textContent = `${nameOf(source)} to ${nameOf(target)}`;
    element("from").textContent = ` in ${nameOf(source)}`;
    element("into").textContent = ` into ${nameOf(target)}`;
    [element("text").lang, element("translation").lang] = [tagOf(source), tagOf(target)];
  }
  for (const example of examples) {
    const button = document.createElement("button");
    [button.type, button.textContent, button.lang] = ["button", example, tagOf(source ?? "")];
    button.addEventListener("click", () => {
      element("text").value = example;
      translate();
    });
    element("examples").append(button);
  }
}

/** Translates what is in the field, line by line; what is still at work on an older text stops. */
async function translate() {
  clearTimeout(state.timer);
  state.work?.abort();
  if (!state.translator) return;
  if (!element("form").checkValidity()) {
    element("options").open = true; // a browser cannot show its message beside a field that is not shown
    element("form").reportValidity();
    return;
  }
  const work = (state.work = new AbortController());
  const options = {
    beams: element("beams").valueAsNumber,
    lengthPenalty: element("penalty").valueAsNumber,
    signal: work.signal,
  };
  const before = performance.now();
  const found = [];
  try {
    for (const line of element("text").value.split(/\r?\n/)) {
      found.push(line.trim() ? await state.translator.translate(line.trim(), options) : null);
      element("translation").textContent = found.map((each) => each?.text ?? "").join("\n");
    }
    state.lines = found.filter(Boolean);
    const milliseconds = Math.round(performance.now() - before);
    const scores = state.lines.map(({ score }) => score?.toFixed(4)).filter(Boolean);
    say(state.lines.length === 0 ? "" : `${milliseconds} ms${scores.length ? ` · score ${scores.join(", ")}` : ""}`);
    chooseLines();
    await look();
  } catch (error) {
    if (error === work.signal.reason) return;
    [state.lines, state.attentions] = [[], null]; // they are of an older text
    element("translation").textContent = found.map((each) => each?.text ?? "").join("\n");
    element("sentence").hidden = element("attention").hidden = true;
    say(error.message, true);
  }
}

/** The lines to choose from, if there are several. */
function chooseLines() {
  element("sentence").hidden = state.lines.length < 2;
  element("line").replaceChildren(...state.lines.map(({ text }, place) => new Option(text, place)));
}

/** Asks for the attention of the line chosen, and draws it. */
async function look() {
  const line = state.lines[Number(element("line").value)];
  element("attention").hidden = !line;
  if (!line) return;
  const { tokenizer, start } = state.translator;
  const [source, written] = [tokenizer.labels(line.source), tokenizer.labels(line.target)];
  const read = tokenizer.labels([start, ...line.target.slice(0, -1)]);
  const weights = await state.translator.attentions(line);
  state.attentions = {
    cross: { layers: weights.cross, queries: written, keys: source },
    encoder: { layers: weights.encoder, queries: source, keys: source },
    decoder: { layers: weights.decoder, queries: read, keys: read },
  };
  draw();
}

function draw() {
  if (!state.attentions) return;
  const kind = document.querySelector("[name=kind]:checked");
  const attention = state.attentions[kind.value];
  if (state.layer < 0 || state.layer >= attention.layers.length) state.layer = attention.layers.length - 1;
  state.head = Math.min(state.head, attention.layers[state.layer].dims[1] - 1);
  const name = `Attention of the ${kind.parentNode.textContent.trim()}`;
  const show = () => drawMap(element("map"), element("caption"), attention, state, name);
  drawHeads(element("heads"), attention, state, (layer, head) => {
    [state.layer, state.head] = [layer, head];
    show();
  });
  show();
}

function listen() {
  element("form").addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  element("text").addEventListener("input", () => {
    clearTimeout(state.timer);
    if (element("live").checked) state.timer = setTimeout(translate, PAUSE);
  });
  element("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault(); // Shift+Enter begins a new line
    translate();
  });
  element("line").addEventListener("change", look);
  element("kinds").addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

async function begin() {
  listen();
  const before = performance.now();
  introduce(JSON.parse(new TextDecoder().decode(await read("page.json"))));
  state.translator = await Translator.load(await runtime(read), read);
  element("beams").value = state.translator.generation.num_beams ?? 1;
  element("beams").max = Math.max(element("beams").max, element("beams").value);
  element("penalty").value = state.translator.generation.length_penalty ?? 1;
  element("button").disabled = false;
  say(`Ready after ${Math.round(performance.now() - before)} ms. Shift+Enter begins a new line.`);
  if (element("text").value.trim()) await translate();
}

begin().catch((error) => say(`The page cannot translate: ${error.message}`, true));
