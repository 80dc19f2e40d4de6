/** A part of an expression: a string, a name, a number, an operator or space. */
interface Token {
  readonly kind: 'string' | 'name' | 'number' | 'space' | 'operator';
  readonly text: string;
}

const tokenPattern =
  /(?<string>"(?:\\[\s\S]|[^"\\])*"|'(?:\\[\s\S]|[^'\\])*')|(?<name>[\p{L}_][\p{L}\p{N}_]*)|(?<number>\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?<space>\s+)|(?<operator>\*\*|\/\/|[=!<>]=|[\s\S])/uy;
const rawBlock = /\{%[-+]?\s*raw\s*[-+]?%\}[\s\S]*?\{%[-+]?\s*endraw\s*[-+]?%\}/y;
const closing: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };
/** Filters of ours that give finished HTML: the engine takes what comes from a filter for a mere text. */
const givesHtml: ReadonlySet<string> = new Set(['urlize', 'forceescape', 'xmlattr']);
/** The variable of the field's mails that holds finished HTML. */
const finishedHtml = 'body_text_html';

/**
 * Says what a template in Jinja2 says in words that the engine understands in the same way: the formatting operator and
 * `format` of texts, what prints nothing and truth, and values that come as finished HTML. Lines stay where they are.
 * @param source as the operator wrote it; what is wrong with it stays wrong, for the engine to say
 */
export function translate(source: string): string {
  let result = '';
  for (let at = 0; at < source.length;) {
    const start = source.indexOf('{', at);
    if (start < 0) return result + source.slice(at);
    result += source.slice(at, start);
    at = start;
    const kind = source[start + 1];
    rawBlock.lastIndex = start;
    const raw = kind === '%' ? rawBlock.exec(source)?.[0] : undefined;
    if (raw !== undefined) {
      result += raw;
      at += raw.length;
    } else if (kind === '#') {
      const end = source.indexOf('#}', start + 2);
      at = end < 0 ? source.length : end + 2;
      result += source.slice(start, at);
    } else if (kind === '{' || kind === '%') {
      const { tokens, end } = tokensOf(source, start + 2, kind === '{' ? '}}' : '%}');
      const body = rewrite(tokens);
      result += source.slice(start, start + 2) + (kind === '{' ? output(body) : textOf(body));
      at = end;
    } else {
      result += '{';
      at += 1;
    }
  }
  return result;
}

/** The tokens up to the end of a block, its end not among them. */
function tokensOf(source: string, from: number, end: string): { tokens: Token[]; end: number } {
  const tokens: Token[] = [];
  let at = from;
  let depth = 0;
  while (at < source.length) {
    if (depth === 0 && source.startsWith(end, at)) break;
    tokenPattern.lastIndex = at;
    const { 0: text = '', groups = {} } = tokenPattern.exec(source) ?? {};
    if (text === '') break;
    const kind =
      (['string', 'name', 'number', 'space'] as const).find((one) => groups[one] !== undefined) ?? 'operator';
    if (kind === 'operator' && text in closing) depth += 1;
    else if (kind === 'operator' && ')]}'.includes(text)) depth = Math.max(0, depth - 1);
    tokens.push({ kind, text });
    at += text.length;
  }
  return { tokens, end: at };
}

const textOf = (tokens: readonly Token[]): string => tokens.map(({ text }) => text).join('');
const operator = (text: string): Token => ({ kind: 'operator', text });
const is = (token: Token | undefined, text: string): boolean => token?.kind === 'operator' && token.text === text;

/** The next token that is no space. */
function next(tokens: readonly Token[], from: number): number {
  let at = from;
  while (tokens[at]?.kind === 'space') at += 1;
  return at;
}

/** Behind the bracket that closes the one at `from`. */
function behindBrackets(tokens: readonly Token[], from: number): number {
  let depth = 0;
  for (let at = from; at < tokens.length; at++) {
    const { kind, text } = tokens[at]!;
    if (kind !== 'operator') continue;
    if (text in closing) depth += 1;
    else if (')]}'.includes(text) && --depth === 0) return at + 1;
  }
  return tokens.length;
}

/** Behind what an operator in front of `from` takes: a value with its attributes, calls and filters. */
function behindOperand(tokens: readonly Token[], from: number): number {
  let at = next(tokens, from);
  while (is(tokens[at], '-') || is(tokens[at], '+')) at = next(tokens, at + 1);
  const first = tokens[at];
  if (first === undefined) return at;
  at = first.kind === 'operator' && first.text in closing ? behindBrackets(tokens, at) : at + 1;
  for (;;) {
    const here = next(tokens, at);
    if (is(tokens[here], '(') || is(tokens[here], '[')) at = behindBrackets(tokens, here);
    else if (is(tokens[here], '.') || is(tokens[here], '|')) at = next(tokens, here + 1) + 1;
    else return at;
  }
}

const hasComma = (tokens: readonly Token[]): boolean => {
  let depth = 0;
  return tokens.some(({ kind, text }) => {
    if (kind !== 'operator') return false;
    if (text in closing) depth += 1;
    else if (')]}'.includes(text)) depth -= 1;
    return depth === 0 && text === ',';
  });
};

function rewrite(tokens: readonly Token[]): Token[] {
  const result: Token[] = [];
  for (let at = 0; at < tokens.length;) {
    const token = tokens[at]!;
    const following = next(tokens, at + 1);
    if (token.kind === 'string' && is(tokens[following], '%') && next(tokens, following + 1) < tokens.length) {
      const from = next(tokens, following + 1);
      const end = behindOperand(tokens, from);
      const operand = tokens.slice(from, end);
      const inBrackets = is(operand[0], '(') && behindBrackets(operand, 0) === operand.length;
      const inside = inBrackets ? operand.slice(1, -1) : operand;
      const several = inBrackets && hasComma(inside);
      const values = rewrite(several ? inside : operand);
      const lines = textOf(tokens.slice(at + 1, from)).replaceAll(/[^\n]/g, '');
      result.push(operator('('), token, operator('|'), { kind: 'name', text: 'format' }, operator('('));
      result.push({ kind: 'space', text: lines }, ...values);
      result.push(operator(')'), operator(')'));
      at = end;
    } else if (is(token, '.') && tokens[at + 1]?.text === 'format' && is(tokens[at + 2], '(')) {
      result.push(operator('|'), { kind: 'name', text: 'str_format' });
      at += 2;
    } else if (is(token, '|') && givesHtml.has(tokens[following]?.text ?? '')) {
      const open = next(tokens, following + 1);
      const end = is(tokens[open], '(') ? behindBrackets(tokens, open) : following + 1;
      result.push(token, ...rewrite(tokens.slice(at + 1, end)), operator('|'), { kind: 'name', text: 'safe' });
      at = end;
    } else {
      result.push(token);
      at += 1;
    }
  }
  return result;
}

/** What a block prints: nothing and truth in the words of Jinja2, where it is a mere value. */
function output(tokens: readonly Token[]): string {
  const text = textOf(tokens);
  const [, before = '', value = '', after = ''] = /^([-+]?\s*)([\s\S]*?)(\s*[-+]?)$/.exec(text) ?? [];
  if (!/^[\p{L}_][\p{L}\p{N}_]*(?:\.[\p{L}_][\p{L}\p{N}_]*|\[(?:\d+|"[^"\\]*"|'[^'\\]*')\])*$/u.test(value))
    return text;
  if (value.endsWith(`.${finishedHtml}`)) return `${before}${value}|safe${after}`;
  const shown = `"None" if ${value} is none else "True" if ${value} is true else "False" if ${value} is false else ${value}`;
  return `${before}${shown}${after}`;
}
