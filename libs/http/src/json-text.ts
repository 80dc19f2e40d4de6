import { MatrixError } from '@rookery/matrix-types';
import { isUtf8 } from 'node:buffer';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Deepest nesting of a JSON body. */
export const maxJsonDepth = 128;
/** Most values and keys of a JSON body: what they cost in memory is far more than their bytes. */
export const maxJsonValues = 500_000;
/** Longest text that is parsed in one go, bytes. The worst of this length takes some ten milliseconds. */
const pieceBytes = 65_536;
/** Longest body that is read in one turn of the event loop, bytes. */
const oneTurnBytes = 262_144;

/** What is asked of a JSON text beside its grammar. */
export interface JsonRules {
  /** Default 128. */
  readonly maxDepth?: number;
  /** Default 500,000. */
  readonly maxValues?: number;
  /** Longest string as it is written, bytes: it is parsed in one go. Default: as long as the text. */
  readonly maxStringBytes?: number;
  /** Parses a piece of the text; `JSON.parse` unless given. Whatever it throws makes the text no JSON. */
  readonly parse?: (text: string) => unknown;
  /** Take numbers as `parse` gives them. Default false: what would come out as another integer, or as none, is refused. */
  readonly anyNumber?: boolean;
}

const notJson = (): MatrixError => MatrixError.notJson();
const isBlank = (text: string): boolean => /^[ \t\n\r]*$/.test(text);

/** A list or object that is open where the scan stands. */
interface Frame {
  readonly isList: boolean;
  /** Position of its bracket. */
  readonly start: number;
  /** Where the member begins that the scan is in. */
  memberStart: number;
  /** Everything before is in {@link built}. */
  builtTo: number;
  /** `undefined` while it is short enough to be parsed as a part of what is around it. */
  built: unknown[] | Record<string, unknown> | undefined;
  /** What stands before {@link builtTo} is a member that was built; a comma has to follow. */
  afterMember: boolean;
}

/** Keys are what they are, `__proto__` too. */
function setMember(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__')
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}

/**
 * Reads a JSON text in pieces: finds the commas of what is too long for one go, parses what is between them, and puts the
 * results together. Yields between pieces, so that others may have their turn.
 */
class JsonReader {
  readonly #frames: Frame[] = [];
  readonly #maxDepth: number;
  readonly #maxValues: number;
  readonly #maxStringBytes: number;
  readonly #exact: boolean;
  readonly #parseText: (text: string) => unknown;
  #values = 1;
  #root: { readonly value: unknown; readonly start: number; readonly end: number } | undefined;

  constructor(
    private readonly bytes: Buffer,
    rules: JsonRules,
  ) {
    this.#maxDepth = rules.maxDepth ?? maxJsonDepth;
    this.#maxValues = rules.maxValues ?? maxJsonValues;
    this.#maxStringBytes = rules.maxStringBytes ?? Infinity;
    this.#exact = rules.anyNumber !== true;
    this.#parseText = rules.parse ?? ((text) => JSON.parse(text) as unknown);
  }

