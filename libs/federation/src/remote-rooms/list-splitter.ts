import { isUtf8 } from 'node:buffer';

/** An element of a list, as it is written. */
export interface ListElement {
  /** The key of its list. */
  readonly list: string;
  /** Where it begins in the whole text, bytes. */
  readonly at: number;
  readonly bytes: Buffer;
}

/** What a text may hold. */
export interface SplitLimits {
  /** Longest element, key, or value beside the lists, bytes. */
  readonly maxBytes: number;
  /** Longest value that is kept, bytes; as the others where absent. */
  readonly maxKeptBytes?: number;
  /** Most elements of all lists together. */
  readonly maxElements: number;
}

const [quote, comma, colon, backslash] = [0x22, 0x2c, 0x3a, 0x5c];
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];
const byteOrderMark = [0xef, 0xbb, 0xbf];
const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** What may come next. */
type Place =
  | 'start'
  | 'first key'
  | 'key'
  | 'colon'
  | 'value'
  | 'list'
  | 'first element'
  | 'element'
  | 'after element'
  | 'after member'
  | 'end';

/** Where the text of a value goes. */
type Taken = 'key' | 'other' | 'element';

/** A value that has begun: how far it has come. */
interface Value {
  readonly taken: Taken;
  /** In the whole text. */
  readonly at: number;
  /** `scalar` ends before what follows it. */
  readonly kind: 'string' | 'nested' | 'scalar';
  depth: number;
  inString: boolean;
  isEscaped: boolean;
  /** What lay in earlier pieces of the text. */
  readonly parts: Buffer[];
  length: number;
}

/**
 * Splits a JSON object that arrives piece by piece into the elements of some of its members, which must be lists, and holds no more
 * than one of them. What an element is made of is not looked at: whoever parses each has parsed the whole.
 */
export class ListSplitter {
  #place: Place = 'start';
  /** Of the text that has been seen. */
  #seen = 0;
  #key = '';
  readonly #keys = new Set<string>();
  #value: Value | undefined;
  #elements = 0;
  /** The texts of values that are kept, by key. */
  readonly kept = new Map<string, string>();

  /**
   * @param lists keys whose values are split
   * @param keys those whose values are kept as they are written; others are parsed and forgotten
   */
  constructor(
    private readonly lists: ReadonlySet<string>,
    private readonly limits: SplitLimits,
    private readonly keys: ReadonlySet<string> = new Set(),
  ) {}

