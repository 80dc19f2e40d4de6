import { BlockList, isIP } from 'node:net';
import { resolve } from 'node:path';

/** Where a value stands in the settings: `['listeners', 0, 'port']`. */
export type SettingPath = readonly (string | number)[];

/** What reading a value needs from outside, and where it reports. */
export interface ReadContext {
  /** Relative paths in the settings start here: the folder of the first settings file. */
  readonly baseDir: string;
  /** Reports a value that the server cannot start with. */
  error(path: SettingPath, message: string): void;
  /** Reports something the operator should know. */
  warn(path: SettingPath, message: string): void;
  /** A scalar as it stands in the file, without quotes; `undefined` where it stands in none. */
  written(path: SettingPath): string | undefined;
  /** The text of a secret file without trailing white space; reports and returns `undefined` when it cannot be read. */
  secret(path: SettingPath, file: string): string | undefined;
  /** Takes a secret that stands in the settings though it may lie in a file, or reports it where it must. */
  takesInline(path: SettingPath): boolean;
}

/** A JSON Schema fragment. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** What values a setting takes: reads them from YAML, describes them to people and to editors. */
export interface Kind<T> {
  /** Completes "expected …": `a duration such as 30m or 1d`. */
  readonly expected: string;
  /** A short name for tables: `duration`. */
  readonly label: string;
  readonly schema: JsonSchema;
  /** Fields, for an object (or list of objects) whose keys are described one by one. */
  readonly fields?: Fields;
  /** The value in the form the code uses; reports what is wrong and returns `undefined` otherwise. Never throws. */
  read(value: unknown, path: SettingPath, context: ReadContext): T | undefined;
}

/** The type a kind reads into. */
export type KindValue<K> = K extends Kind<infer T> ? T : never;

/** What was found, for a message: short, on one line, and never the whole of a secret. */
export function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'a section';
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function simple<T>(
  label: string,
  expected: string,
  schema: JsonSchema,
  parse: (value: unknown, context: ReadContext, path: SettingPath) => T | undefined,
): Kind<T> {
  return {
    label,
    expected,
    schema,
    read(value, path, context) {
      const parsed = parse(value, context, path);
      if (parsed === undefined) context.error(path, `expected ${expected}, found ${shown(value)}`);
      return parsed;
    },
  };
}

/** `true` or `false` (YAML also reads `yes`, `no`, `on`, `off` so). */
export const flag: Kind<boolean> = simple('boolean', 'true or false', { type: 'boolean' }, (value) =>
  typeof value === 'boolean' ? value : undefined,
);

/**
 * A number as Python writes it, which is what files written for Synapse mean by it: one with a point keeps one, so that `1.0` is not
 * `1`.
 */
const numberAsText = (value: number, written: string | undefined): string =>
  Number.isInteger(value) && written?.includes('.') ? value.toFixed(1) : String(value);

/** Text. A number must be quoted (YAML has changed it before we see it) unless `numbers` says that no harm is done. */
export function text(
  options: { expected?: string; label?: string; pattern?: RegExp; empty?: boolean; numbers?: boolean } = {},
): Kind<string> {
  const { pattern, empty = true, numbers = false } = options;
  const expected =
    options.expected ?? (empty ? 'text (in quotes when it looks like a number)' : 'text that is not empty');
  const schema: JsonSchema = {
    type: numbers ? ['string', 'number'] : 'string',
    ...(empty ? {} : { minLength: 1 }),
    ...(pattern ? { pattern: pattern.source } : {}),
  };
  return simple(options.label ?? 'text', expected, schema, (given, context, path) => {
    const value = numbers && typeof given === 'number' ? numberAsText(given, context.written(path)) : given;
    return typeof value === 'string' && (empty || value !== '') && (!pattern || pattern.test(value))
      ? value
      : undefined;
  });
}

/** A secret: text that is not empty; never shown in a message. */
export const secretText: Kind<string> = {
  label: 'secret',
  expected: 'text that is not empty (in quotes when it looks like a number)',
  schema: { type: 'string', minLength: 1 },
  read(value, path, context) {
    if (typeof value === 'string' && value !== '') return value;
    context.error(
      path,
      `expected ${this.expected}, found ${typeof value === 'string' ? 'empty text' : `a ${typeof value}`}`,
    );
    return undefined;
  },
};

/** A whole number within bounds, both included. */
export function whole(min = 0, max = Number.MAX_SAFE_INTEGER): Kind<number> {
  const upTo = max === Number.MAX_SAFE_INTEGER ? '' : ` to ${max}`;
  const schema = { type: 'integer', minimum: min, ...(upTo ? { maximum: max } : {}) };
  return simple('integer', `a whole number from ${min}${upTo || ' up'}`, schema, (value) =>
    Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max ? (value as number) : undefined,
  );
}

