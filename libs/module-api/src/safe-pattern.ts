/** Larger patterns are refused: their cost grows with every part. */
const maxParts = 1_000;
const maxSourceLength = 10_000;
/** So many steps are kept, for they come again; when there are more, all are forgotten. */
const maxKept = 20_000;

/** Where a step of a pattern leads without a character: to one of two places, or to one if an assertion holds. */
type Part =
  | { readonly kind: 'character'; readonly fits: (character: string) => boolean; next: number }
  | { readonly kind: 'fork'; next: number; other: number }
  | { readonly kind: 'assertion'; readonly assertion: string; next: number }
  | { readonly kind: 'match' };

/** Where a search stands: the parts that wait for the next character, and what the character before was. */
interface Standing {
  readonly waiting: readonly number[];
  readonly before: string | undefined;
  /** What came of each next character already. */
  readonly known: Map<string | undefined, Standing | 'match'>;
}

/**
 * A regular expression that takes time in proportion to the text, whatever the pattern and the text: what operators and users
 * write cannot hold up the server as `^(a+)+$` does in a `RegExp`. Syntax and meaning are those of a `RegExp` with the flag `u`, without
 * what cannot be had in that time: references back (`\1`) and looking around (`(?=…)`, `(?<!…)`). It says whether a text matches, not where.
 *
 * ```ts
 * const pattern = new SafePattern('buy (cheap|now)+', 'i');
 * if (pattern.test('BUY CHEAP')) api.log.info('Somebody sells something');
 * ```
 */
export class SafePattern {
  readonly #parts: Part[] = [];
  readonly #start: number;
  #standings = new Map<string, Standing>();
  #kept = 0;

  /**
   * @param flags any of `i` (letters of either case), `m` (`^` and `$` at every line) and `s` (`.` is any character)
   * @throws SyntaxError for what is no pattern, and for references and looking around; RangeError for one that is too large
   */
  constructor(
    readonly source: string,
    readonly flags: string = '',
  ) {
    if (source.length > maxSourceLength) throw new RangeError(`A pattern has at most ${maxSourceLength} characters`);
    if (!/^[ims]*$/.test(flags)) throw new SyntaxError(`A pattern knows the flags i, m and s, not ${flags}`);
    // The engine says what is wrong with it; what follows may rely on its syntax.
    void new RegExp(source, `${flags}u`);
    const parser = new Parser(source, flags, this.#parts);
    const match = this.#parts.push({ kind: 'match' }) - 1;
    this.#start = parser.pattern(match);
  }

  /** Whether the pattern matches anywhere in a text. */
  test(text: string): boolean {
    let at: Standing = this.#standing([], undefined);
    for (const character of text) {
      const next = this.#step(at, character);
      if (next === 'match') return true;
      at = next;
    }
    return this.#step(at, undefined) === 'match';
  }

  /** @param character the next one; `undefined` at the end */
  #step(at: Standing, character: string | undefined): Standing | 'match' {
    const known = at.known.get(character);
    if (known !== undefined) return known;
    const reached = new Set<number>();
    const moved: number[] = [];
    const pending = [this.#start, ...at.waiting];
    let isMatch = false;
    for (let index = pending.pop(); index !== undefined && !isMatch; index = pending.pop()) {
      if (reached.has(index)) continue;
      reached.add(index);
      const part = this.#parts[index]!;
      if (part.kind === 'match') isMatch = true;
      else if (part.kind === 'fork') pending.push(part.other, part.next);
      else if (part.kind === 'assertion') {
        if (this.#holds(part.assertion, at.before, character)) pending.push(part.next);
      } else if (character !== undefined && part.fits(character)) moved.push(part.next);
    }
    const result = isMatch
      ? 'match'
      : this.#standing(
          [...new Set(moved)].sort((a, b) => a - b),
          character,
        );
    if (++this.#kept > maxKept) {
      this.#standings = new Map();
      this.#kept = 0;
    } else at.known.set(character, result);
    return result;
  }

  #standing(waiting: readonly number[], before: string | undefined): Standing {
    // Of the character before, only these differences are ever asked for.
    const kind = before === undefined ? 'start' : this.#isWord(before) ? 'w' : isLineEnd(before) ? 'n' : 'o';
    const key = `${kind}${waiting.join()}`;
    let standing = this.#standings.get(key);
    if (!standing) this.#standings.set(key, (standing = { waiting, before, known: new Map() }));
    return standing;
  }