  /**
   * @returns the elements that end in this piece
   * @throws SyntaxError where the text is no such object, or has a key twice
   * @throws RangeError where it holds more than it may
   */
  push(piece: Buffer): ListElement[] {
    const elements: ListElement[] = [];
    for (let i = 0; i < piece.length;) {
      if (this.#value) {
        const from = i;
        i = this.#goOn(this.#value, piece, i);
        this.#take(piece, from, i, elements);
      } else {
        this.#step(piece[i]!, this.#seen + i);
        // A value begins with the byte that says so.
        if (!this.#value) i++;
      }
    }
    this.#seen += piece.length;
    return elements;
  }

  /** Told that the text is over. @throws SyntaxError where something is missing */
  end(): void {
    if (this.#place !== 'end') throw new SyntaxError('The text ends too early');
    for (const list of this.lists) if (!this.#keys.has(list)) throw new SyntaxError(`${list} is missing`);
  }

  /** One byte between values. */
  #step(byte: number, at: number): void {
    if (isBlank(byte) || (this.#place === 'start' && byte === byteOrderMark[at])) return;
    switch (this.#place) {
      case 'start':
        return this.#expect(byte === openObject, 'first key');
      case 'first key':
        if (byte === closeObject) return void (this.#place = 'end');
        return this.#begin('key', byte, at, byte === quote);
      case 'key':
        return this.#begin('key', byte, at, byte === quote);
      case 'colon':
        return this.#expect(byte === colon, this.lists.has(this.#key) ? 'list' : 'value');
      case 'value':
        return this.#begin('other', byte, at);
      case 'list':
        return this.#expect(byte === openList, 'first element');
      case 'first element':
        if (byte === closeList) return void (this.#place = 'after member');
        return this.#begin('element', byte, at);
      case 'element':
        return this.#begin('element', byte, at);
      case 'after element':
        if (byte === closeList) return void (this.#place = 'after member');
        return this.#expect(byte === comma, 'element');
      case 'after member':
        if (byte === closeObject) return void (this.#place = 'end');
        return this.#expect(byte === comma, 'key');
      case 'end':
        return this.#expect(false, 'end');
    }
  }

  #expect(isRight: boolean, next: Place): void {
    if (!isRight) throw new SyntaxError(`Something else than was expected: ${this.#place}`);
    this.#place = next;
  }

  #begin(
    taken: Taken,
    byte: number,
    at: number,
    isRight = ![comma, colon, closeList, closeObject].includes(byte),
  ): void {
    this.#expect(isRight, this.#place);
    if (taken === 'element' && ++this.#elements > this.limits.maxElements) throw new RangeError('Too many elements');
    const isNested = byte === openList || byte === openObject;
    const kind = byte === quote ? 'string' : isNested ? 'nested' : 'scalar';
    this.#value = { taken, at, kind, depth: 0, inString: false, isEscaped: false, parts: [], length: 0 };
  }

  /** Follows a value to its end, or to that of the piece. @returns the position behind it */
  #goOn(value: Value, piece: Buffer, from: number): number {
    if (value.kind === 'scalar') {
      let i = from;
      for (; i < piece.length; i++) {
        const byte = piece[i]!;
        if (byte === comma || byte === closeList || byte === closeObject || isBlank(byte)) {
          this.#place = after(value.taken);
          break;
        }
      }
      return i;
    }
    let { depth, inString, isEscaped } = value;
    let i = from;
    while (i < piece.length) {
      const byte = piece[i++]!;
      if (inString) {
        if (isEscaped) isEscaped = false;
        else if (byte === backslash) isEscaped = true;
        else if (byte === quote) {
          inString = false;
          if (depth === 0) {
            this.#place = after(value.taken);
            break;
          }
        }
      } else if (byte === quote) inString = true;
      else if (byte === openList || byte === openObject) depth++;
      else if ((byte === closeList || byte === closeObject) && --depth === 0) {
        this.#place = after(value.taken);
        break;
      }
    }
    value.depth = depth;
    value.inString = inString;
    value.isEscaped = isEscaped;
    return i;
  }

  /** Takes what a piece holds of the value, and the value where it has ended. */
  #take(piece: Buffer, from: number, to: number, elements: ListElement[]): void {
    const value = this.#value!;
    value.length += to - from;
    if (value.length > this.#longest(value.taken)) throw new RangeError('A value is too long');
    const part = piece.subarray(from, to);
    if (this.#place !== after(value.taken)) return void value.parts.push(part);
    this.#value = undefined;
    const bytes = value.parts.length === 0 ? part : Buffer.concat([...value.parts, part]);
    if (!isUtf8(bytes)) throw new SyntaxError('The text is not UTF-8');
    if (value.taken === 'element') elements.push({ list: this.#key, at: value.at, bytes });
    else if (value.taken === 'key') this.#takeKey(bytes);
    else {
      const text = bytes.toString();
      JSON.parse(text);
      if (this.keys.has(this.#key)) this.kept.set(this.#key, text);
    }
  }

  #longest(taken: Taken): number {
    const { maxBytes, maxKeptBytes = maxBytes } = this.limits;
    return taken === 'other' && this.keys.has(this.#key) ? maxKeptBytes : maxBytes;
  }

  #takeKey(bytes: Buffer): void {
    this.#key = JSON.parse(bytes.toString()) as string;
    if (this.#keys.has(this.#key)) throw new SyntaxError('A key stands twice');
    // Whoever sends millions of keys sends no list.
    if (this.#keys.size >= maxKeys) throw new RangeError('Too many keys');
    this.#keys.add(this.#key);
  }
}

/** Keys of the object. */
const maxKeys = 100;

const after = (taken: Taken): Place =>
  taken === 'key' ? 'colon' : taken === 'element' ? 'after element' : 'after member';
