import { InvalidEventError } from './invalid-event-error.js';
import { maxNesting, NumberText } from './json-text.js';

/** Keys as they are written, quoted and with their colon. The same few dozen make up most events. */
const quotedKeys = new Map<string, string>();
const maxQuotedKeys = 2048;
const maxQuotedKeyLength = 64;
const astral = /[\ud800-\udbff]/;

/**
 * The canonical text of a JSON value: keys in the order of their code points, no white space, shortest escapes. Takes
 * every JSON value; whether numbers obey the strict form is judged by `parsePdu` and `buildEvent`. Properties that are
 * `undefined` are left out.
 *
 * Numbers that the strict form does not know are written so that events of room versions 1 to 5 hash as at their
 * origin: integers as they came, also behind an exponent where they are safe, and everything else by {@link floatText}.
 * @throws InvalidEventError for what is not JSON or nests too deeply
 * @spec appendices#canonical-json
 */
export function canonicalJson(value: unknown): string {
  return write(value, 0);
}

function write(value: unknown, depth: number): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value);
    case 'number':
      if (!Number.isFinite(value)) throw new InvalidEventError('json', 'a number is out of range');
      return Number.isInteger(value) ? String(value) : floatText(value);
    case 'boolean':
      return value ? 'true' : 'false';
    case 'object':
      if (value === null) return 'null';
      if (depth > maxNesting) throw new InvalidEventError('json', 'nested too deeply');
      if (Array.isArray(value)) return writeArray(value, depth + 1);
      if (value instanceof NumberText) return canonicalNumber(value);
      return writeObject(value as Record<string, unknown>, depth + 1);
    default:
      throw new InvalidEventError('json', `a ${typeof value} is not JSON`);
  }
}

function writeArray(items: readonly unknown[], depth: number): string {
  let text = '[';
  for (let i = 0; i < items.length; i++) {
    if (i > 0) text += ',';
    text += items[i] === undefined ? 'null' : write(items[i], depth);
  }
  return `${text}]`;
}

function writeObject(object: Record<string, unknown>, depth: number): string {
  let text = '';
  for (const key of sortKeys(Object.keys(object))) {
    const value = object[key];
    if (value !== undefined) text += (text === '' ? '{' : ',') + quoteKey(key) + write(value, depth);
  }
  return text === '' ? '{}' : `${text}}`;
}

/** Sorts in place by code points. */
function sortKeys(keys: string[]): string[] {
  let inOrder = true;
  let plain = true;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    if (inOrder && i > 0 && !((keys[i - 1] as string) < key)) inOrder = false;
    if (plain && !quotedKeys.has(key) && astral.test(key)) plain = false;
  }
  // The order of UTF-16 differs from the order of code points only where there are surrogates.
  if (!plain) return keys.sort(byCodePoint);
  return inOrder ? keys : keys.sort();
}

function quoteKey(key: string): string {
  const known = quotedKeys.get(key);
  if (known !== undefined) return known;
  const quoted = `${JSON.stringify(key)}:`;
  if (key.length <= maxQuotedKeyLength && !astral.test(key)) {
    if (quotedKeys.size >= maxQuotedKeys) quotedKeys.clear();
    quotedKeys.set(key, quoted);
  }
  return quoted;
}

function canonicalNumber({ source, value }: NumberText): string {
  if (!Number.isFinite(value)) throw new InvalidEventError('json', 'a number is out of range');
  if (/^-?\d+$/.test(source)) return value === 0 ? '0' : source;
  // The specification's own example of an exponent is an integer.
  if (/[eE]/.test(source) && Number.isSafeInteger(value)) return String(value);
  return floatText(value);
}

/**
 * A binary64 as Python writes it, in which the servers that made rooms of these versions are written: shortest digits, a
 * fraction always, and below 1e-4 and from 1e16 on an exponent of at least two digits.
 */
function floatText(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return Object.is(value, -0) ? '-0.0' : '0.0';
  if (size >= 1e-4 && size < 1e16) return Number.isInteger(value) ? `${value}.0` : String(value);
  const [digits, exponent] = value.toExponential().split('e') as [string, string];
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, '0')}`;
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