  #holds(assertion: string, before: string | undefined, after: string | undefined): boolean {
    const lines = this.flags.includes('m');
    switch (assertion) {
      case '^':
        return before === undefined || (lines && isLineEnd(before));
      case '$':
        return after === undefined || (lines && isLineEnd(after));
      case '\\b':
        return this.#isWord(before) !== this.#isWord(after);
      default:
        return this.#isWord(before) === this.#isWord(after);
    }
  }

  #isWord(character: string | undefined): boolean {
    return character !== undefined && (this.flags.includes('i') ? /^\w$/iu : /^\w$/).test(character);
  }
}

const isLineEnd = (character: string): boolean => /^[\n\r\u2028\u2029]$/.test(character);

/** A piece of a pattern: makes its parts so that they lead to `next`, and says where they begin. */
type Piece = (next: number) => number;

/** Reads a pattern whose syntax is known to be right. */
class Parser {
  #at = 0;

  constructor(
    private readonly source: string,
    private readonly flags: string,
    private readonly parts: Part[],
  ) {}

  pattern(match: number): number {
    return this.#alternatives()(match);
  }

  #add(part: Part): number {
    if (this.parts.length >= maxParts) throw new RangeError(`The pattern is too large: ${this.source.slice(0, 100)}`);
    return this.parts.push(part) - 1;
  }

  #take(text: string): boolean {
    if (!this.source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #alternatives(): Piece {
    const options: Piece[] = [this.#sequence()];
    while (this.#take('|')) options.push(this.#sequence());
    return options.reduceRight((rest, option) => (next) => {
      const other = rest(next);
      return this.#add({ kind: 'fork', next: option(next), other });
    });
  }

  #sequence(): Piece {
    const pieces: Piece[] = [];
    while (this.#at < this.source.length && !/[|)]/.test(this.source[this.#at]!)) pieces.push(this.#repeated());
    return (next) => pieces.reduceRight((after, piece) => piece(after), next);
  }

  #repeated(): Piece {
    const piece = this.#atom();
    const [whole, sign, from, range, to] =
      /^(?:([*+?])|\{(\d+)(,)?(\d+)?\})\??/.exec(this.source.slice(this.#at, this.#at + 40)) ?? [];
    if (whole === undefined) return piece;
    this.#at += whole.length;
    const least = sign === undefined ? Number(from) : sign === '+' ? 1 : 0;
    const most = sign === '?' ? 1 : sign !== undefined ? Infinity : range ? Number(to ?? Infinity) : least;
    if (least > maxParts || (most !== Infinity && most > maxParts)) {
      throw new RangeError(`The pattern is too large: ${this.source.slice(0, 100)}`);
    }
    return (next) => {
      let after = next;
      if (most === Infinity) {
        const loop: Part & { kind: 'fork' } = { kind: 'fork', next: -1, other: next };
        after = this.#add(loop);
        loop.next = piece(after);
      } else {
        for (let times = least; times < most; times++) {
          after = this.#add({ kind: 'fork', next: piece(after), other: next });
        }
      }
      for (let times = 0; times < least; times++) {
        const before = piece(after);
        // What has no parts is the same however often it comes; nested, such counts multiply.
        if (before === after) break;
        after = before;
      }
      return after;
    };
  }

  #atom(): Piece {
    if (this.#take('(')) {
      const [kind] = /^\?(?:<?[=!]|<[^>]*>|[^:)]*:)/.exec(this.source.slice(this.#at)) ?? [''];
      if (/^\?(?:<?[=!])/.test(kind))
        throw new SyntaxError('A safe pattern cannot look around: (?=…), (?!…), (?<=…), (?<!…)');
      if (/^\?[^:<]/.test(kind)) throw new SyntaxError('A safe pattern has its flags as a whole');
      this.#at += kind.length;
      const inner = this.#alternatives();
      this.#take(')');
      return inner;
    }
    for (const assertion of ['^', '$', '\\b', '\\B']) {
      if (this.#take(assertion)) return (next) => this.#add({ kind: 'assertion', assertion, next });
    }
    const text = this.#character();
    const one = new RegExp(`^(?:${text})$`, this.flags.replace('m', '') + 'u');
    const fits = (character: string): boolean => one.test(character);
    return (next) => this.#add({ kind: 'character', fits, next });
  }

  /** The source of what stands for one character. */
  #character(): string {
    const rest = this.source.slice(this.#at);
    if (/^\\(?:[1-9]|k<)/.test(rest)) throw new SyntaxError('A safe pattern cannot refer back: \\1, \\k<name>');
    const [text] =
      /^(?:\[(?:\\[^]|[^\]\\])*\]|\\(?:u\{[^}]*\}|u[\da-f]{4}\\u[\da-f]{4}|u[\da-f]{4}|x[\da-f]{2}|[pP]\{[^}]*\}|c[a-z]|[^])|[^])/iu.exec(
        rest,
      ) ?? [''];
    this.#at += text.length;
    return text;
  }
}
