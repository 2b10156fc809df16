// The browser: the list, the filters and one example's numbers.

const index = JSON.parse($("browser-index").textContent);
const state = {
  examples: null,
  query: queryOf(""),
  sort: "",
  down: true,
  byNumber: false,
  order: [],
  page: 0,
  chosen: -1,
  hidden: null, // the keys of the maps that are not shown
  site: "",
  pieces: false,
};

// the maps of the layer and head that were picked, and those without any, unless they are hidden
function mapsNow() {
  return state.examples.run.maps.filter(({ key, site }) => (site ? key === state.site : !state.hidden.has(key)));
}

const WRONG = "wrong"; // an order of the list
const LABEL = "label"; // another one, where rows ask for labels
const LABEL_MAPS = ["erasure-smallest_set", "labels-label_value"];
const SHOWN_MAPS = ["attention", "word_attention", "leave_one_out-leave_one_out"];
// and what was found to be the better explanation
const isShown = ({ key, title }) => SHOWN_MAPS.includes(key) || index.instead.some((better) => better.toLowerCase().startsWith(`show ${title.toLowerCase()}:`));

// place of the length that is neither trivial nor a page long
const handiest = (lengths) => lengths.reduce((best, length, i) => (Math.abs(length - 14) < Math.abs(lengths[best] - 14) ? i : best), 0);

// a list of layers, each with its heads; nothing where a run has no maps of single heads
function sitePicker(maps) {
  const sites = maps.filter(({ site }) => site);
  if (!sites.length) return [];
  const select = element("select", { id: "browser-site" });
  const layers = new Map();
  for (const { key, site } of sites) {
    const [layer, head] = site.split(", ");
    if (!layers.has(layer)) layers.set(layer, element("optgroup", { label: layer }));
    layers.get(layer).append(option(key, head ? `${layer}, ${head}` : `${layer}, all heads`));
  }
  select.append(...layers.values());
  const last = sites.filter(({ site }) => !site.includes(", ")).at(-1) ?? sites.at(-1);
  select.value = sites.some(({ key }) => key === state.site) ? state.site : last.key;
  state.site = select.value;
  select.addEventListener("change", () => {
    state.site = select.value;
    showDetail();
  });
  return [element("label", { htmlFor: "browser-site" }, "Layer and head "), select];
}

function measureNow() {
  const { measures } = state.examples.run;
  return measures.find(({ key }) => key === state.sort) ?? measures.find(({ sorts }) => sorts);
}

function option(value, text) {
  return element("option", { value, textContent: text });
}

function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options);
  if (options.some(({ value }) => value === before)) select.value = before;
}

async function openRun(number_, wanted) {
  const run = index.runs[number_];
  const before = wanted ?? state.examples?.columns.example_id[state.chosen];
  state.examples = await Examples.of(run);
  const classes = () => [option("", "any"), ...run.classes.map((name, i) => option(String(i), name))];
  fill($("browser-label"), classes());
  fill($("browser-prediction"), classes());
  const orders = run.measures.filter(({ sorts }) => sorts).map(({ key, title }) => option(key, `${title}, most first`));
  orders.push(option(WRONG, "wrong predictions first"));
  if (run.labels && index.words) orders.push(option(LABEL, "label that is asked for"));
  fill($("browser-sort"), orders);
  state.sort = $("browser-sort").value;
  // at first the model's own and, where it was measured, what would happen without each word
  const isOfLabel = ({ labels }, { key }) => labels && LABEL_MAPS.includes(key);
  state.hidden ??= new Set(index.runs.flatMap((one) => one.maps.filter((map) => !isShown(map) && !isOfLabel(one, map)).map(({ key }) => key)));
  const maps = $("browser-maps-shown");
  maps.replaceChildren(element("legend", {}, "Heat maps"));
  for (const { key, title, site } of run.maps) {
    if (site) continue;
    const box = element("input", { type: "checkbox", checked: !state.hidden.has(key) });
    box.addEventListener("change", () => {
      state.hidden[box.checked ? "delete" : "add"](key);
      showDetail();
    });
    maps.append(element("label", {}, box, ` ${title}`));
  }
  maps.append(...piecePicker(run), ...sitePicker(run.maps));
  choose();
  const first = () => state.order[handiest(state.order.map((row) => state.examples.size(row)))];
  state.chosen = state.examples.place.get(before) ?? first() ?? -1;
  const at = wanted === undefined ? 0 : state.order.indexOf(state.chosen);
  state.page = Math.max(0, Math.floor(at / PAGE_SIZE));
  showList();
  await showDetail();
}

