import { randomUUID } from 'node:crypto';
import { InvalidEventError } from './invalid-event-error.js';

/** What the compiler's library does not know yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

/**
 * A number whose text is not canonical: a fraction, an exponent, `-0`, or an integer that a binary64 may not hold.
 * `JSON.parse` would hide the difference, but room versions from 6 on refuse such events, and the older ones hash them.
 * `JSON.stringify` writes the text back as it came.
 */
export class NumberText {
  constructor(readonly source: string) {}

  /** The nearest number. */
  get value(): number {
    return Number(this.source);
  }

  /** Used by `JSON.stringify`. */
  toJSON(): unknown {
    return rawJSON(this.source);
  }
}

/** Deepest nesting of objects and lists in an event. */
export const maxNesting = 512;

/**
 * Deepest nesting below `content` in an event of this server. Parsers in use give up at 127 levels, counted from the request
 * or answer around the event; who cannot read one event of a room cannot join it.
 */
export const maxOwnNesting = 100;

// Cheap and too generous: matches in strings are sorted out by the exact scan.
const maybeOdd = /(?:^|[:,[])\s*(?:-0|-?\d+[.eE]|-?\d{16})/;

/**
 * Parses JSON that came from outside. Equal to `JSON.parse`, except that numbers whose text is not canonical come back
 * as {@link NumberText}; costs more than `JSON.parse` only when the text holds such a number. Nesting is not limited, so
 * that one event cannot spoil the transaction around it: `parsePdu` judges each alone.
 * @throws InvalidEventError kind `json` when the text is not JSON; nothing else
 */
export function parseJson(text: string): unknown {
  return readJson(text).value;
}

/** {@link parseJson}, and whether there are {@link NumberText}s inside. */
export function readJson(text: string): { readonly value: unknown; readonly odd: boolean } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidEventError('json', 'not JSON');
  }
  if (!maybeOdd.test(text)) return { value, odd: false };
  // A reviver would see the source of numbers, but recurses. Strings go through the parser as they are; nobody outside
  // can guess what marks them.
  const mark = `${randomUUID()}:`;
  const marked = markOddNumbers(text, mark);
  return marked === undefined ? { value, odd: false } : { value: unmark(JSON.parse(marked), mark), odd: true };
}

/** Whether a number's text is not what canonical JSON would write. */
function isOddNumber(source: string): boolean {
  const number = Number(source);
  return !Number.isSafeInteger(number) || String(number) !== source;
}

/** Valid JSON with every number that is not canonical turned into a marked string; `undefined` when there is none. */
function markOddNumbers(text: string, mark: string): string | undefined {
  let marked = '';
  let copied = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0x22) {
      i = endOfString(text, i);
    } else if (unit === 0x2d || (unit >= 0x30 && unit <= 0x39)) {
      let end = i + 1;
      while (end < text.length && isNumberUnit(text.charCodeAt(end))) end++;
      const source = text.slice(i, end);
      if (isOddNumber(source)) {
        marked += `${text.slice(copied, i)}"${mark}${source}"`;
        copied = end;
      }
      i = end;
    }
  }
  return copied === 0 ? undefined : marked + text.slice(copied);
}

/** Puts {@link NumberText}s in place of marked strings, everywhere in what the parser just made. */
function unmark(parsed: unknown, mark: string): unknown {
  const root = { parsed };
  const waiting: Record<string, unknown>[] = [root];
  for (let object = waiting.pop(); object !== undefined; object = waiting.pop()) {
    for (const key of Object.keys(object)) {
      const value = object[key];
      if (typeof value === 'string') {
        // Keys are the parser's own properties, `__proto__` too.
        if (value.startsWith(mark)) object[key] = new NumberText(value.slice(mark.length));
      } else if (typeof value === 'object' && value !== null) {
        waiting.push(value as Record<string, unknown>);
      }
    }
  }
  return root.parsed;
}

