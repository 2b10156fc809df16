// One run's examples.

const textsRead = new Map();
async function textsOf(number_) {
  if (!textsRead.has(number_)) {
    const texts = await blocks(index.texts[number_]);
    const itemStarts = startsOf(texts.items);
    const sentenceStarts = texts.sentence && startsOf(texts.sentence);
    const wordStarts = sentenceStarts ? itemStarts.map((sentence) => sentenceStarts[sentence]) : itemStarts;
    const questionStarts = texts.question_length && startsOf(texts.question_length);
    const lower = texts.vocabulary?.map((word) => word.toLowerCase());
    textsRead.set(number_, { ...texts, itemStarts, wordStarts, questionStarts, lower });
  }
  return textsRead.get(number_);
}

class Examples {
  constructor(run, texts, columns) {
    this.run = run;
    this.texts = texts;
    this.columns = columns;
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
    const [texts, columns] = await Promise.all([textsOf(run.texts), blocks(run.numbers)]);
    return new Examples(run, texts, columns);
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

  words(row) {
    const { vocabulary, words, wordStarts } = this.texts;
    const [from, to] = [wordStarts[row], wordStarts[row + 1]];
    if (!vocabulary) return Array.from({ length: to - from }, (_, i) => String(i + 1));
    return Array.from(words.subarray(from, to), (number_) => vocabulary[number_]);
  }

  // places of the words that the model has no vector of its own for
  unknownOf(row) {
    const { vocabulary, words, wordStarts } = this.texts;
    if (!vocabulary || !this.columns.unknown.length) return null;
    this.unknown ??= new Set(this.columns.unknown);
    const places = Array.from(words.subarray(wordStarts[row], wordStarts[row + 1]), (word, i) => (this.unknown.has(word) ? i : -1));
    return new Set(places.filter((i) => i >= 0));
  }

  question(row) {
    const { vocabulary, question, questionStarts } = this.texts;
    if (!questionStarts || !vocabulary) return null;
    const asked = question.subarray(questionStarts[row], questionStarts[row + 1]);
    return Array.from(asked, (number_) => vocabulary[number_]).join(" ");
  }

  // words of each sentence, [from, to) within the text
  sentences(row) {
    const { itemStarts, sentence } = this.texts;
    const spans = [];
    let from = 0;
    for (const length of sentence.subarray(itemStarts[row], itemStarts[row + 1])) {
      spans.push([from, from + length]);
      from += length;
    }
    return spans;
  }

  // which block has the weights of an example, and the kept examples before it there; null: they were left out
  kept(row) {
    const rank = this.rank[row];
    if (rank < 0) return null;
    const place = this.run.blocks.findIndex(({ first, count }) => first <= rank && rank < first + count);
    const { first } = this.run.blocks[place];
    const before = [];
    for (let r = 0; r < row; r++) if (this.rank[r] >= first) before.push(r);
    return { place, before };
  }

  // key of each of these maps → weights of one example; NaN: there is none
  async weights(row, maps) {
    const found = this.kept(row);
    if (!found) return null;
    const { items, wordStarts } = this.texts;
    const length = (inner, r) => (inner ? wordStarts[r + 1] - wordStarts[r] : items[r]);
    const parts = maps.map(async ({ key, inner, unit, blocks: names }) => {
      const levels = await block(names[found.place]);
      const from = found.before.reduce((sum, r) => sum + length(inner, r), 0);
      return [key, Float64Array.from(levels.subarray(from, from + length(inner, row)), (level) => unit * weightOf(level))];
    });
    return Object.fromEntries(await Promise.all(parts));
  }
}
