// Heat maps, and the beginning.

// the box beside the word that is pointed at
const tip = element("div", { className: "tip", hidden: true });
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

function placeTip(at) {
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const below = at.bottom + 6 + height < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
}

// whether a map is over the words of a text whose items are sentences
const isInner = (key) => state.examples.run.maps.find((map) => map.key === key).inner;

const NAMED = 8; // positions of a set that are named below it

function mapOf(map, weights, examples, row) {
  const own = weights[map.key];
  const titleId = `map-${map.key}`;
  const head = element("h4", { id: titleId }, map.title, " ", element("span", { className: "about" }, map.about));
  const part = element("section", { className: "map" }, head);
  if (own.length === 0) {
    part.append(element("p", { className: "remark" }, "None for this example."));
    return part;
  }
  const words = examples.words(row);
  const sentences = examples.run.hierarchical ? examples.sentences(row) : null;
  const bySentence = sentences && !map.inner;
  const unknown = bySentence ? null : examples.unknownOf(row);
  const labels = bySentence ? sentences.map(([from, to]) => words.slice(from, to).join(" ")) : words;
  const size = own.map((value) => Math.abs(value)); // of signed maps, which show by colour what speaks against
  const largest = size.reduce((most, value) => Math.max(most, value), 0);
  const scale = map.relative && largest > 0 ? largest : 1;
  const ranked = [...own.keys()].sort((a, b) => size[b] - size[a] || a - b);
  const top = new Set(ranked.slice(0, Math.min(3, Math.ceil(own.length / 3))).filter((i) => size[i] > 0));
  const box = element("p", { className: bySentence ? "words sentences" : "words", dir: "auto" });
  box.setAttribute("role", "group");
  box.setAttribute("aria-labelledby", titleId);
  const borders = sentences ? sentences.map(([, to]) => to) : [examples.columns.first_words?.[row]]; // of a pair, between its texts
  const ends = bySentence ? null : new Set(borders);
  labels.forEach((label, i) => {
    const token = element("span", { className: "token", tabIndex: i === (ranked[0] ?? 0) ? 0 : -1 }, bySentence ? label.split(" ").map(visible).join(" ") : visible(label));
    const depth = Math.sqrt(Math.min(1, size[i] / scale));
    if (own[i] < 0) token.classList.add("against");
    token.style.setProperty("--depth", depth.toFixed(3));
    if (depth > DEEP) token.classList.add("deep");
    if (top.has(i)) token.classList.add("top");
    token.dataset.i = i;
    if (!bySentence && unknown?.has(i)) token.classList.add("unknown");
    if (own[i] === null) token.classList.add("unseen");
    box.append(token, " ");
    if (ends?.has(i + 1)) box.append(element("br"));
  });
  box.dataset.map = map.key;
  const cut = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
  const named = (i) => `\u2068${cut(visible(labels[i]))}\u2069`; // isolated, so that its number follows it in any script
  const largestFew = [...top].sort((a, b) => size[b] - size[a]).map((i) => `${named(i)} ${number(own[i], DIGITS)}`);
  const members = [...own.keys()].filter((i) => own[i] > 0); // in the order of the text
  const inSet = `${members.length} of ${own.length}${members.length ? ": " : ""}${members.slice(0, NAMED).map(named).join(" · ")}${members.length > NAMED ? " · …" : ""}`;
  const summary = map.is_set ? inSet : largestFew.length ? `Largest: ${largestFew.join(" · ")}` : "All are 0.";
  const unseen = own.filter((value) => value === null).length;
  if (unseen) head.append(element("span", { className: "about" }, `${map.about ? "; " : " "}${unseen} of ${own.length} words cannot be seen by this attention (dashed)`));
  part.append(box, element("p", { className: "largest" }, summary));
  return part;
}

function describe(token) {
  const { examples } = state;
  const weights = $("browser-maps").weights;
  const map = token.parentElement.dataset.map;
  const i = Number(token.dataset.i);
  const inner = isInner(map);
  const lines = examples.run.maps
    .filter(({ key, inner: other }) => other === inner && weights[key]?.[i] !== undefined)
    .map(({ key, title }) => [title, weights[key][i] === null ? "not seen" : number(weights[key][i], DIGITS)]);
  const strange = token.classList.contains("unknown") ? " (unknown to the model)" : "";
  const text = examples.run.hierarchical && !inner ? `Sentence ${i + 1}` : `${i + 1}: ${token.textContent}${strange}`;
  return { text, lines };
}

function showTip(token) {
  const { text, lines } = token.lines ? { text: token.textContent, lines: token.lines } : describe(token);
  const list = element("dl");
  for (const [title, value] of lines) list.append(element("dt", {}, title), element("dd", {}, value));
  tip.replaceChildren(element("b", { dir: "auto" }, text), list);
  placeTip(token.getClientRects()[0]);
  const alike = token.lines ? [] : [...$("browser-maps").querySelectorAll(`.token[data-i="${token.dataset.i}"]`)];
  const inner = token.lines ? false : isInner(token.parentElement.dataset.map);
  for (const other of alike) if (isInner(other.parentElement.dataset.map) === inner) other.classList.add("same");
  token.setAttribute("aria-label", `${text}. ${lines.map((line) => line.join(" ")).join(", ")}`);
  token.setAttribute("role", "img");
}

