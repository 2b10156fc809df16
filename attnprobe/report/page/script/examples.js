// One run's examples.

const compareNames = (a, b) => a.localeCompare(b, "en", { numeric: true });
const total = (lengths) => lengths.reduce((sum, length) => sum + length, 0);

// a text's weights from its decimals and whole numbers (in_whole_numbers of attnprobe/report/page/browser.py)
const weightsOf = ([decimals, ...numbers]) => numbers.map((value) => (value === null ? null : value / 10 ** decimals));

class Examples {
  constructor(run, texts, columns) {
    this.run = run;
    this.texts = texts;
    this.columns = columns;
    this.count = run.examples;
    this.place = new Map(columns.example_id.map((id, row) => [id, row]));
    this.rank = new Map(columns.kept.map((row, rank) => [row, rank])); // of those whose weights are in the page
    this.unknown = new Set(columns.unknown);
    for (const { key, column } of run.measures) columns[key] = columns[column].map((value) => value ?? NaN);
  }

  static async of(run) {
    return new Examples(run, await block(index.texts[run.texts]), await block(run.numbers));
  }

  classes(row, side) {
    return [this.columns[side][row]].flat(); // a list where there may be several
  }

  named(row, side) {
    return this.classes(row, side).map((number_) => this.run.classes[number_] ?? `class ${number_}`).join(", ") || "none";
  }

  isRight(row) {
    return String(this.classes(row, "label")) === String(this.classes(row, "prediction"));
  }

  // words of the text, also of one whose positions are sentences
  size(row) {
    return total([this.texts.lengths[row]].flat());
  }

  words(row) {
    return this.texts.words?.[row].flat() ?? Array.from({ length: this.size(row) }, (_, i) => String(i + 1));
  }

  // places of the words that the model has no vector of its own for
  unknownOf(row) {
    const words = this.words(row);
    return new Set([...words.keys()].filter((i) => this.unknown.has(words[i])));
  }

  // the rows that ask the same text for its labels, in the order of the labels' names
  labelsOf(row) {
    if (!this.run.labels || !this.texts.words) return [];
    if (!this.rowsOfText) {
      this.rowsOfText = new Map();
      for (let other = 0; other < this.count; other++) {
        const text = this.words(other).join(" ");
        if (!this.rowsOfText.has(text)) this.rowsOfText.set(text, []);
        this.rowsOfText.get(text).push(other);
      }
      for (const rows of this.rowsOfText.values()) rows.sort((a, b) => compareNames(this.question(a), this.question(b)));
    }
    return this.rowsOfText.get(this.words(row).join(" "));
  }

  // the place of the label that a row asks for among all labels
  labelPlace(row) {
    this.names ??= [...new Set(this.texts.question.map((_, other) => this.question(other)))].sort(compareNames);
    return this.names.indexOf(this.question(row));
  }

  question(row) {
    return this.texts.question?.[row].join(" ") ?? null;
  }

  // words of each sentence, [from, to) within the text
  sentences(row) {
    let to = 0;
    return this.texts.lengths[row].map((length) => [to, (to += length)]);
  }

  // key of each of these maps → weights of one example, none where it has none; null: they were left out
  async weights(row, maps) {
    const rank = this.rank.get(row);
    if (rank === undefined) return null;
    return Object.fromEntries(await Promise.all(maps.map(async ({ key, blocks }) => [key, weightsOf(await nthOf(blocks, rank))])));
  }
}
