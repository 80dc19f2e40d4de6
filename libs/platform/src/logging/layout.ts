import { readLine } from './readable.js';

/** How a formatter of a Python logging file arranges a line. */
export interface LineLayout {
  /** With attributes of records in it: `%(asctime)s - %(levelname)-8s - %(message)s`. */
  readonly format: string;
  /** How `asctime` is written, as `strftime` takes it; else `2026-01-31 12:30:01,123`. */
  readonly dateFormat?: string;
  /** Of the placeholders: `%(name)s`, `{name}` or `${name}`. */
  readonly style?: '%' | '{' | '$';
}

type Line = Readonly<Record<string, unknown>>;
type Attribute = (line: Line, time: Date) => string | number;

/** Levels as records have them. */
const levels: Readonly<Record<string, readonly [name: string, number: number]>> = {
  ...{ trace: ['DEBUG', 10], debug: ['DEBUG', 10], info: ['INFO', 20] },
  ...{ warn: ['WARNING', 30], error: ['ERROR', 40] },
};
const levelAt = (line: Line): readonly [string, number] => levels[String(line['level'])] ?? ['NOTSET', 0];
const pad = (value: number, digits = 2): string => String(value).padStart(digits, '0');
const field =
  (name: string): Attribute =>
  (line) => {
    const value = line[name];
    return typeof value === 'string' || typeof value === 'number' ? value : '-';
  };
const nothing: Attribute = () => '-';

/** Attributes of records. Where a line comes from in the sources is not known: a built program has other files. */
const attributes: Readonly<Record<string, Attribute>> = {
  name: (line) => (typeof line['logger'] === 'string' ? line['logger'] : 'root'),
  levelname: (line) => levelAt(line)[0],
  levelno: (line) => levelAt(line)[1],
  created: (_, time) => time.getTime() / 1_000,
  msecs: (_, time) => time.getMilliseconds(),
  relativeCreated: () => Math.round(process.uptime() * 1_000),
  process: () => process.pid,
  processName: () => 'MainProcess',
  thread: () => 0,
  threadName: () => 'MainThread',
  taskName: nothing,
  lineno: () => 0,
  ...{ module: nothing, funcName: nothing, filename: nothing, pathname: nothing },
  request: field('requestId'),
  requester: field('userId'),
  ...{ ip_address: field('ip'), method: field('method'), url: field('url'), user_agent: field('userAgent') },
  ...{ protocol: nothing, site_tag: nothing, authenticated_entity: nothing, server_name: nothing },
};

const placeholders = {
  '%': /%(?:%|\((?<name>\w+)\)(?<flags>[-0]*)(?<width>\d*)(?:\.(?<precision>\d+))?[sdifr])/g,
  '{': /\{\{|\}\}|\{(?<name>\w+)(?:![sr])?(?::(?<flags>[<>]?)(?<width>\d*)(?:\.(?<precision>\d+))?[sdf]?)?\}/g,
  $: /\$(?:\$|\{(?<name>\w+)\}|(?<bare>[A-Za-z_]\w*))/g,
} as const;

/**
 * Makes lines of a layout: one line, then the error's stack where there is one. Fields of a line follow its message.
 * @returns what turns a line of JSON into text
 * @throws Error naming what is not known
 */
export function compileLayout({ format, dateFormat, style = '%' }: LineLayout): (json: string) => string {
  const pattern = placeholders[style];
  const parts: (string | ((line: Line, time: Date, message: string) => string))[] = [];
  let end = 0;
  for (const found of format.matchAll(pattern)) {
    parts.push(format.slice(end, found.index));
    end = found.index + found[0].length;
    const { name = found.groups?.['bare'], flags = '', width = '', precision } = found.groups ?? {};
    if (name === undefined) {
      parts.push(found[0].slice(1));
      continue;
    }
    const attribute = Object.hasOwn(attributes, name) ? attributes[name] : undefined;
    if (attribute === undefined && name !== 'message' && name !== 'asctime')
      throw new Error(`${name} is not known: there are message, asctime, ${Object.keys(attributes).join(', ')}`);
    parts.push((line, time, message) => {
      const value =
        name === 'message'
          ? message
          : name === 'asctime'
            ? timeText(time, dateFormat)
            : (attribute?.(line, time) ?? '');
      return fitted(value, flags, Number(width), precision, style);
    });
  }
  parts.push(format.slice(end));
  return (json) => {
    const read = readLine(json);
    if (read === undefined) return json;
    const time = new Date(String(read.line['time']));
    const text = parts.map((part) => (typeof part === 'string' ? part : part(read.line, time, read.message))).join('');
    return `${text}\n${read.stack}`;
  };
}

function fitted(
  value: string | number,
  flags: string,
  width: number,
  precision: string | undefined,
  style: '%' | '{' | '$',
): string {
  const text =
    precision === undefined
      ? String(value)
      : typeof value === 'number'
        ? value.toFixed(Math.min(Number(precision), 20))
        : value.slice(0, Number(precision));
  const isLeft = style === '{' ? flags !== '>' && (flags === '<' || typeof value === 'string') : flags.includes('-');
  if (isLeft) return text.padEnd(width);
  return text.padStart(width, flags.includes('0') && typeof value === 'number' ? '0' : ' ');
}

/** Local time, as `strftime` writes it. */
function timeText(time: Date, format: string | undefined): string {
  if (format === undefined) return `${strftime(time, '%Y-%m-%d %H:%M:%S')},${pad(time.getMilliseconds(), 3)}`;
  return strftime(time, format);
}

const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const months = [
  ...['January', 'February', 'March', 'April', 'May', 'June'],
  ...['July', 'August', 'September', 'October', 'November', 'December'],
];

const directives: Readonly<Record<string, (time: Date) => string>> = {
  Y: (time) => String(time.getFullYear()),
  y: (time) => pad(time.getFullYear() % 100),
  m: (time) => pad(time.getMonth() + 1),
  d: (time) => pad(time.getDate()),
  H: (time) => pad(time.getHours()),
  I: (time) => pad(time.getHours() % 12 || 12),
  M: (time) => pad(time.getMinutes()),
  S: (time) => pad(time.getSeconds()),
  p: (time) => (time.getHours() < 12 ? 'AM' : 'PM'),
  a: (time) => days[time.getDay()]!.slice(0, 3),
  A: (time) => days[time.getDay()]!,
  b: (time) => months[time.getMonth()]!.slice(0, 3),
  B: (time) => months[time.getMonth()]!,
  z: (time) => {
    const minutes = -time.getTimezoneOffset();
    return `${minutes < 0 ? '-' : '+'}${pad(Math.floor(Math.abs(minutes) / 60))}${pad(Math.abs(minutes) % 60)}`;
  },
  F: (time) => strftime(time, '%Y-%m-%d'),
  T: (time) => strftime(time, '%H:%M:%S'),
  s: (time) => String(Math.floor(time.getTime() / 1_000)),
  '%': () => '%',
};

const strftime = (time: Date, format: string): string =>
  format.replace(/%([a-zA-Z%])/g, (whole, letter: string) => directives[letter]?.(time) ?? whole);
