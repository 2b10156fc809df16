// One run's examples.

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

  // places of the words that the model has no vector of its own for
  unknownOf(row) {
    const { facts, arrays } = this.texts;
    if (!facts.vocabulary || !this.columns.unknown?.length) return null;
    this.unknown ??= new Set(this.columns.unknown);
    const [from, to] = [arrays.wordStarts[row], arrays.wordStarts[row + 1]];
    const places = Array.from(arrays.words.subarray(from, to), (word, i) => (this.unknown.has(word) ? i : -1));
    return new Set(places.filter((i) => i >= 0));
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

  // key of each of these maps → weights of one example; NaN: there is none
  async weights(row, maps) {
    const rank = this.rank[row];
    if (rank < 0) return null;
    const place = this.run.blocks.findIndex(({ first, count }) => first <= rank && rank < first + count);
    const { first } = this.run.blocks[place];
    const { arrays: text } = this.texts;
    const length = (inner, r) => (inner ? text.wordStarts[r + 1] - text.wordStarts[r] : text.items[r]);
    const rows = [];
    for (let r = 0; r < this.count; r++) if (this.rank[r] >= first && this.rank[r] < rank) rows.push(r);
    const parts = maps.map(async ({ key, inner, block: name }) => {
      const { arrays } = await block(`${name}-${place}`, false);
      const from = rows.reduce((sum, r) => sum + length(inner, r), 0);
      const part = arrays.weights.subarray(from, from + length(inner, row));
      return [key, Float64Array.from(part, (n) => (n > this.run.levels ? NaN : (n / this.run.levels) ** 2))];
    });
    return Object.fromEntries(await Promise.all(parts));
  }
}
