import { strftime } from './strftime.js';

/** What filters know of the server. */
export interface FilterContext {
  /** With a slash at its end. */
  readonly publicBaseUrl: string;
  readonly timeZone?: string | undefined;
}

type Filter = (...args: unknown[]) => unknown;

/** Keyword arguments arrive as a trailing map. */
function split(args: readonly unknown[]): { values: readonly unknown[]; named: ReadonlyMap<unknown, unknown> } {
  const last = args.at(-1);
  return last instanceof Map ? { values: args.slice(0, -1), named: last } : { values: args, named: new Map() };
}

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

/** The formatting operator of the field's templates: `%s`, `%d`, `%%`. */
function format(pattern: unknown, ...values: unknown[]): string {
  let next = 0;
  return text(pattern).replace(/%([sd%])/g, (_whole, kind: string) => (kind === '%' ? '%' : text(values[next++])));
}

function mxcToHttp(base: string, args: readonly unknown[]): string {
  const { values, named } = split(args);
  const [uri, width, height, method] = values;
  const match = /^mxc:\/\/([^/?#]+)\/([^/?#]+)/.exec(text(uri));
  if (match === null) return '';
  const query = new URLSearchParams({
    width: text(width ?? named.get('width')),
    height: text(height ?? named.get('height')),
    method: text(method ?? named.get('resize_method') ?? named.get('method') ?? 'crop'),
  });
  return `${base}_matrix/media/v3/thumbnail/${match[1]}/${match[2]}?${query.toString()}`;
}

/**
 * The filters that templates written for the field expect and the engine lacks. None of them throws: an exception would
 * destroy the engine's state.
 */
export function filters({ publicBaseUrl, timeZone }: FilterContext): Readonly<Record<string, Filter>> {
  const all: Record<string, Filter> = {
    format_ts: (ms, pattern) => strftime(Number(ms), text(pattern), timeZone),
    mxc_to_http: (...args) => mxcToHttp(publicBaseUrl, args),
    localpart_from_email: (address) => text(address).replace(/@[^@]*$/, ''),
    format,
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
