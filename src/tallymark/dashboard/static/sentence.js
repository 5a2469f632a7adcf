// The query language as far as a page needs it: words by kind for colours, and which clauses a text has.
// Whether a query is right, only the server says.

const KEYWORDS = new Set(["FROM", "SELECT", "WINDOW", "EVERY", "COMPUTE", "WHERE", "BY", "SINCE", "UNTIL", "LIMIT", "AND", "OR", "NOT", "IN"]);
const WORDS = /(?<text>'(?:[^']|'')*'?|"(?:[^"]|"")*"?)|(?<word>[A-Za-z0-9_][A-Za-z0-9_.:/+-]*)|(?<rest>\s+|[^\s])/g;
const NUMBER = /^\d+(\.\d+)?(s|m|h|d|w)?$/;

// [{ kind: "keyword" | "text" | "number" | "name" | "rest", text, at }]
export function words(sentence) {
  return [...sentence.matchAll(WORDS)].map(({ 0: found, index: at, groups }) => ({ at, text: found, kind: kindOf(found, groups) }));
}

function kindOf(found, { text, word }) {
  if (text !== undefined) return "text";
  if (word === undefined) return "rest";
  return KEYWORDS.has(found.toUpperCase()) ? "keyword" : NUMBER.test(found) ? "number" : "name";
}

export const hasClause = (sentence, ...names) => words(sentence).some(({ kind, text }) => kind === "keyword" && names.includes(text.toUpperCase()));

// The text without its SINCE and UNTIL: what can be saved.
export function withoutRange(sentence) {
  let isRange = false;
  const kept = words(sentence).filter(({ kind, text }) => {
    if (kind === "keyword") isRange = ["SINCE", "UNTIL"].includes(text.toUpperCase());
    return !isRange && text !== ";";
  });
  return kept.map(({ text }) => text).join("").trim();
}

// The range goes to the end, so that positions in what was typed stay where they are.
export function withRange(sentence, { range, from, to }) {
  const trimmed = sentence.trimEnd().replace(/;$/, "");
  if (hasClause(trimmed, "SINCE", "UNTIL")) return trimmed;
  if (from && to) return `${trimmed} SINCE ${from} UNTIL ${to}`;
  return range ? `${trimmed} SINCE ${range}` : trimmed;
}

const BARE = /^[A-Za-z0-9_][A-Za-z0-9_.:/+-]*$/;
export const quoted = (name) => (BARE.test(name) && !KEYWORDS.has(name.toUpperCase()) && !name.includes(".") ? name : `'${name.replaceAll("'", "''")}'`);

// The server counts characters, JavaScript counts halves of those beyond U+FFFF.
export const characters = (text, units) => [...text.slice(0, units)].length;
export const units = (text, count) => [...text].slice(0, count).join("").length;