  *read(): Generator<undefined, unknown> {
    const { bytes } = this;
    if (!isUtf8(bytes)) throw MatrixError.notJson('The body is not UTF-8');
    // A byte order mark is none of the text.
    const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    let restAt = pieceBytes * 16;
    for (let i = start; i < bytes.length; i++) {
      const byte = bytes[i]!;
      if (byte === 0x22) {
        const end = Math.min(bytes.length, ++i + this.#maxStringBytes);
        for (; i < end; i++) {
          const inside = bytes[i]!;
          if (inside === 0x5c) i++;
          else if (inside === 0x22) break;
        }
        if (i < bytes.length && (i > end || (i === end && bytes[i] !== 0x22)))
          throw MatrixError.tooLarge(`A string of the JSON is longer than ${this.#maxStringBytes} bytes`);
      } else if (byte === 0x2c) {
        if (this.#comma(i)) yield;
      } else if (byte === 0x7b || byte === 0x5b) this.#open(byte === 0x5b, i);
      else if (byte === 0x7d || byte === 0x5d) {
        if (this.#close(byte === 0x5d, i)) yield;
      } else if (this.#exact && ((byte >= 0x30 && byte <= 0x39) || byte === 0x2d)) i = this.#number(i);
      if (i > restAt) {
        restAt += pieceBytes * 16;
        yield;
      }
    }
    if (this.#frames.length > 0) throw notJson();
    if (this.#root === undefined) return this.#parse(this.#text(start, bytes.length));
    if (!isBlank(this.#text(start, this.#root.start)) || !isBlank(this.#text(this.#root.end, bytes.length)))
      throw notJson();
    return this.#root.value;
  }

  #text(from: number, to: number): string {
    return this.bytes.toString('utf8', from, to);
  }

  #parse(text: string): unknown {
    try {
      return this.#parseText(text);
    } catch {
      throw notJson();
    }
  }

  #count(): void {
    if (++this.#values > this.#maxValues)
      throw MatrixError.tooLarge(`The JSON has more than ${this.#maxValues} values`);
  }

  #open(isList: boolean, at: number): void {
    this.#count();
    if (this.#frames.length >= this.#maxDepth)
      throw MatrixError.badJson(`The JSON is nested more than ${this.#maxDepth} deep`);
    this.#frames.push({
      ...{ isList, start: at, memberStart: at + 1, builtTo: at + 1 },
      ...{ built: undefined, afterMember: false },
    });
  }

  /** Whether something was built. */
  #comma(at: number): boolean {
    this.#count();
    const frame = this.#frames.at(-1);
    if (frame === undefined) throw notJson();
    const long = at - frame.builtTo > pieceBytes;
    if (long) this.#build(frame, at);
    frame.memberStart = at + 1;
    if (long) {
      frame.builtTo = at + 1;
      frame.afterMember = false;
    }
    return long;
  }

  #close(isList: boolean, at: number): boolean {
    const frame = this.#frames.pop();
    if (frame === undefined || frame.isList !== isList) throw notJson();
    if (frame.built === undefined) return false;
    this.#build(frame, at);
    const parent = this.#frames.at(-1);
    if (parent === undefined) {
      this.#root ??= { value: frame.built, start: frame.start, end: at + 1 };
      return true;
    }
    // What stands before it in its parent has its place before it.
    if (parent.memberStart > parent.start + 1 && parent.memberStart > parent.builtTo)
      this.#build(parent, parent.memberStart - 1);
    parent.built ??= parent.isList ? [] : {};
    const label = this.#text(parent.memberStart, frame.start);
    if (Array.isArray(parent.built)) {
      if (!isBlank(label)) throw notJson();
      parent.built.push(frame.built);
    } else {
      const [key] = Object.keys(this.#parse(`{${label}null}`) as object);
      if (key === undefined) throw notJson();
      setMember(parent.built, key, frame.built);
    }
    parent.builtTo = at + 1;
    parent.afterMember = true;
    return true;
  }

  /** Adds the members up to a position, which is that of a comma or of the end. */
  #build(frame: Frame, to: number): void {
    let piece = this.#text(frame.builtTo, to);
    if (frame.afterMember) {
      const between = /^[ \t\n\r]*(,|$)/.exec(piece);
      if (between === null) throw notJson();
      if (between[1] === '') return;
      piece = piece.slice(between[0].length);
    }
    if (isBlank(piece)) throw notJson();
    if (frame.isList) {
      const list = (frame.built ??= []) as unknown[];
      for (const value of this.#parse(`[${piece}]`) as unknown[]) list.push(value);
    } else {
      const object = (frame.built ??= {}) as Record<string, unknown>;
      const members = this.#parse(`{${piece}}`) as Record<string, unknown>;
      for (const key of Object.keys(members)) setMember(object, key, members[key]);
    }
  }

  /** Passes over a number. @returns the position of its last digit */
  #number(at: number): number {
    const { bytes } = this;
    let end = at + 1;
    let written = bytes[at] === 0x2d ? 0 : 1;
    let whole = true;
    for (; end < bytes.length; end++, written++) {
      const byte = bytes[end]!;
      if (byte >= 0x30 && byte <= 0x39) continue;
      if (byte !== 0x2e && byte !== 0x65 && byte !== 0x45 && byte !== 0x2b && byte !== 0x2d) break;
      whole = false;
    }
    if (whole ? written > 15 : written > 4) {
      const number = Number(bytes.toString('latin1', at, end));
      if (whole ? !Number.isSafeInteger(number) : Math.abs(number) === Infinity)
        throw MatrixError.badJson('A number is larger than JSON can carry safely');
    }
    return end - 1;
  }
}

async function inTurns(steps: Generator<undefined, unknown>): Promise<unknown> {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
    await nextTurn();
  }
}

/**
 * Parses JSON from outside. Keys named `__proto__` stay plain keys; of a repeated key the last one counts; a byte order mark
 * is passed over. Text of up to 256 KiB is read at once, longer text in slices.
 * @throws MatrixError 400 `M_NOT_JSON`, 400 `M_BAD_JSON` when it is nested too deeply or holds a number that would come out
 *   as another, 413 `M_TOO_LARGE` when it has too many values. Text that is read in slices rejects the promise
 */
export function parseJsonText(bytes: Buffer, rules: JsonRules = {}): unknown {
  const steps = new JsonReader(bytes, rules).read();
  if (bytes.length > oneTurnBytes) return inTurns(steps);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** {@link parseJsonText}, always as a promise. */
export const parseJsonInSlices = async (bytes: Buffer, rules: JsonRules = {}): Promise<unknown> =>
  parseJsonText(bytes, rules);
