import { InvalidEventError } from './invalid-event-error.js';
import { maxNesting, NumberText } from './json-text.js';

type Order = (a: string, b: string) => number;

const astral = /[\ud800-\udbff]/;

/**
 * The canonical text of a JSON value: keys in the order of their code points, no white space, shortest escapes. Takes
 * every JSON value; whether numbers obey the strict form is judged by `parsePdu` and `buildEvent`. Properties that are
 * `undefined` are left out.
 *
 * Numbers that the strict form does not know are written so that events of room versions 1 to 5 hash as at their
 * origin: integers as they came, whole numbers with a fraction as `1.0`, everything else in its shortest form.
 * @throws InvalidEventError for what is not JSON or nests too deeply
 * @spec appendices#canonical-json
 */
export function canonicalJson(value: unknown): string {
  // UTF-16 order differs from code point order only where there are surrogates, which is next to never.
  const text = write(value, undefined, 0);
  return astral.test(text) ? write(value, byCodePoint, 0) : text;
}

function write(value: unknown, order: Order | undefined, depth: number): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'number':
      if (!Number.isFinite(value)) throw new InvalidEventError('json', 'a number is out of range');
      return String(value);
    case 'boolean':
      return value ? 'true' : 'false';
    case 'object':
      if (value === null) return 'null';
      if (depth > maxNesting) throw new InvalidEventError('json', 'nested too deeply');
      if (Array.isArray(value)) return writeArray(value, order, depth + 1);
      if (value instanceof NumberText) return canonicalNumber(value);
      return writeObject(value as Record<string, unknown>, order, depth + 1);
    default:
      throw new InvalidEventError('json', `a ${typeof value} is not JSON`);
  }
}

function writeArray(items: readonly unknown[], order: Order | undefined, depth: number): string {
  let text = '[';
  for (let i = 0; i < items.length; i++) {
    if (i > 0) text += ',';
    text += items[i] === undefined ? 'null' : write(items[i], order, depth);
  }
  return `${text}]`;
}

function writeObject(object: Record<string, unknown>, order: Order | undefined, depth: number): string {
  let text = '';
  for (const key of Object.keys(object).sort(order)) {
    const value = object[key];
    if (value === undefined) continue;
    text += `${text === '' ? '{' : ','}${JSON.stringify(key)}:${write(value, order, depth)}`;
  }
  return text === '' ? '{}' : `${text}}`;
}

function canonicalNumber({ source, value }: NumberText): string {
  if (!Number.isFinite(value)) throw new InvalidEventError('json', 'a number is out of range');
  if (/^-?\d+$/.test(source)) return value === 0 ? '0' : source;
  if (/[eE]/.test(source) || !Number.isInteger(value)) return String(value);
  return `${Object.is(value, -0) ? '-0' : value}.0`;
}

/** Orders texts by code points: surrogates stand for code points above every other code unit. */
function byCodePoint(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(i);
    if (x !== y) return rank(x) - rank(y);
  }
  return a.length - b.length;
}

const rank = (unit: number): number => (unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit);