/** A number of at least `min`. */
export function decimal(min = 0): Kind<number> {
  return simple('number', `a number of at least ${min}`, { type: 'number', minimum: min }, (value) =>
    typeof value === 'number' && Number.isFinite(value) && value >= min ? value : undefined,
  );
}

const silent: ReadContext = {
  baseDir: '/',
  error: () => undefined,
  warn: () => undefined,
  written: () => undefined,
  secret: () => undefined,
  takesInline: () => true,
};

/**
 * Whether a text that cannot be empty was left empty. Files that programs write have `''` for what is not set: a password, an address, a
 * path.
 */
export const isLeftEmpty = (value: unknown, kind: Kind<unknown>): boolean =>
  value === '' && kind.schema['type'] === 'string' && kind.read('', [], silent) === undefined;

/** A TCP port. */
export const port = whole(0, 65535);

const second = 1000;
const durationUnits: Readonly<Record<string, number>> = {
  s: second,
  m: 60 * second,
  h: 3600 * second,
  d: 86_400 * second,
  w: 7 * 86_400 * second,
  y: 365 * 86_400 * second,
};

/** Milliseconds of `1500`, `"30s"`, `"1d"`; `undefined` when it is not a duration. A plain number is milliseconds. */
export function parseDurationMs(value: unknown): number | undefined {
  return withUnit(value, /^(\d+)([smhdwy])?$/, durationUnits);
}

const sizeUnits: Readonly<Record<string, number>> = { K: 1024, M: 1024 ** 2, G: 1024 ** 3, T: 1024 ** 4 };

/** Bytes of `1048576`, `"50M"`, `"10KiB"`; `undefined` when it is not a size. Units are powers of 1024. */
export function parseSizeBytes(value: unknown): number | undefined {
  return withUnit(typeof value === 'string' ? value.toUpperCase() : value, /^(\d+)(?:([KMGT])(?:I?B)?|B)?$/, sizeUnits);
}

function withUnit(value: unknown, pattern: RegExp, units: Readonly<Record<string, number>>): number | undefined {
  let amount: number | undefined;
  if (typeof value === 'number') amount = value;
  else if (typeof value === 'string') {
    const match = pattern.exec(value.trim());
    if (match) amount = Number(match[1]) * (match[2] === undefined ? 1 : (units[match[2]] ?? Number.NaN));
  }
  return amount !== undefined && Number.isSafeInteger(amount) && amount >= 0 ? amount : undefined;
}

/** Milliseconds, from a number or from text with a unit. */
export const duration: Kind<number> = simple(
  'duration',
  'a duration such as 30s, 5m, 1h, 7d, 4w or 1y (a plain number is milliseconds)',
  {
    anyOf: [
      { type: 'integer', minimum: 0 },
      { type: 'string', pattern: '^\\d+[smhdwy]?$' },
    ],
  },
  parseDurationMs,
);

/** Bytes (or entries), from a number or from text with a unit. */
export const size: Kind<number> = simple(
  'size',
  'a size such as 500K, 50M or 1G',
  {
    anyOf: [
      { type: 'integer', minimum: 0 },
      { type: 'string', pattern: '^\\d+([KkMmGgTt]([Ii]?[Bb])?|[Bb])?$' },
    ],
  },
  parseSizeBytes,
);

/** Bytes, of at least so many MiB. */
export function sizeFrom(leastMib: number): Kind<number> {
  return simple('size', `a size of at least ${leastMib}M`, size.schema, (value) => {
    const bytes = parseSizeBytes(value);
    return bytes !== undefined && bytes >= leastMib * 1024 ** 2 ? bytes : undefined;
  });
}

/** One of a few literal values. */
export function oneOf<const T extends readonly (string | number | boolean)[]>(...values: T): Kind<T[number]> {
  const names = [...new Set(values.map((value) => String(value)))];
  return simple(names.join(', '), `one of ${names.join(', ')}`, { enum: values }, (value) =>
    values.find((one) => one === value),
  );
}

/** A file or folder; a relative one starts at the folder of the first settings file. Reads into an absolute path. */
export const path: Kind<string> = simple('path', 'a path', { type: 'string', minLength: 1 }, (value, context) =>
  typeof value === 'string' && value !== '' && !value.includes('\0') ? resolve(context.baseDir, value) : undefined,
);

function parseHttpUrl(value: unknown): URL | undefined {
  if (typeof value !== 'string' || !URL.canParse(value)) return undefined;
  const parsed = new URL(value);
  return (parsed.protocol === 'http:' || parsed.protocol === 'https:') && parsed.hostname !== '' ? parsed : undefined;
}

