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
  if (!texts.words || (!query.words.length && !query.phrases.length)) return () => true;
  const lower = (words) => words.flat().map((word) => word.toLowerCase());
  texts.lower ??= texts.words.map((words, row) => [lower(words), lower(texts.question?.[row] ?? [])]);
  const begins = (words, phrase, i) => phrase.every((part, j) => (j < phrase.length - 1 ? words[i + j] === part : words[i + j]?.startsWith(part)));
  const hasPhrase = (words, phrase) => words.some((_, i) => begins(words, phrase, i));
  return (row) => {
    const [words, asked] = texts.lower[row];
    return (
      query.words.every((term) => words.some((word) => word.includes(term)) || asked.some((word) => word.includes(term))) &&
      query.phrases.every((phrase) => hasPhrase(words, phrase) || hasPhrase(asked, phrase))
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
