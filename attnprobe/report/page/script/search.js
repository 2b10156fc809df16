// Search, and words as text.

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
  const { lower, words: numbers, wordStarts, question, questionStarts: asked } = texts;
  if (!lower || (!query.words.length && !query.phrases.length)) return () => true;
  const terms = query.words.slice(0, 31);
  const full = 2 ** terms.length - 1;
  const bits = new Uint32Array(lower.length);
  lower.forEach((word, i) => terms.forEach((term, bit) => word.includes(term) && (bits[i] |= 1 << bit)));
  const hasPhrase = (phrase, words, from, to) => {
    const last = phrase.length - 1;
    search: for (let i = from; i + last < to; i++) {
      for (let j = 0; j <= last; j++) {
        const word = lower[words[i + j]];
        if (j < last ? word !== phrase[j] : !word.startsWith(phrase[j])) continue search;
      }
      return true;
    }
    return false;
  };
  return (row) => {
    let found = 0;
    for (let i = wordStarts[row]; i < wordStarts[row + 1] && found !== full; i++) found |= bits[numbers[i]];
    if (asked) for (let i = asked[row]; i < asked[row + 1] && found !== full; i++) found |= bits[question[i]];
    if (found !== full) return false;
    return query.phrases.every(
      (phrase) =>
        hasPhrase(phrase, numbers, wordStarts[row], wordStarts[row + 1]) ||
        (asked && hasPhrase(phrase, question, asked[row], asked[row + 1])),
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