/** An `http://` or `https://` address, kept as written. */
export const httpUrl: Kind<string> = simple(
  'URL',
  'an http:// or https:// URL',
  { type: 'string', format: 'uri', pattern: '^https?://' },
  (value) => (parseHttpUrl(value) ? (value as string) : undefined),
);

/** An `http://` or `https://` address without query and fragment; reads with a slash at its end. */
export const baseUrl: Kind<string> = simple(
  'URL',
  'an http:// or https:// URL without query and fragment',
  { type: 'string', format: 'uri', pattern: '^https?://[^?#]*$' },
  (value) => {
    const parsed = parseHttpUrl(value);
    return parsed && !/[?#]/.test(value as string) ? (value as string).replace(/\/*$/, '/') : undefined;
  },
);

/** Whether text is an address (`10.0.0.1`, `::1`) or a range of them (`10.0.0.0/8`). */
export function isIpRange(value: string): boolean {
  const [address = '', bits, ...rest] = value.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  if (bits === undefined) return true;
  return /^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128);
}

/** A list of addresses and ranges as a {@link BlockList}. Entries must satisfy {@link isIpRange}. */
export function toBlockList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = '', bits] = range.split('/');
    const family = isIP(address) === 4 ? 'ipv4' : 'ipv6';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

/** An address or a range of them. */
export const ipRange: Kind<string> = simple(
  'IP range',
  'an IP address or a range such as 10.0.0.0/8',
  { type: 'string' },
  (value) => (typeof value === 'string' && isIpRange(value) ? value : undefined),
);

/** Anything at all: handed to somebody who checks it. */
export const anything: Kind<unknown> = { label: 'any', expected: 'a value', schema: {}, read: (value) => value };

/** A list. `one`: a single value counts as a list of one. At most 10,000 entries. */
export function list<T>(item: Kind<T>, options: { one?: boolean; nonEmpty?: boolean } = {}): Kind<readonly T[]> {
  const expected = `${options.nonEmpty ? 'a list that is not empty' : 'a list'}, each entry ${item.expected}`;
  const array = { type: 'array', items: item.schema, ...(options.nonEmpty ? { minItems: 1 } : {}) };
  return {
    label: `list of ${item.label}`,
    expected,
    schema: options.one ? { anyOf: [array, item.schema] } : array,
    ...(item.fields ? { fields: item.fields } : {}),
    read(value, at, context) {
      if (options.one && !Array.isArray(value)) value = [value];
      if (!Array.isArray(value) || value.length > 10_000 || (options.nonEmpty && value.length === 0)) {
        context.error(
          at,
          `expected ${expected}, found ${Array.isArray(value) ? `a list of ${value.length}` : shown(value)}`,
        );
        return undefined;
      }
      // What was refused is left out: rules that are held against the rest need not know of it.
      return value
        .map((entry, index) => item.read(entry, [...at, index], context))
        .filter((entry) => entry !== undefined);
    },
  };
}

/** A section whose keys are free, all values of one kind. At most 10,000 keys. */
export function mapOf<T>(item: Kind<T>): Kind<Readonly<Record<string, T>>> {
  const expected = `a section, each value ${item.expected}`;
  return {
    label: `map to ${item.label}`,
    expected,
    schema: { type: 'object', additionalProperties: item.schema },
    ...(item.fields ? { fields: item.fields } : {}),
    read(value, at, context) {
      if (!isSection(value) || Object.keys(value).length > 10_000) {
        context.error(at, `expected ${expected}, found ${shown(value)}`);
        return undefined;
      }
      const result: Record<string, T> = Object.create(null);
      for (const [key, entry] of Object.entries(value)) {
        const read = item.read(entry, [...at, key], context);
        if (read !== undefined) result[key] = read;
      }
      return result;
    },
  };
}

/** A key of an object that is described field by field. Made by {@link need}, {@link field} and {@link maybe}. */
export interface Field<T> {
  readonly kind: Kind<T>;
  readonly doc: string;
  readonly required: boolean;
  readonly default: T | undefined;
  /** The name of the field that this one's file stands in for: `client_secret` of `client_secret_path`. */
  readonly fileOf?: string;
  /** Phantom: what the field reads into. */
  readonly type?: T;
}
/** The described keys of an object. */
export type Fields = Readonly<Record<string, Field<unknown>>>;

/** A field that must be there. */
export const need = <T>(kind: Kind<T>, doc: string): Field<T> => ({ kind, doc, required: true, default: undefined });
/** A field with a default. */
export const field = <T>(kind: Kind<T>, value: NoInfer<T>, doc: string): Field<T> => ({
  kind,
  doc,
  required: false,
  default: value,
});
/** A field that may be absent. */
export const maybe = <T>(kind: Kind<T>, doc: string): Field<T | undefined> => ({
  kind,
  doc,
  required: false,
  default: undefined,
});
/** A field that names a file holding the value of the field `of`, which then reads as if it stood in line. */
export const fileOf = (of: string): Field<string | undefined> => ({
  ...maybe(path, `File that holds \`${of}\`.`),
  fileOf: of,
});

