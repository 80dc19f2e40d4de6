import type { SqlValue } from '../database.js';

/** Types whose values PostgreSQL gives back in the very form in which it got them from here. */
const plainTypes = /^(?:smallint|integer|bigint|text|boolean|bytea|character(?: varying)?(?:\(\d+\))?)$/;
const escaped = /[\\\b\f\n\r\t\v]/g;
const escapes: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\v': '\\v',
};

/** Whether lines of a table with such columns read as they were written. */
export const areLinesExact = (types: readonly string[]): boolean => types.every((type) => plainTypes.test(type));

/** A row in the text format of PostgreSQL's COPY, with the end of the line. */
export function copyLine(row: readonly SqlValue[], types: readonly string[]): string {
  let line = '';
  for (let i = 0; i < row.length; i++) {
    if (i > 0) line += '\t';
    line += field(row[i] ?? null, types[i] === 'boolean');
  }
  return `${line}\n`;
}

function field(value: SqlValue, isBoolean: boolean): string {
  if (value === null) return '\\N';
  if (isBoolean) return Number(value) === 0 ? 'f' : 't';
  if (typeof value === 'string') return value.replace(escaped, (character) => escapes[character] ?? character);
  if (value instanceof Uint8Array) return `\\\\x${Buffer.from(value).toString('hex')}`;
  return String(value);
}