function choose() {
  const started = performance.now();
  const { examples, query } = state;
  const found = searcher(examples.texts, query);
  const [label, prediction] = [$("browser-label").value, $("browser-prediction").value];
  const right = $("browser-right").value;
  const order = [];
  for (let row = 0; row < examples.count; row++) {
    if (query.id !== null && examples.columns.example_id[row] !== query.id) continue;
    if (label !== "" && !examples.classes(row, "label").includes(Number(label))) continue;
    if (prediction !== "" && !examples.classes(row, "prediction").includes(Number(prediction))) continue;
    if (right && examples.isRight(row) !== (right === "right")) continue;
    if (found(row)) order.push(row);
  }
  const measured = (row) => {
    if (state.sort === WRONG) return Number(!examples.isRight(row));
    if (state.sort === LABEL) return -examples.labelPlace(row); // from a to z
    return examples.columns[state.sort][row];
  };
  const value = (row) => (state.byNumber ? examples.columns.example_id[row] : measured(row));
  const sign = state.down ? -1 : 1;
  order.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    // undefined numbers come last either way
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
    return sign * (x - y) || a - b;
  });
  state.order = order;
  state.page = 0;
  $("browser-count").dataset.milliseconds = String(Math.round(performance.now() - started));
}

function showList() {
  const { examples, order } = state;
  const measure = measureNow();
  const [byNumber, byMeasure] = [$("browser-by-number"), $("browser-by-measure")];
  byMeasure.firstElementChild.textContent = measure.title;
  for (const [head, is] of [[byNumber, state.byNumber], [byMeasure, !state.byNumber]]) {
    if (is) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  const body = $("browser-list").tBodies[0];
  const first = state.page * PAGE_SIZE;
  body.replaceChildren(...order.slice(first, first + PAGE_SIZE).map((row) => listRow(row, measure)));
  const pages = Math.max(1, Math.ceil(order.length / PAGE_SIZE));
  $("browser-page").textContent = `page ${state.page + 1} of ${pages.toLocaleString("en")}`;
  $("browser-before").disabled = state.page === 0;
  $("browser-after").disabled = state.page >= pages - 1;
  const count = (n) => n.toLocaleString("en");
  $("browser-count").textContent =
    order.length === examples.count
      ? `${count(examples.count)} examples`
      : `${count(order.length)} of ${count(examples.count)} examples`;
}

function listRow(row, measure) {
  const { examples } = state;
  const id = examples.columns.example_id[row];
  const button = element("button", { type: "button", textContent: `#${id}` });
  button.setAttribute("aria-label", `Show example ${id}`);
  const right = examples.isRight(row);
  const label = element("td", { className: right ? "right" : "wrong" }, examples.named(row, "label"));
  if (!right) label.append(element("span", { className: "predicted" }, `✗ ${examples.named(row, "prediction")}`));
  const text = index.words
    ? snippet(examples.words(row), state.query)
    : `${examples.columns.length[row]} positions`;
  const asked = examples.run.labels && index.words ? element("b", {}, `${visible(examples.question(row))}: `) : "";
  const made = element(
    "tr",
    {},
    element("td", {}, button),
    element("td", {}, asked, text),
    label,
    element("td", { className: "num" }, number(examples.columns[measure.key][row], measure.digits)),
  );
  made.dataset.row = row;
  if (row === state.chosen) made.setAttribute("aria-current", "true");
  return made;
}

function chooseRow(row, { move = false } = {}) {
  state.chosen = row;
  for (const line of $("browser-list").tBodies[0].rows) {
    if (Number(line.dataset.row) === row) line.setAttribute("aria-current", "true");
    else line.removeAttribute("aria-current");
  }
  const shown = showDetail();
  history.replaceState(null, "", linkTo(row));
  if (move) {
    shown.then(() => {
      // beside the list on a wide screen, below it on a narrow one
      if ($("browser-detail").getBoundingClientRect().top > innerHeight * 0.6) $("browser-detail").scrollIntoView();
    });
  }
  return shown;
}

function step(by) {
  const at = state.order.indexOf(state.chosen) + by;
  if (at < 0 || at >= state.order.length) return;
  const page = Math.floor(at / PAGE_SIZE);
  if (page !== state.page) {
    state.page = page;
    showList();
  }
  chooseRow(state.order[at]);
}

async function showDetail() {
  const { examples, chosen: row } = state;
  const title = $("browser-detail-title");
  if (row < 0) {
    title.textContent = "No example";
    $("browser-facts").replaceChildren();
    $("browser-numbers").replaceChildren();
    $("browser-maps").replaceChildren();
    return;
  }
  const wanted = examples.run.maps.filter(({ key, site }) => !site || key === state.site);
  const [weights, pieces] = await Promise.all([examples.weights(row, wanted), state.pieces ? piecesOf(examples, row) : null]);
  if (row !== state.chosen || examples !== state.examples) return; // another one was chosen meanwhile
  title.textContent = `Example ${examples.columns.example_id[row]}`;
  $("browser-link").href = linkTo(row);
  $("browser-facts").replaceChildren(...factsOf(examples, row));
  const maps = $("browser-maps");
  if (!weights) {
    maps.replaceChildren(element("p", { className: "remark" }, "The weights of this example were left out of this page."), plainText(examples, row));
    return;
  }
  maps.replaceChildren(...mapsNow().map((map) => mapOf(map, weights, examples, row)));
  if (pieces) maps.prepend(pieceMap(pieces));
  maps.weights = weights;
  $("browser-unknown").hidden = !examples.unknownOf(row).size;
}

// the labels that the text is asked for: a click shows that label's maps, numbers and verdict
function labelList(examples, row) {
  const { columns, run } = examples;
  const list = element("ul", { className: "labels" });
  list.setAttribute("aria-label", "Labels that this text is asked for");
  for (const other of examples.labelsOf(row)) {
    const name = examples.question(other);
    const right = examples.isRight(other);
    const answer = examples.named(other, "prediction");
    const [own] = examples.classes(other, "prediction");
    const chosen = other === row;
    const p = columns.probability?.[other][own];
    const button = element("button", { type: "button", className: own === 1 ? "label yes" : "label" }, element("b", {}, visible(name)), ` ${answer} ${number(p, 2)} ${right ? "✓" : "✗"}`);
    button.setAttribute("aria-pressed", String(chosen));
    button.addEventListener("click", () => chooseRow(other));
    list.append(element("li", {}, button));
  }
  const verdict = run.labels[examples.question(row)];
  const box = element("div", {}, list);
  if (verdict) box.append(element("p", { className: "asked" }, element("b", {}, `${visible(examples.question(row))}, over all texts: `), verdict));
  return box;
}

function plainText(examples, row) {
  return element("p", { className: "words", dir: "auto" }, examples.words(row).map(visible).join(" "));
}

function factsOf(examples, row) {
  const right = examples.isRight(row);
  const probability = (side) => {
    const { columns } = examples;
    const [own] = examples.classes(row, side);
    if (columns.probability) return columns.probability[row][own];
    return columns[`p_${side}`]?.[row];
  };
  const p = Array.isArray(examples.columns.label[row]) ? undefined : probability("prediction");
  const score = total(examples.columns.probability?.[row] ?? [1]) < 0.5;
  const of = p === undefined ? "" : score ? ` (${number(p, 3)} units from the threshold)` : ` (p = ${number(p, 3)})`;
  const parts = [
    element(
      "p",
      { className: right ? "outcome right" : "outcome wrong" },
      ...(examples.run.labels ? [element("b", {}, visible(examples.question(row))), ": "] : []),
      ...(right ? [] : ["Label ", element("b", {}, examples.named(row, "label")), ", predicted "]),
      element("b", {}, examples.named(row, "prediction")),
      `${of}: ${right ? "✓ right" : "✗ wrong"}`,
    ),
  ];
  const question = examples.question(row);
  if (examples.run.labels && index.words) parts.push(labelList(examples, row));
  else if (question) parts.push(element("p", { className: "asked", dir: "auto" }, element("b", {}, `${examples.run.other_text}: `), visible(question)));
  const from = examples.columns.first_words?.[row];
  if (from !== undefined && index.words) {
    const second = examples.words(row).slice(from).map(visible).join(" ");
    parts.push(element("p", { className: "asked", dir: "auto" }, element("b", {}, "Second text: "), second));
  }
  const candidates = examples.columns.candidates?.[row];
  if (candidates && index.words) {
    parts.push(element("p", { className: "asked" }, element("b", {}, "Candidates: "), candidates.map(visible).join(", ")));
  }
  const list = element("dl", { className: "measures" });
  for (const { key, title, digits, truth } of examples.run.measures) {
    const value = examples.columns[key][row];
    const text = truth && !Number.isNaN(value) ? (value ? "yes" : "no") : number(value, digits);
    list.append(element("div", {}, element("dt", {}, title), element("dd", {}, text)));
  }
  $("browser-numbers").replaceChildren(list);
  return parts;
}
