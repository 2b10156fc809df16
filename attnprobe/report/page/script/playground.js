// The playground: what the model would predict under other weights (attnprobe/report/page/browser.py).

const play = { model: null, texts: [], text: null, weights: [], struck: new Set(), starts: [] };

// weights that sum to 1 and are 0 where a word is struck; null where nothing is left
function effective(weights, struck) {
  const kept = weights.map((weight, i) => (struck.has(i) ? 0 : weight));
  const total = kept.reduce((sum, weight) => sum + weight, 0);
  return total > 0 ? kept.map((weight) => weight / total) : null;
}

function probabilitiesUnder(attention, logits, classes) {
  const sums = new Array(classes).fill(0);
  attention.forEach((weight, t) => {
    for (let k = 0; k < classes; k++) sums[k] += weight * logits[t * classes + k];
  });
  const most = Math.max(...sums);
  const raised = sums.map((sum) => Math.exp(sum - most));
  const total = raised.reduce((a, b) => a + b, 0);
  return raised.map((value) => value / total);
}

const totalVariation = (p, q) => p.reduce((sum, value, i) => sum + Math.abs(value - q[i]), 0) / 2;

function jensenShannon(p, q) {
  const part = (a, b) => (a > 0 ? a * Math.log((2 * a) / (a + b)) : 0);
  return Math.max(0, p.reduce((sum, a, i) => sum + part(a, q[i]) + part(q[i], a), 0) / 2);
}

const largestAt = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

async function openPlayground(number_) {
  const model = index.playgrounds[number_];
  play.texts = await block(model.block);
  play.model = model;
  $("play-text").replaceChildren(...play.texts.map((text, i) => option(String(i), titleOf(text))));
  openText(handiest(play.texts.map(({ words }) => words.length)));
}

// the text's number, what is asked of it, and how it begins
function titleOf({ example_id: id, asked, words }) {
  const question = asked ? ` ${visible(asked)}` : "";
  const start = words.slice(0, 4).map(visible).join(" ");
  return `#${id}${question}: ${start}${words.length > 4 ? " …" : ""}`;
}

function openText(number_) {
  const text = play.texts[number_];
  play.text = text;
  $("play-text").value = String(number_);
  const kept = index.words ? "" : "position ";
  $("play-words").replaceChildren(
    ...text.words.map((word, i) => {
      const name = `${kept}${visible(word)}`;
      const strike = element("button", { type: "button", className: "token", textContent: name });
      strike.setAttribute("aria-label", `Strike word ${i + 1}, ${name}`);
      const slide = element("input", { type: "range", min: "0", max: "1", step: "0.005" });
      slide.setAttribute("aria-label", `Weight of word ${i + 1}, ${name}`);
      strike.addEventListener("click", () => toggle(i));
      slide.addEventListener("input", () => drag(i, Number(slide.value)));
      const item = element("li", {}, strike, slide, element("output", {}));
      item.dataset.i = i;
      return item;
    }),
  );
  const flip = $("play-flip");
  flip.disabled = text.flips_to < 0;
  flip.textContent = text.flips_to < 0 ? "No erasure flips it" : "Fewest to flip";
  $("play-farthest").textContent = text.is_exact ? "Farthest, same prediction" : "Farthest known, same prediction";
  restore();
}

function restore() {
  play.weights = [...play.text.attention];
  play.struck = new Set();
  showPlay("");
}

// others keep their proportions; where they have none left, the model's, or none at all
function drag(i, weight) {
  const now = effective(play.weights, play.struck) ?? play.weights.map(() => 0);
  play.struck.delete(i);
  const others = (values) => values.map((value, j) => (j === i || play.struck.has(j) ? 0 : value));
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  let rest = others(now);
  if (!(sum(rest) > 0)) rest = others(play.text.attention);
  if (!(sum(rest) > 0)) rest = others(play.text.attention.map(() => 1));
  const total = sum(rest);
  // what is struck keeps what it would come back with
  play.weights = play.weights.map((value, j) => (j === i ? weight : play.struck.has(j) ? value : total > 0 ? (rest[j] / total) * (1 - weight) : 0));
  if (!(total > 0)) play.weights[i] = 1;
  showPlay("");
}

