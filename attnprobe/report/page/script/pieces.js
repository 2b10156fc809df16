// The pieces of words that a pretrained model reads, shown on demand.

// pieces of one example: each with its name, its word (-1: none of the text) and its weight; null: there are none
async function piecesOf(examples, row) {
  const rank = examples.rank.get(row);
  if (!examples.run.pieces || rank === undefined) return null;
  const { pieces, piece_word: words, piece_attention: weights } = await nthOf(examples.run.pieces, rank);
  return pieces.map((name, i) => ({ name, word: words[i], weight: weights[i] }));
}

function pieceMap(pieces) {
  const about = "what the model reads, special tokens included; sums to 1. A frame holds the pieces of one word.";
  const title = element("h4", { id: "pieces-title" }, "Attention to pieces ", element("span", { className: "about" }, about));
  const box = element("p", { className: "words pieces", dir: "auto" });
  box.setAttribute("role", "group");
  box.setAttribute("aria-labelledby", "pieces-title");
  const total = new Map();
  for (const { word, weight } of pieces) total.set(word, (total.get(word) ?? 0) + weight);
  let frame = null;
  let before = null;
  pieces.forEach(({ name, word, weight }, i) => {
    if (word < 0 || word !== before) {
      frame = element("span", { className: word < 0 ? "piece-word special" : "piece-word" });
      box.append(frame, " ");
    }
    before = word;
    const token = element("span", { className: "token", tabIndex: i ? -1 : 0 }, visible(name));
    const depth = Math.sqrt(Math.min(1, weight));
    token.style.setProperty("--depth", depth.toFixed(3));
    if (depth > DEEP) token.classList.add("deep");
    token.dataset.piece = i;
    const of = word < 0 ? [] : [["share of its word's", `${Math.round((100 * weight) / (total.get(word) || 1))} %`]];
    token.lines = [["weight", number(weight, DIGITS)], ...of];
    frame.append(token);
  });
  const none = total.get(-1) ?? 0;
  const said = `${pieces.length} pieces; ${Math.round(100 * none)} % of the attention is on pieces of no word (dashed).`;
  return element("section", { className: "map" }, title, box, element("p", { className: "largest" }, said));
}

// a box to tick where a run has pieces
function piecePicker(run) {
  if (!run.pieces) return [];
  const box = element("input", { type: "checkbox", id: "browser-pieces", checked: state.pieces });
  box.addEventListener("change", () => {
    state.pieces = box.checked;
    showDetail();
  });
  return [element("label", {}, box, " Pieces of words")];
}