function hideTip() {
  tip.hidden = true;
  for (const token of $("browser-maps").querySelectorAll(".token.same")) token.classList.remove("same");
}

function listenToMaps() {
  const maps = $("browser-maps");
  const tokenOf = (event) => event.target.closest?.(".token");
  const enter = (event) => {
    const token = tokenOf(event);
    if (!token) return;
    hideTip();
    showTip(token);
  };
  maps.addEventListener("pointerover", enter);
  maps.addEventListener("focusin", enter);
  maps.addEventListener("pointerout", (event) => tokenOf(event) && hideTip());
  maps.addEventListener("focusout", hideTip);
  addEventListener("scroll", () => !tip.hidden && !maps.contains(document.activeElement) && hideTip(), { passive: true });
  maps.addEventListener("keydown", (event) => {
    const token = tokenOf(event);
    if (!token) return;
    if (event.key === "Escape") return void hideTip();
    const box = token.closest(".words");
    const tokens = [...box.querySelectorAll(".token")];
    const at = tokens.indexOf(token);
    const rightwards = getComputedStyle(box).direction === "rtl" ? -1 : 1;
    const boxes = [...maps.querySelectorAll(".words")];
    const sideways = (by) => boxes[boxes.indexOf(box) + by]?.querySelectorAll(".token")[at];
    const target = {
      ArrowRight: () => tokens[at + rightwards],
      ArrowLeft: () => tokens[at - rightwards],
      Home: () => tokens[0],
      End: () => tokens.at(-1),
      ArrowDown: () => sideways(1),
      ArrowUp: () => sideways(-1),
    }[event.key]?.();
    if (!target) return;
    event.preventDefault();
    for (const other of target.closest(".words").querySelectorAll('.token[tabindex="0"]')) other.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  });
}

function listen() {
  const again = () => {
    choose();
    if (!state.order.includes(state.chosen)) state.chosen = state.order[0] ?? -1;
    showList();
    showDetail();
  };
  let waiting = 0;
  $("browser-query").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.query = queryOf(event.target.value);
      again();
    }, 150);
  });
  for (const id of ["browser-label", "browser-prediction", "browser-right"]) $(id).addEventListener("change", again);
  $("browser-sort").addEventListener("change", (event) => {
    state.sort = event.target.value;
    state.byNumber = false;
    state.down = true;
    again();
  });
  for (const [id, byNumber] of [["browser-by-number", true], ["browser-by-measure", false]]) {
    $(id).firstElementChild.addEventListener("click", () => {
      state.down = state.byNumber === byNumber ? !state.down : !byNumber;
      state.byNumber = byNumber;
      again();
    });
  }
  $("browser-run").addEventListener("change", (event) => openRun(Number(event.target.value)));
  const turn = (by) => {
    state.page += by;
    showList();
  };
  $("browser-before").addEventListener("click", () => turn(-1));
  $("browser-after").addEventListener("click", () => turn(1));
  $("browser-previous").addEventListener("click", () => step(-1));
  $("browser-csv").addEventListener("click", saveRows);
  $("browser-next").addEventListener("click", () => step(1));
  const body = $("browser-list").tBodies[0];
  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line) chooseRow(Number(line.dataset.row), { move: true });
  });
  body.addEventListener("keydown", (event) => {
    const line = event.target.closest("tr");
    const next = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling }[event.key];
    if (!next) return;
    event.preventDefault();
    next.querySelector("button").focus();
  });
  listenToMaps();
}

async function start() {
  if (!index.runs.length) return;
  for (const swatch of document.querySelectorAll("[data-weight]")) {
    const depth = Math.sqrt(Number(swatch.dataset.weight));
    swatch.style.setProperty("--depth", depth.toFixed(3));
    swatch.classList.toggle("deep", depth > DEEP);
  }
  const byData = new Map();
  index.runs.forEach((run, i) => {
    if (!byData.has(run.data)) byData.set(run.data, element("optgroup", { label: run.data }));
    byData.get(run.data).append(option(String(i), run.title));
  });
  $("browser-run").append(...byData.values());
  listen();
  $("browser").hidden = false;
  await Promise.all([followLink().then((there) => there || openRun(0)), startPlayground()]);
  addEventListener("hashchange", followLink);
  addEventListener("hashchange", openFolded);
  openFolded();
}

Promise.all([start(), ...[...document.querySelectorAll("[data-packed]")].map(showFigure)]).then(
  () => (document.documentElement.dataset.ready = "true"),
  (error) => {
    const problem = $("browser-problem");
    problem.hidden = false;
    problem.textContent = `The examples cannot be shown by this browser (${error.message}); one from 2023 or later can.`;
  },
);
