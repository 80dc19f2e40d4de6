// What may hold a question mark that is no parameter: strings, quoted names, comments.
const tokens = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\?/g;

/** Rewrites the `?` of a statement to `$1`, `$2`…, leaving strings, quoted names and comments alone. */
export function numberPlaceholders(sql: string): string {
  let count = 0;
  return sql.replace(tokens, (token) => (token === '?' ? `$${++count}` : token));
}
