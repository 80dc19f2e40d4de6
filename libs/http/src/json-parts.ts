import { ownTurn } from '@rookery/platform';

/** What is written of a JSON text in one turn of the event loop, characters: about a millisecond. */
const pieceChars = 262_144;
/** Nothing that is answered is nested as deep; what is holds itself, which is then said. */
const maxDepth = 256;
/** What a number, or anything else that is short, is taken for, characters. */
const shortChars = 8;

const [openList, closeList, comma] = ['[', ']', ','].map((text) => Buffer.from(text)) as [Buffer, Buffer, Buffer];

/**
 * A JSON list of which the elements are written as they come, so that neither they nor one long text need be kept. Goes out with
 * {@link jsonParts}; to anybody else who writes it, it is the list that it stands for.
 */
export class WrittenList {
  readonly #parts: Uint8Array[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Adds elements, all in one turn of the event loop. */
  add(elements: readonly unknown[]): void {
    if (elements.length > 0) this.#push(Buffer.from(JSON.stringify(elements)).subarray(1, -1), elements.length);
  }

  /** {@link add} for elements that are JSON already, which is taken as it is. */
  addWritten(elements: readonly string[]): void {
    if (elements.length > 0) this.#push(Buffer.from(elements.join(',')), elements.length);
  }

  /** The bytes of the whole, in parts. */
  parts(): Uint8Array[] {
    return [openList, ...this.#parts, closeList];
  }

  toJSON(): unknown {
    return JSON.parse(Buffer.concat(this.parts()).toString());
  }

  #push(bytes: Uint8Array, count: number): void {
    if (this.#length > 0) this.#parts.push(comma);
    this.#parts.push(bytes);
    this.#length += count;
  }
}

/**
 * The JSON of a value: as one text where it is short, in parts where it is not, each of which is written in a turn of the event loop of its
 * own.
 * @throws Error where there is none, as `JSON.stringify` does
 */
export async function jsonParts(value: unknown): Promise<string | Uint8Array[]> {
  if (charsOf(value, pieceChars) <= pieceChars) return JSON.stringify(value) ?? 'null';
  const pieces = new JsonPieces();
  for (const _ of pieces.write(value, 0)) await ownTurn();
  return pieces.end();
}

/** Roughly how long a value's text is; more than `limit` stands for anything longer. */
function charsOf(value: unknown, limit: number): number {
  if (typeof value === 'string') return value.length + 2;
  if (!isOpen(value)) return shortChars;
  if (value instanceof WrittenList) return Infinity;
  let sum = 2;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && sum <= limit; index++) sum += 1 + charsOf(value[index], limit - sum);
    return sum;
  }
  for (const key in value) {
    if (sum > limit) break;
    sum += key.length + 4 + charsOf(value[key], limit - sum);
  }
  return sum;
}

/** Lists and objects that are what they look like. */
const isOpen = (value: unknown): value is Readonly<Record<string, unknown>> | WrittenList =>
  typeof value === 'object' &&
  value !== null &&
  (value instanceof WrittenList || typeof (value as { toJSON?: unknown }).toJSON !== 'function');

class JsonPieces {
  readonly #parts: Uint8Array[] = [];
  #text = '';

  /** Yields where others may have their turn. */
  *write(value: unknown, depth: number): Generator<undefined, void> {
    if (value instanceof WrittenList) {
      this.#flush();
      this.#parts.push(...value.parts());
    } else if (!isOpen(value) || depth > maxDepth || charsOf(value, pieceChars) <= pieceChars) {
      this.#text += JSON.stringify(value) ?? 'null';
    } else if (Array.isArray(value)) yield* this.#members('[', ']', value, depth);
    else yield* this.#members('{', '}', Object.entries(value).filter(isKept), depth);
    if (this.#text.length < pieceChars) return;
    this.#flush();
    yield;
  }

  end(): Uint8Array[] {
    this.#flush();
    return this.#parts;
  }

  *#members(open: '[' | '{', close: string, members: readonly unknown[], depth: number): Generator<undefined, void> {
    let before = open as string;
    for (const member of members) {
      this.#text += before;
      before = ',';
      const [key, value] = open === '{' ? (member as readonly [string, unknown]) : [undefined, member];
      if (key !== undefined) this.#text += `${JSON.stringify(key)}:`;
      yield* this.write(value, depth + 1);
    }
    this.#text += before === ',' ? close : open + close;
  }

  #flush(): void {
    if (this.#text !== '') this.#parts.push(Buffer.from(this.#text));
    this.#text = '';
  }
}

/** What an object's text leaves out. */
const isKept = ([, value]: readonly [string, unknown]): boolean =>
  value !== undefined && typeof value !== 'function' && typeof value !== 'symbol';
