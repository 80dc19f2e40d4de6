import type { DialectName } from '@rookery/database';

/** A word of a statement. */
export interface SqlToken {
  /** `name`: a keyword or the name of something; `text`: a text in quotes; `mark`: any other character or number. */
  readonly kind: 'name' | 'text' | 'mark';
  /** Names in lower case and without their quotes, texts without theirs. */
  readonly value: string;
}

const unreadable = (what: string): RangeError => new RangeError(`${what} is not taken here; give values as parameters`);

const word = String.raw`[A-Za-z_\u0080-\u{10ffff}][\w\u0080-\u{10ffff}]*`;
const common = String.raw`[ \t\n\r\f\v]+|\/\*[^]*?\*\/|(?<text>'(?:[^']|'')*')|(?<name>${word})`;

/** What comes next. Quotes inside quotes are doubled; a comment of PostgreSQL ends with either kind of line end. */
const patterns: Readonly<Record<DialectName, RegExp>> = {
  postgres: new RegExp(String.raw`--[^\n\r]*|${common}|(?<quoted>"(?:[^"]|"")*")|(?<mark>[^'"])`, 'uy'),
  sqlite: new RegExp(
    String.raw`--[^\n]*|${common}|(?<quoted>"(?:[^"]|"")*"|${'`(?:[^`]|``)*`'}|\[[^\]]*\])|(?<mark>[^'"${'`'}[])`,
    'uy',
  ),
};

/**
 * The words of a statement as the database reads them, without comments. What the two databases, or two of their settings, could
 * read differently is refused: texts with escapes, texts and names in other quotes, comments inside comments.
 * @throws RangeError
 */
export function sqlTokens(sql: string, dialect: DialectName): SqlToken[] {
  const tokens: SqlToken[] = [];
  const pattern = patterns[dialect];
  for (let at = 0; at < sql.length; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const found = pattern.exec(sql);
    if (!found) throw new RangeError('A quote or a comment of the statement does not end');
    const [whole] = found;
    const { text, quoted, name, mark } = found.groups ?? {};
    if (whole.startsWith('/*') && whole.includes('/*', 2)) throw unreadable('A comment inside a comment');
    if (text !== undefined) tokens.push({ kind: 'text', value: text.slice(1, -1).replaceAll("''", "'") });
    else if (quoted !== undefined) {
      const quote = quoted[0]!;
      const inner = quoted.slice(1, -1);
      tokens.push({
        kind: 'name',
        value: (quote === '[' ? inner : inner.replaceAll(quote + quote, quote)).toLowerCase(),
      });
    } else if (name !== undefined) {
      const next = sql.slice(at + name.length, at + name.length + 2);
      if (/^(?:e|u)$/i.test(name) && /^(?:'|&['"])/.test(next)) throw unreadable('A text or a name with escapes');
      tokens.push({ kind: 'name', value: name.toLowerCase() });
    } else if (mark === '$') throw unreadable('A dollar sign');
    else if (mark !== undefined) {
      // A comment that begins and does not end.
      if (mark === '/' && sql[at + 1] === '*')
        throw new RangeError('A quote or a comment of the statement does not end');
      tokens.push({ kind: 'mark', value: mark });
    }
  }
  return tokens;
}
