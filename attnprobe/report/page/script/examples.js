// One run's examples.

const total = (lengths) => lengths.reduce((sum, length) => sum + length, 0);

class Examples {
  constructor(run, texts, columns) {
    this.run = run;
    this.texts = texts;
    this.columns = columns;
    this.count = run.examples;
    this.place = new Map(columns.example_id.map((id, row) => [id, row]));
    this.rank = new Map(columns.kept.map((row, rank) => [row, rank])); // of those whose weights are in the page
    this.unknown = new Set(columns.unknown);
    for (const { key } of run.measures) columns[key] = columns[key].map((value) => value ?? NaN);
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
    return Object.fromEntries(await Promise.all(maps.map(async ({ key, blocks }) => [key, await nthOf(blocks, rank)])));
  }
}
