import { randomInt } from 'node:crypto';
import { formatFields, formatOperator } from './python-format.js';
import { strftime } from './strftime.js';

/** What filters know of the server. */
export interface FilterContext {
  /** With a slash at its end. */
  readonly publicBaseUrl: string;
  /** First path segment of the protocol; `_matrix` unless told. */
  readonly protocolPrefix?: string | undefined;
  readonly timeZone?: string | undefined;
}

type Filter = (...args: unknown[]) => unknown;

/** Keyword arguments arrive as a trailing map. */
function split(args: readonly unknown[]): { values: readonly unknown[]; named: ReadonlyMap<unknown, unknown> } {
  const last = args.at(-1);
  return last instanceof Map ? { values: args.slice(0, -1), named: last } : { values: args, named: new Map() };
}

/** Longest text that a width or an indentation of a template makes, characters. */
const maxLength = 1_000;

const text = (value: unknown): string => (value === undefined || value === null ? '' : String(value));

const escapeHtml = (value: string): string =>
  value
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');

/** Percent-encodes as the field's engine does: slashes stay. */
const quote = (value: unknown): string =>
  encodeURIComponent(text(value).toWellFormed())
    .replaceAll('%2F', '/')
    .replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

/** The named arguments, or one positional mapping: what `%(name)s` looks in. */
function format(pattern: unknown, ...args: unknown[]): string {
  const { values, named } = split(args);
  return formatOperator(text(pattern), values, named as ReadonlyMap<unknown, unknown>);
}

/** An argument by its place or by its name. */
const argument = (args: readonly unknown[], index: number, name: string): unknown => {
  const { values, named } = split(args);
  return values[index] ?? named.get(name);
};
const lengthOf = (value: unknown, otherwise: number): number => {
  const length = Number(value ?? otherwise);
  return Number.isFinite(length) ? Math.min(maxLength, Math.max(0, Math.trunc(length))) : otherwise;
};

/** At most so many characters, whole words unless told otherwise; a little more than that is left alone. */
function truncate(value: unknown, ...args: unknown[]): string {
  const characters = [...text(value)];
  const length = lengthOf(argument(args, 0, 'length'), 255);
  const killWords = argument(args, 1, 'killwords') === true;
  const end = text(argument(args, 2, 'end') ?? '...');
  const leeway = lengthOf(argument(args, 3, 'leeway'), 5);
  if (characters.length <= length + leeway) return characters.join('');
  const kept = characters.slice(0, Math.max(0, length - end.length)).join('');
  return (killWords ? kept : kept.replace(/ [^ ]*$/, '')) + end;
}

/** Breaks lines that are longer than a width, between words where there are some. */
function wordwrap(value: unknown, ...args: unknown[]): string {
  const width = Math.max(1, lengthOf(argument(args, 0, 'width'), 79));
  const breakLong = argument(args, 1, 'break_long_words') !== false;
  const separator = text(argument(args, 2, 'wrapstring') ?? '\n');
  const wrapLine = (line: string): string => {
    const lines: string[] = [];
    let current = '';
    for (const word of line.split(/(\s+)/)) {
      if (current !== '' && current.length + word.length > width) {
        lines.push(current.trimEnd());
        current = '';
      }
      if (/^\s*$/.test(word)) {
        if (current !== '') current += word;
        continue;
      }
      let rest = word;
      while (breakLong && rest.length > width) {
        lines.push(rest.slice(0, width));
        rest = rest.slice(width);
      }
      current += rest;
    }
    if (current.trim() !== '' || lines.length === 0) lines.push(current.trimEnd());
    return lines.join(separator);
  };
  return text(value)
    .split(/\r\n|\r|\n/)
    .map(wrapLine)
    .join(separator);
}

