import type { Dialect } from '@rookery/database';
import type { QueryWord } from './words.js';

// What PostgreSQL can hold of one word in one text.
const maxPositions = 255;
const maxPosition = 16_383;

/** The options of an FTS5 table whose texts are words of ours, set apart by spaces: nothing is to be changed about them. */
export const fts5Options = `content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 0 categories 'L* N* M* Co'"`;

/** Words as both databases store them: a `tsvector` in its text form, or a text for FTS5. */
export function indexText(dialect: Dialect, words: readonly string[]): string {
  if (dialect.name === 'sqlite') return words.join(' ');
  const positions = new Map<string, number[]>();
  for (const [index, word] of words.entries()) {
    const known = positions.get(word);
    if (known === undefined) positions.set(word, [Math.min(index + 1, maxPosition)]);
    else if (known.length < maxPositions && index < maxPosition) known.push(index + 1);
  }
  // Words hold letters, digits and marks only: nothing in them needs to be escaped.
  return [...positions].map(([word, list]) => `'${word}':${list.join(',')}`).join(' ');
}

/** Words to look for, as a `tsquery` or an FTS5 expression: all of them have to be there. */
export function matchText(dialect: Dialect, words: readonly QueryWord[]): string {
  if (dialect.name === 'sqlite') return words.map(({ text, prefix }) => `"${text}"${prefix ? '*' : ''}`).join(' AND ');
  return words.map(({ text, prefix }) => `'${text}'${prefix ? ':*' : ''}`).join(' & ');
}
