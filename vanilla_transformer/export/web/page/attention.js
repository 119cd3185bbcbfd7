// Draws attention weights: each head of each layer as a small picture, and one of them as a table with its numbers.

/** The weights of a head (queries * keys), from a layer's tensor (1, heads, queries, keys). */
function weightsOf({ data, dims }, head) {
  const size = dims[2] * dims[3];
  return data.subarray(head * size, (head + 1) * size);
}

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/**
 * Every head of every layer, to choose one.
 *
 * @param {HTMLElement} place where they go, in place of what was there
 * @param {{layers: object[]}} attention the tensor of each layer
 * @param {{layer: number, head: number}} chosen counted from 0
 * @param {(layer: number, head: number) => void} choose is told which head was chosen
 */
export function drawHeads(place, { layers }, chosen, choose) {
  const rows = layers.map((tensor, layer) => {
    const heads = Array.from({ length: tensor.dims[1] }, (_, head) => {
      const isChosen = layer === chosen.layer && head === chosen.head;
      const input = make("input", { type: "radio", name: "head", checked: isChosen });
      input.setAttribute("aria-label", `layer ${layer + 1}, head ${head + 1}`);
      input.addEventListener("change", () => choose(layer, head));
      return make("label", {}, input, make("canvas", { width: tensor.dims[3], height: tensor.dims[2] }), `${head + 1}`);
    });
    return [make("p", { textContent: `Layer ${layer + 1}` }), make("div", { className: "layer" }, ...heads)];
  });
  const hadFocus = place.contains(document.activeElement);
  place.replaceChildren(...rows.flat());
  if (hadFocus) place.querySelector("input:checked")?.focus();
  const canvases = place.querySelectorAll("canvas");
  let number = 0;
  for (const tensor of layers) for (let head = 0; head < tensor.dims[1]; head++) paint(canvases[number++], tensor, head);
}

/** A picture with a dot for each weight; what the canvas shows as its colour is a weight of 1. */
function paint(canvas, tensor, head) {
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  weightsOf(tensor, head).forEach((weight, i) => {
    context.globalAlpha = weight;
    context.fillRect(i % canvas.width, Math.floor(i / canvas.width), 1, 1);
  });
}

/** One head as a table: a row for each query, with the share of attention, in per cent, that each key gets. */
export function drawMap(place, caption, { layers, queries, keys }, { layer, head }, kind) {
  const weights = weightsOf(layers[layer], head);
  caption.textContent = `${kind}, layer ${layer + 1}, head ${head + 1}: each row says where it looks, in per cent`;
  const names = keys.map((key) => make("th", { scope: "col" }, make("span", { textContent: key })));
  place.querySelector("thead").replaceChildren(make("tr", {}, make("td"), ...names));
  const rows = queries.map((query, row) => {
    const cells = keys.map((key, column) => {
      const percent = Math.round(100 * weights[row * keys.length + column]);
      const cell = make("td", { textContent: percent || "", title: `${query} → ${key}: ${percent} %` });
      cell.style.setProperty("--weight", percent);
      cell.classList.toggle("strong", percent > 55);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", textContent: query }), ...cells);
  });
  place.querySelector("tbody").replaceChildren(...rows);
}