/** The type an object of fields reads into. */
export type FieldValues<F> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

/** A section with known keys. Unknown keys are warned about, `null` counts as absent, and so does an empty text that a field cannot be. */
export function object<const F extends Fields>(fields: F): Kind<FieldValues<F>> {
  const required = Object.keys(fields).filter((name) => fields[name]?.required);
  const expected = required.length > 0 ? `a section with ${required.join(', ')}` : 'a section';
  const secretsWithFile = new Set(Object.values(fields).map((one) => one.fileOf));
  const properties = Object.fromEntries(
    Object.entries(fields).map(([name, one]) => [
      name,
      {
        description: one.doc,
        ...(!one.required && one.default === undefined ? orUnset(one.kind) : orNull(one.kind.schema)),
        ...(one.default === undefined ? {} : { default: one.default }),
      },
    ]),
  );
  return {
    label: 'section',
    expected,
    schema: { type: 'object', properties, ...(required.length > 0 ? { required } : {}) },
    fields,
    read(value, at, context) {
      if (!isSection(value)) {
        context.error(at, `expected ${expected}, found ${shown(value)}`);
        return undefined;
      }
      for (const key of Object.keys(value)) {
        if (!Object.hasOwn(fields, key))
          context.warn([...at, key], `unknown, ignored${didYouMean(key, Object.keys(fields))}`);
      }
      const result: Record<string, unknown> = {};
      for (const [name, one] of Object.entries(fields)) {
        const written = Object.hasOwn(value, name) ? value[name] : undefined;
        const given = !one.required && one.default === undefined && isLeftEmpty(written, one.kind) ? null : written;
        if (given !== undefined && given !== null) {
          const isTaken = !secretsWithFile.has(name) || context.takesInline([...at, name]);
          if (isTaken) result[name] = one.kind.read(given, [...at, name], context);
        } else {
          result[name] = one.default;
          if (one.required) context.error(at, `${name} is missing (expected ${one.kind.expected})`);
        }
      }
      for (const [name, one] of Object.entries(fields)) {
        const file = result[name];
        if (one.fileOf === undefined || typeof file !== 'string') continue;
        if (result[one.fileOf] !== undefined)
          context.error([...at, name], `set either ${one.fileOf} or ${name}, not both`);
        else result[one.fileOf] = context.secret([...at, name], file);
      }
      return result as FieldValues<F>;
    },
  };
}

/** A kind that refuses some of the values another one reads. `check` answers what is wrong. */
export function checked<T>(kind: Kind<T>, check: (value: T) => string | undefined): Kind<T> {
  return {
    ...kind,
    read(value, at, context) {
      const result = kind.read(value, at, context);
      const wrong = result === undefined ? undefined : check(result);
      if (wrong !== undefined) context.error(at, wrong);
      return result;
    },
  };
}

/** A kind that reads another one's values into something else. */
export function mapped<T, U>(kind: Kind<T>, map: (value: T) => U): Kind<U> {
  return {
    ...kind,
    read(value, at, context) {
      const result = kind.read(value, at, context);
      return result === undefined ? undefined : map(result);
    },
  };
}

/** A schema that also takes `null`. */
export const orNull = (schema: JsonSchema): JsonSchema =>
  Object.keys(schema).length === 0
    ? schema
    : typeof schema['type'] === 'string' && !schema['enum']
      ? { ...schema, type: [schema['type'], 'null'] }
      : { anyOf: [schema, { type: 'null' }] };

/** The schema of what may be left out: also by what stands for it ({@link isLeftEmpty}). */
export const orUnset = (kind: Kind<unknown>): JsonSchema =>
  isLeftEmpty('', kind) ? { anyOf: [orNull(kind.schema), { const: '' }] } : orNull(kind.schema);

/** Whether a value is a YAML mapping. */
export const isSection = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** `; did you mean X?` with the nearest of the names, or nothing when none is near. */
export function didYouMean(name: string, names: Iterable<string>): string {
  let best: string | undefined;
  let distance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of names) {
    if (Math.abs(candidate.length - name.length) >= distance) continue;
    const found = editDistance(name, candidate);
    if (found < distance) [best, distance] = [candidate, found];
  }
  return best === undefined ? '' : `; did you mean ${best}?`;
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const substitute = previous[column - 1]! + (a[row - 1] === b[column - 1] ? 0 : 1);
      current.push(Math.min(previous[column]! + 1, current[column - 1]! + 1, substitute));
    }
    previous = current;
  }
  return previous[b.length]!;
}
