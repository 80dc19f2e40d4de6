/** A text that stands for itself in a pattern of `LIKE ? ESCAPE '\'`. */
export const likeText = (text: string): string => text.replace(/[\\%_]/g, (character) => `\\${character}`);

/** A condition, and the values to bind. */
export interface TextCondition {
  readonly sql: string;
  readonly params: readonly string[];
}

/**
 * That one of some columns holds a text, letters of either case. SQLite, and PostgreSQL in the locale `C`, know the two cases of the letters
 * of English alone: a text with others is looked for in the ways in which people write (`übung`, `Übung`, `ÜBUNG`).
 * @param columns each with what may stand around the text in it, as a pattern: `%` unless told
 */
export function holdsText(
  columns: readonly (string | readonly [column: string, before: string, behind: string])[],
  text: string,
): TextCondition {
  const spellings = spellingsOf(text).map(likeText);
  const conditions: string[] = [];
  const params: string[] = [];
  for (const one of columns) {
    const [column, before, behind] = typeof one === 'string' ? [one, '%', '%'] : one;
    for (const spelling of spellings) {
      // The database lowers the text, as it does the column: it may know other letters than we do.
      conditions.push(`LOWER(${column}) LIKE LOWER(?) ESCAPE '\\'`);
      params.push(`${before}${spelling}${behind}`);
    }
  }
  return { sql: `(${conditions.join(' OR ')})`, params };
}

function spellingsOf(text: string): string[] {
  if (!/\P{ASCII}/u.test(text)) return [text];
  const lower = text.toLowerCase();
  const titled = lower.replace(/(?<!\p{L})\p{L}/gu, (letter) => letter.toUpperCase());
  return [...new Set([text, lower, text.toUpperCase(), titled])];
}