function toggle(i) {
  const struck = new Set(play.struck);
  if (!struck.delete(i)) struck.add(i);
  if (!effective(play.weights, struck)) return void showPlay("One word has to keep some weight: no attention is left to renormalise without it.");
  play.struck = struck;
  showPlay("");
}

function jump(weights, struck, note) {
  play.weights = [...weights];
  play.struck = struck;
  showPlay(note);
}

function showPlay(note) {
  const { text, model, struck } = play;
  const classes = model.classes.length;
  const attention = effective(play.weights, struck);
  const own = probabilitiesUnder(text.attention, text.position_logits, classes);
  const now = probabilitiesUnder(attention, text.position_logits, classes);
  $("play-classes").replaceChildren(
    ...model.classes.map((name, k) => {
      const bar = element("span", { className: "bar" });
      bar.style.setProperty("--share", now[k].toFixed(4));
      const value = element("td", { className: "num", textContent: number(now[k], 3) }, bar);
      value.dataset.value = String(now[k]);
      const row = element("tr", {}, element("th", { scope: "row", textContent: visible(name) }), value);
      value.title = `${number(own[k], 3)} under the model’s own weights`;
      if (k === largestAt(now)) row.className = "decided";
      return row;
    }),
  );
  const [before, after] = [largestAt(own), largestAt(now)];
  const moved = totalVariation(own, now);
  const apart = jensenShannon(attention, text.attention);
  const decision = before === after ? `Still ${visible(model.classes[after])}` : `Changed from ${visible(model.classes[before])} to ${visible(model.classes[after])}`;
  const within = moved <= model.epsilon + 1e-9 ? `within ε = ${model.epsilon}` : `beyond ε = ${model.epsilon}`;
  const label = visible(model.classes[text.label] ?? String(text.label));
  const said = $("play-said");
  said.textContent = before === after && moved < 0.005 ? `Label: ${label}.` : `${decision} (label: ${label}).${moved >= 0.005 ? ` The prediction moved by ${number(100 * moved, 0)} points.` : ""}`;
  said.title = `TVD ${number(moved, 3)}, ${within}; the attention moved by ${number(apart, 3)} of at most 0.693 nats (JSD).`;
  Object.assign(said.dataset, { tvd: String(moved), jsd: String(apart) });
  $("play-note").textContent = note || (struck.size ? `${struck.size} struck: the attention is renormalised over the other ${text.words.length - struck.size} words.` : "");
  for (const item of $("play-words").children) {
    const i = Number(item.dataset.i);
    const [strike, slide, output] = item.children;
    const depth = Math.sqrt(attention[i]);
    strike.style.setProperty("--depth", depth.toFixed(3));
    strike.classList.toggle("deep", depth > DEEP);
    strike.setAttribute("aria-pressed", String(struck.has(i)));
    if (slide !== document.activeElement || Number(slide.value) !== attention[i]) slide.value = String(attention[i]);
    output.textContent = number(attention[i], 3);
    output.dataset.value = String(attention[i]);
  }
}

async function startPlayground() {
  if (!index.playgrounds?.length) return;
  $("play-run").append(...index.playgrounds.map(({ title }, i) => option(String(i), title)));
  $("play-run").addEventListener("change", (event) => openPlayground(Number(event.target.value)));
  $("play-text").addEventListener("change", (event) => openText(Number(event.target.value)));
  $("play-own").addEventListener("click", restore);
  $("play-even").addEventListener("click", () => jump(play.text.attention.map(() => 1 / play.text.attention.length), new Set(), "Every word has the same weight."));
  $("play-farthest").addEventListener("click", () => {
    const { farthest, is_exact: exact, jsd, upper_bound: bound } = play.text;
    const how = exact ? "proved: no attention is farther from the model’s" : `the farthest one known; none goes beyond ${number((100 * bound) / Math.LN2, 0)} %`;
    jump(farthest, new Set(), `${number((100 * jsd) / Math.LN2, 0)} % of the way to wholly other words, with the same prediction (${how}).`);
  });
  $("play-flip").addEventListener("click", () => {
    const members = play.text.flipping.flatMap((member, i) => (member ? [i] : []));
    const few = members.length === 1 ? "One word" : `${members.length} words`;
    jump(play.text.attention, new Set(members), `${few} struck, the fewest with which the decision becomes ${visible(play.model.classes[play.text.flips_to])} (exact).`);
  });
  $("play").hidden = false;
  await openPlayground(0);
}