/** Moves every line but the first to the right; the first and empty ones as well when told so. */
function indent(value: unknown, ...args: unknown[]): string {
  const width = argument(args, 0, 'width') ?? 4;
  const by = typeof width === 'string' ? width.slice(0, maxLength) : ' '.repeat(lengthOf(width, 4));
  const first = argument(args, 1, 'first') === true;
  const blank = argument(args, 2, 'blank') === true;
  return text(value)
    .split('\n')
    .map((line, index) => ((index > 0 && (line !== '' || blank)) || (index === 0 && first) ? by + line : line))
    .join('\n');
}

/** Attributes of an element, with a space in front of them unless told otherwise; those without a value are left out. */
function xmlattr(value: unknown, ...args: unknown[]): string {
  const entries = value instanceof Map ? [...value] : Object.entries((value ?? {}) as object);
  const shown = entries
    .filter(([name, one]) => one !== null && one !== undefined && !/[\s/>=]/.test(String(name)))
    .map(([name, one]) => `${escapeHtml(String(name))}="${escapeHtml(text(one))}"`)
    .join(' ');
  return shown === '' ? '' : (argument(args, 0, 'autospace') === false ? '' : ' ') + shown;
}

function mxcToHttp(
  { publicBaseUrl: base, protocolPrefix = '_matrix' }: FilterContext,
  args: readonly unknown[],
): string {
  const { values, named } = split(args);
  const [uri, width, height, method] = values;
  const match = /^mxc:\/\/([^/?#]+)\/([^/?#]+)/.exec(text(uri));
  if (match === null) return '';
  const query = new URLSearchParams({
    width: text(width ?? named.get('width')),
    height: text(height ?? named.get('height')),
    method: text(method ?? named.get('resize_method') ?? named.get('method') ?? 'crop'),
  });
  return `${base}${protocolPrefix}/media/v3/thumbnail/${match[1]}/${match[2]}?${query.toString()}`;
}

/**
 * The filters that templates written for the field expect and the engine lacks. None of them throws: an exception would
 * destroy the engine's state.
 */
export function filters(context: FilterContext): Readonly<Record<string, Filter>> {
  const { timeZone } = context;
  const all: Record<string, Filter> = {
    format_ts: (ms, pattern) => strftime(Number(ms), text(pattern), timeZone),
    mxc_to_http: (...args) => mxcToHttp(context, args),
    localpart_from_email: (address) => text(address).replace(/@[^@]*$/, ''),
    format,
    str_format: (pattern, ...args) => {
      const { values, named } = split(args);
      return formatFields(text(pattern), values, named);
    },
    truncate,
    wordwrap,
    indent,
    xmlattr,
    forceescape: (value) => escapeHtml(text(value)),
    random: (value) => {
      const items = Array.isArray(value) ? (value as unknown[]) : [...text(value)];
      return items[randomInt(Math.max(1, items.length))];
    },
    urlencode: (value) =>
      value instanceof Map || (typeof value === 'object' && value !== null)
        ? [...(value instanceof Map ? value : new Map(Object.entries(value)))]
            .map(([key, one]) => `${quote(key)}=${quote(one)}`)
            .join('&')
        : quote(value),
    urlize: (value) =>
      text(value)
        .split(/(\bhttps?:\/\/[^\s<>"']*[^\s<>"'.,:;!?)\]}])/)
        .map((part, i) =>
          i % 2 === 0 ? escapeHtml(part) : `<a href="${escapeHtml(part)}" rel="noopener">${escapeHtml(part)}</a>`,
        )
        .join(''),
    wordcount: (value) => text(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0,
    center: (value, width) => {
      const one = text(value);
      const missing = Math.min(1000, Math.max(0, Number(width ?? 80) - one.length));
      return ' '.repeat(Math.floor(missing / 2)) + one + ' '.repeat(Math.ceil(missing / 2));
    },
  };
  return Object.fromEntries(
    Object.entries(all).map(([name, filter]) => [
      name,
      (...args: unknown[]): unknown => {
        try {
          return filter(...args);
        } catch {
          return '';
        }
      },
    ]),
  );
}
