"use strict";
// The page's script: sortable tables, and the browser over examples. Every word from data goes through textContent.
(() => {
  const PAGE_SIZE = matchMedia("(min-width: 900px)").matches ? 20 : 8;
  const KEPT_BLOCKS = 200;
  const SNIPPET = 24;
  const DEEP = 0.75; // from here on light letters are easier to read on the shade than dark ones
  const MINUS = "\u2212";
  const $ = (id) => document.getElementById(id);

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function number(value, digits) {
    return Number.isNaN(value) ? "none" : value.toFixed(digits).replace("-", MINUS);
  }

  // ---------------------------------------------------------------- tables of the page

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
        const compare = new Intl.Collator("en", { numeric: true }).compare;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          const order = Number.isNaN(Number(x) + Number(y)) ? compare(x, y) : Number(x) - Number(y);
          return down ? -order : order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      details.dataset.forPrint = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-for-print]")) {
      details.open = false;
      delete details.dataset.forPrint;
    }
  });
  // a link to a folded card opens it
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  // ---------------------------------------------------------------- blocks of numbers (attnprobe/report/page/packing.py)

  const TYPES = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float32Array, Float64Array };

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  async function unpack(name) {
    const packed = new Blob([bytesOf($(name).textContent.trim())]);
    const buffer = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    const start = 4 + new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4)));
    const arrays = {};
    for (const { name: key, type, length, offset } of header.arrays) {
      const kind = TYPES[type];
      // an array must lie at a multiple of its element's size; the header's length is none
      const from = start + offset;
      arrays[key] = new kind(buffer.slice(from, from + length * kind.BYTES_PER_ELEMENT));
    }
    return { facts: header.facts, arrays };
  }

  const unpacked = new Map();
  function block(name, kept = true) {
    let found = unpacked.get(name);
    if (!found) {
      found = unpack(name);
      if (!kept) {
        const others = [...unpacked.keys()].filter((key) => key.startsWith("maps-"));
        if (others.length >= KEPT_BLOCKS) unpacked.delete(others[0]);
      }
      unpacked.set(name, found);
    }
    return found;
  }

  function startsOf(lengths) {
    const starts = new Uint32Array(lengths.length + 1);
    for (let i = 0; i < lengths.length; i++) starts[i + 1] = starts[i] + lengths[i];
    return starts;
  }

  // ---------------------------------------------------------------- one run's examples

  async function textsOf(name) {
    const { facts, arrays } = await block(name);
    if (!arrays.itemStarts) {
      arrays.itemStarts = startsOf(arrays.items);
      if (arrays.sentence) {
        const sentenceStarts = startsOf(arrays.sentence);
        arrays.sentenceStarts = sentenceStarts;
        arrays.wordStarts = arrays.itemStarts.map((sentence) => sentenceStarts[sentence]);
      } else {
        arrays.wordStarts = arrays.itemStarts;
      }
      if (arrays.question_length) arrays.questionStarts = startsOf(arrays.question_length);
      facts.lower = facts.vocabulary?.map((word) => word.toLowerCase());
    }
    return { facts, arrays };
  }

  class Examples {
    constructor(run, texts, numbers) {
      this.run = run;
      this.texts = texts;
      this.facts = numbers.facts;
      this.columns = numbers.arrays;
      this.count = run.examples;
      this.place = new Map();
      this.rank = new Int32Array(this.count).fill(-1);
      let kept = 0;
      for (let row = 0; row < this.count; row++) {
        this.place.set(this.columns.example_id[row], row);
        if (this.columns.kept[row]) this.rank[row] = kept++;
      }
    }

    static async of(run) {
      const [texts, numbers] = await Promise.all([textsOf(run.texts), block(run.numbers)]);
      return new Examples(run, texts, numbers);
    }

    classes(row, side) {
      return this.facts[side] ? this.facts[side][row] : [this.columns[side][row]];
    }

    named(row, side) {
      return this.classes(row, side).map((number_) => this.run.classes[number_] ?? `class ${number_}`).join(", ") || "none";
    }

    isRight(row) {
      return String(this.classes(row, "label")) === String(this.classes(row, "prediction"));
    }

    words(row) {
      const { facts, arrays } = this.texts;
      const [from, to] = [arrays.wordStarts[row], arrays.wordStarts[row + 1]];
      if (!facts.vocabulary) return Array.from({ length: to - from }, (_, i) => String(i + 1));
      return Array.from(arrays.words.subarray(from, to), (number_) => facts.vocabulary[number_]);
    }

    question(row) {
      const { facts, arrays } = this.texts;
      if (!arrays.questionStarts || !facts.vocabulary) return null;
      const asked = arrays.question.subarray(arrays.questionStarts[row], arrays.questionStarts[row + 1]);
      return Array.from(asked, (number_) => facts.vocabulary[number_]).join(" ");
    }

    // words of each sentence, [from, to) within the text
    sentences(row) {
      const { arrays } = this.texts;
      const spans = [];
      let from = 0;
      for (let i = arrays.itemStarts[row]; i < arrays.itemStarts[row + 1]; i++) {
        spans.push([from, from + arrays.sentence[i]]);
        from += arrays.sentence[i];
      }
      return spans;
    }

    // map's key → weights of one example; NaN: there is none
    async weights(row) {
      const rank = this.rank[row];
      if (rank < 0) return null;
      const place = this.run.blocks.findIndex(({ first, count }) => first <= rank && rank < first + count);
      const { first } = this.run.blocks[place];
      const { arrays: text } = this.texts;
      const length = (inner, r) => (inner ? text.wordStarts[r + 1] - text.wordStarts[r] : text.items[r]);
      const rows = [];
      for (let r = 0; r < this.count; r++) if (this.rank[r] >= first && this.rank[r] < rank) rows.push(r);
      const parts = this.run.maps.map(async ({ key, inner, block: name }) => {
        const { arrays } = await block(`${name}-${place}`, false);
        const from = rows.reduce((sum, r) => sum + length(inner, r), 0);
        const part = arrays.weights.subarray(from, from + length(inner, row));
        return [key, Float64Array.from(part, (n) => (n > this.run.levels ? NaN : (n / this.run.levels) ** 2))];
      });
      return Object.fromEntries(await Promise.all(parts));
    }
  }

  // ---------------------------------------------------------------- search

  // "#12", words that must all be there (each as part of a word), "phrases in quotes"
  function queryOf(text) {
    const query = { id: null, words: [], phrases: [] };
    const rest = text.toLowerCase().replace(/"([^"]*)"?/g, (_, phrase) => {
      const words = phrase.trim().split(/\s+/).filter(Boolean);
      if (words.length) query.phrases.push(words);
      return " ";
    });
    for (const word of rest.split(/\s+/).filter(Boolean)) {
      if (/^#\d+$/.test(word)) query.id = Number(word.slice(1));
      else query.words.push(word);
    }
    return query;
  }

  function searcher(texts, query) {
    const { facts, arrays } = texts;
    if (!facts.lower || (!query.words.length && !query.phrases.length)) return () => true;
    const terms = query.words.slice(0, 31);
    const full = 2 ** terms.length - 1;
    const bits = new Uint32Array(facts.lower.length);
    facts.lower.forEach((word, i) => terms.forEach((term, bit) => word.includes(term) && (bits[i] |= 1 << bit)));
    const hasPhrase = (phrase, words, from, to) => {
      const last = phrase.length - 1;
      search: for (let i = from; i + last < to; i++) {
        for (let j = 0; j <= last; j++) {
          const word = facts.lower[words[i + j]];
          if (j < last ? word !== phrase[j] : !word.startsWith(phrase[j])) continue search;
        }
        return true;
      }
      return false;
    };
    return (row) => {
      let found = 0;
      for (let i = arrays.wordStarts[row]; i < arrays.wordStarts[row + 1] && found !== full; i++) found |= bits[arrays.words[i]];
      const asked = arrays.questionStarts;
      if (asked) for (let i = asked[row]; i < asked[row + 1] && found !== full; i++) found |= bits[arrays.question[i]];
      if (found !== full) return false;
      return query.phrases.every(
        (phrase) =>
          hasPhrase(phrase, arrays.words, arrays.wordStarts[row], arrays.wordStarts[row + 1]) ||
          (asked && hasPhrase(phrase, arrays.question, asked[row], asked[row + 1])),
      );
    };
  }

  // ---------------------------------------------------------------- words as text

  // characters that turn the direction of all that follows, and words that would show nothing, are named instead
  function visible(word) {
    const name = (character) => `\u27e8U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
    if (!/[^\s\p{C}\p{Default_Ignorable_Code_Point}]/u.test(word)) return [...word].map(name).join("") || "\u27e8\u27e9";
    return word.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, name).replace(/[\p{Cc}\p{Cs}]/gu, name);
  }

  function snippet(words, query) {
    const lower = words.map((word) => word.toLowerCase());
    const terms = [...query.words, ...query.phrases.flat()];
    const hit = (word) => terms.some((term) => word.includes(term));
    const first = terms.length ? lower.findIndex(hit) : -1;
    const from = Math.max(0, Math.min(first - 4, words.length - SNIPPET));
    const cell = element("span", { className: "snippet", dir: "auto" });
    if (from > 0) cell.append("… ");
    words.slice(from, from + SNIPPET).forEach((word, i) => {
      cell.append(hit(lower[from + i]) ? element("mark", {}, visible(word)) : visible(word), " ");
    });
    if (from + SNIPPET < words.length) cell.append("…");
    return cell;
  }

  // ---------------------------------------------------------------- the browser

  const index = JSON.parse($("browser-index").textContent);
  const tip = element("div", { className: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  const state = {
    examples: null,
    query: queryOf(""),
    sort: "",
    down: true,
    byNumber: false,
    order: [],
    page: 0,
    chosen: -1,
    hidden: new Set(),
  };

  function measureNow() {
    return state.examples.run.measures.find(({ key }) => key === state.sort);
  }

  function option(value, text) {
    return element("option", { value, textContent: text });
  }

  function fill(select, options) {
    const before = select.value;
    select.replaceChildren(...options);
    if (options.some(({ value }) => value === before)) select.value = before;
  }

  async function openRun(number_) {
    const run = index.runs[number_];
    const before = state.examples?.columns.example_id[state.chosen];
    state.examples = await Examples.of(run);
    const classes = () => [option("", "any"), ...run.classes.map((name, i) => option(String(i), name))];
    fill($("browser-label"), classes());
    fill($("browser-prediction"), classes());
    fill($("browser-sort"), run.measures.filter(({ sorts }) => sorts).map(({ key, title }) => option(key, title)));
    state.sort = $("browser-sort").value;
    const maps = $("browser-maps-shown");
    maps.replaceChildren(element("legend", {}, "Heat maps"));
    for (const { key, title } of run.maps) {
      const box = element("input", { type: "checkbox", checked: !state.hidden.has(key) });
      box.addEventListener("change", () => {
        state.hidden[box.checked ? "delete" : "add"](key);
        showDetail();
      });
      maps.append(element("label", {}, box, ` ${title}`));
    }
    choose();
    state.chosen = state.examples.place.get(before) ?? state.order[0] ?? -1;
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
    const values = state.byNumber ? examples.columns.example_id : examples.columns[state.sort];
    const sign = state.down ? -1 : 1;
    order.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
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
    const made = element(
      "tr",
      {},
      element("td", {}, button),
      element("td", {}, text),
      label,
      element("td", { className: "num" }, number(examples.columns[state.sort][row], measure.digits)),
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
      $("browser-maps").replaceChildren();
      return;
    }
    const weights = await examples.weights(row);
    if (row !== state.chosen || examples !== state.examples) return; // another one was chosen meanwhile
    title.textContent = `Example ${examples.columns.example_id[row]}`;
    $("browser-facts").replaceChildren(...factsOf(examples, row));
    const maps = $("browser-maps");
    if (!weights) {
      maps.replaceChildren(element("p", { className: "remark" }, "The weights of this example were left out of this page."), plainText(examples, row));
      return;
    }
    const shown = examples.run.maps.filter(({ key }) => !state.hidden.has(key));
    maps.replaceChildren(...shown.map((map) => mapOf(map, weights, examples, row)));
    maps.weights = weights;
  }

  function plainText(examples, row) {
    return element("p", { className: "words", dir: "auto" }, examples.words(row).map(visible).join(" "));
  }

  function factsOf(examples, row) {
    const right = examples.isRight(row);
    const probability = (side) => {
      const { columns, run } = examples;
      const [own] = examples.classes(row, side);
      if (columns.probability) return columns.probability[row * run.classes.length + own];
      return columns[`p_${side}`]?.[row];
    };
    const p = examples.facts.label ? undefined : probability("prediction");
    const of = p === undefined ? "" : ` (p = ${number(p, 3)})`;
    const parts = [
      element(
        "p",
        { className: right ? "outcome right" : "outcome wrong" },
        "Label ",
        element("b", {}, examples.named(row, "label")),
        ", predicted ",
        element("b", {}, examples.named(row, "prediction")),
        `${of}: ${right ? "✓ right" : "✗ wrong"}`,
      ),
    ];
    const question = examples.question(row);
    if (question) parts.push(element("p", { className: "asked", dir: "auto" }, element("b", {}, "Question: "), visible(question)));
    const candidates = examples.facts.candidates?.[row];
    if (candidates && index.words) {
      parts.push(element("p", { className: "asked" }, element("b", {}, "Candidates: "), candidates.map(visible).join(", ")));
    }
    const list = element("dl", { className: "measures" });
    for (const { key, title, digits, truth } of examples.run.measures) {
      const value = examples.columns[key][row];
      const text = truth && !Number.isNaN(value) ? (value ? "yes" : "no") : number(value, digits);
      list.append(element("div", {}, element("dt", {}, title), element("dd", {}, text)));
    }
    parts.push(element("details", { open: true }, element("summary", {}, "Numbers of this example"), list));
    return parts;
  }

  // ---------------------------------------------------------------- heat maps

  // whether a map is over the words of a text whose items are sentences
  const isInner = (key) => state.examples.run.maps.find((map) => map.key === key).inner;
  const digitsOf = () => (state.examples.run.levels > 255 ? 4 : 3);

  function mapOf(map, weights, examples, row) {
    const own = weights[map.key];
    const titleId = `map-${map.key}`;
    const head = element("h4", { id: titleId }, map.title, " ", element("span", { className: "about" }, map.about));
    const part = element("section", { className: "map" }, head);
    if (own.length === 0 || Number.isNaN(own[0])) {
      part.append(element("p", { className: "remark" }, "None for this example."));
      return part;
    }
    const words = examples.words(row);
    const sentences = examples.run.hierarchical ? examples.sentences(row) : null;
    const bySentence = sentences && !map.inner;
    const labels = bySentence ? sentences.map(([from, to]) => words.slice(from, to).join(" ")) : words;
    const largest = own.reduce((most, value) => Math.max(most, value), 0);
    const scale = map.relative && largest > 0 ? largest : 1;
    const ranked = [...own.keys()].sort((a, b) => own[b] - own[a] || a - b);
    const top = new Set(ranked.slice(0, Math.min(3, Math.ceil(own.length / 3))).filter((i) => own[i] > 0));
    const box = element("p", { className: bySentence ? "words sentences" : "words", dir: "auto" });
    box.setAttribute("role", "group");
    box.setAttribute("aria-labelledby", titleId);
    const ends = sentences && !bySentence ? new Set(sentences.map(([, to]) => to)) : null;
    labels.forEach((label, i) => {
      const token = element("span", { className: "token", tabIndex: i === (ranked[0] ?? 0) ? 0 : -1, dir: "auto" }, bySentence ? label.split(" ").map(visible).join(" ") : visible(label));
      const depth = Math.sqrt(Math.min(1, own[i] / scale));
      token.style.setProperty("--depth", depth.toFixed(3));
      if (depth > DEEP) token.classList.add("deep");
      if (top.has(i)) token.classList.add("top");
      token.dataset.i = i;
      box.append(token, " ");
      if (ends?.has(i + 1)) box.append(element("br"));
    });
    box.dataset.map = map.key;
    const cut = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
    const largestFew = [...top].sort((a, b) => own[b] - own[a]).map((i) => `${cut(visible(labels[i]))} ${number(own[i], digitsOf())}`);
    part.append(box, element("p", { className: "largest" }, largestFew.length ? `Largest: ${largestFew.join(" · ")}` : "All are 0."));
    return part;
  }

  function describe(token) {
    const { examples } = state;
    const weights = $("browser-maps").weights;
    const map = token.parentElement.dataset.map;
    const i = Number(token.dataset.i);
    const inner = isInner(map);
    const lines = examples.run.maps
      .filter(({ key, inner: other }) => other === inner && !Number.isNaN(weights[key][i]))
      .map(({ key, title }) => [title, number(weights[key][i], digitsOf())]);
    const text = examples.run.hierarchical && !inner ? `Sentence ${i + 1}` : `${i + 1}: ${token.textContent}`;
    return { text, lines };
  }

  function showTip(token) {
    const { text, lines } = describe(token);
    const list = element("dl");
    for (const [title, value] of lines) list.append(element("dt", {}, title), element("dd", {}, value));
    tip.replaceChildren(element("b", { dir: "auto" }, text), list);
    tip.hidden = false;
    const at = token.getClientRects()[0];
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    const below = at.bottom + 6 + height < innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
    tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
    const alike = [...$("browser-maps").querySelectorAll(`.token[data-i="${token.dataset.i}"]`)];
    const inner = isInner(token.parentElement.dataset.map);
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
      const tokens = [...token.parentElement.querySelectorAll(".token")];
      const at = tokens.indexOf(token);
      const boxes = [...maps.querySelectorAll(".words")];
      const sideways = (by) => boxes[boxes.indexOf(token.parentElement) + by]?.querySelectorAll(".token")[at];
      const target = {
        ArrowRight: () => tokens[at + 1],
        ArrowLeft: () => tokens[at - 1],
        Home: () => tokens[0],
        End: () => tokens.at(-1),
        ArrowDown: () => sideways(1),
        ArrowUp: () => sideways(-1),
      }[event.key]?.();
      if (!target) return;
      event.preventDefault();
      for (const other of target.parentElement.querySelectorAll('.token[tabindex="0"]')) other.tabIndex = -1;
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
    document.body.append(tip);
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
    await openRun(0);
  }

  start().then(
    () => (document.documentElement.dataset.ready = "true"),
    (error) => {
      const problem = $("browser-problem");
      problem.hidden = false;
      problem.textContent = `The examples cannot be shown by this browser (${error.message}); one from 2023 or later can.`;
    },
  );
})();