/** Position of the quote that closes the string which opens at `start`. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (end >= 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end < 0 ? text.length : end;
}

/** Whether an odd number of backslashes stands before a position. */
function isEscaped(text: string, at: number): boolean {
  let start = at;
  while (text.charCodeAt(start - 1) === 0x5c) start--;
  return (at - start) % 2 === 1;
}

/** Digits, `+`, `-`, `.`, `e`, `E`. */
const isNumberUnit = (unit: number): boolean =>
  (unit >= 0x30 && unit <= 0x39) || unit === 0x2b || unit === 0x2d || unit === 0x2e || unit === 0x45 || unit === 0x65;

/** What {@link inspectJson} found. */
export interface JsonFindings {
  /** There are {@link NumberText}s inside. */
  readonly odd: boolean;
  /** The canonical form is not longer than this. */
  readonly maxBytes: number;
}

/** Most values (of any type) in one event; more cannot fit into its size. */
const maxNodes = 65_536;

/** Longest that a number of binary64 gets in JSON. */
const maxNumberBytes = 25;

/**
 * Judges an object as the JSON of one event: only JSON types, whole code points, bounded nesting and count. Does not
 * recurse and does not depend on how the value was made.
 * @param strict refuse every number that canonical JSON does not know
 * @param deepest how many levels there may be below `root`
 * @throws InvalidEventError
 * @spec appendices#canonical-json
 */
export function inspectJson(root: object, strict: boolean, deepest = maxNesting): JsonFindings {
  let odd = false;
  let count = 0;
  let maxBytes = 0;
  let level: object[] = [root];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > deepest) throw new InvalidEventError('json', 'nested too deeply');
    const inner: object[] = [];
    for (const item of level) {
      if (Array.isArray(item)) {
        grow(item.length);
        for (let i = 0; i < item.length; i++) visit(item[i], inner);
      } else {
        const object = item as Record<string, unknown>;
        const keys = Object.keys(object);
        grow(keys.length);
        // Written by JSON.stringify in another way than it is hashed: dates and the like.
        if (typeof object['toJSON'] === 'function') throw new InvalidEventError('json', 'not a plain object');
        for (const key of keys) {
          visitText(key);
          visit(object[key], inner);
        }
      }
    }
    level = inner;
  }
  return { odd, maxBytes };

  function grow(children: number): void {
    count += children;
    if (count > maxNodes) throw new InvalidEventError('tooLarge', 'too many values');
    maxBytes += 2 + 2 * children;
  }

  function visitText(text: string): void {
    if (!text.isWellFormed()) throw new InvalidEventError('json', 'a text holds half a surrogate pair');
    // An escaped control character takes six bytes.
    maxBytes += 2 + 6 * text.length;
  }

  function visit(value: unknown, inner: object[]): void {
    switch (typeof value) {
      case 'string':
        visitText(value);
        return;
      case 'number':
        if (!Number.isFinite(value)) throw new InvalidEventError('json', 'a number is out of range');
        if (strict && !Number.isSafeInteger(value)) throw new InvalidEventError('json', 'a number is no safe integer');
        maxBytes += maxNumberBytes;
        return;
      case 'boolean':
      case 'undefined': // left out of what is written, or null in a list
        maxBytes += 5;
        return;
      case 'object':
        if (value === null) maxBytes += 4;
        else if (value instanceof NumberText) {
          if (strict) throw new InvalidEventError('json', 'a number is not canonical');
          if (!Number.isFinite(value.value)) throw new InvalidEventError('json', 'a number is out of range');
          maxBytes += maxNumberBytes + value.source.length;
          odd = true;
        } else inner.push(value);
        return;
      default:
        throw new InvalidEventError('json', `a ${typeof value} is not JSON`);
    }
  }
}

/** A copy with plain numbers in place of {@link NumberText}s. Nesting was bounded before. */
export function withPlainNumbers(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof NumberText) return value.value;
  if (Array.isArray(value)) return value.map(withPlainNumbers);
  // fromEntries defines keys, so that `__proto__` stays a key like any other.
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withPlainNumbers(inner)]));
}
