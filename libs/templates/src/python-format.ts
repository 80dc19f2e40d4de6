/** Nothing and what is not there look the same by the time they come here. */
const text = (value: unknown): string =>
  value === undefined || value === null ? 'None' : value === true ? 'True' : value === false ? 'False' : String(value);

const number = (value: unknown): number => (typeof value === 'boolean' ? Number(value) : Number(text(value)));

/** Longest text that widths and precisions may make of a value, characters. */
const maxWidth = 1_000;
const limited = (digits: string | undefined): number | undefined =>
  digits === undefined || digits === '' ? undefined : Math.min(maxWidth, Number(digits));

/** How a number or text is to be shown. */
interface Shape {
  readonly type: string;
  readonly precision: number | undefined;
  readonly sign: string;
  readonly alternate: boolean;
  readonly grouped?: string | undefined;
}

function exponent(value: string): string {
  return value.replace(/e([-+])(\d)$/, 'e$10$2');
}

/** With so many digits behind the point; what lies in the middle goes to the even side. */
function fixed(size: number, places: number): string {
  const shift = 10 ** places;
  const whole = Math.floor(size * shift);
  const isMiddle = size * shift - whole === 0.5 && whole % 2 === 0 && (whole + 0.5) / shift === size;
  return (isMiddle ? whole / shift : size).toFixed(places);
}

function general(value: number, precision: number, alternate: boolean): string {
  const digits = precision === 0 ? 1 : precision;
  if (value === 0) return '0';
  const power = Number(value.toExponential(digits - 1).split('e')[1]);
  const plain =
    power < -4 || power >= digits
      ? exponent(value.toExponential(digits - 1))
      : value.toFixed(Math.max(0, digits - 1 - power));
  return alternate || !plain.includes('.') ? plain : plain.replace(/\.?0+(?=e|$)/, '');
}

/** A number as Python writes it, its sign apart. */
function digitsOf(value: number, { type, precision, alternate, grouped }: Shape): string {
  const size = Math.abs(value);
  if (!Number.isFinite(size)) return Number.isNaN(size) ? 'nan' : 'inf';
  const whole = Math.trunc(size);
  const places = Math.min(100, precision ?? 6);
  const shown = ((): string => {
    switch (type.toLowerCase()) {
      case 'f':
        return fixed(size, places);
      case '%':
        return `${fixed(size * 100, places)}%`;
      case 'e':
        return exponent(size.toExponential(places));
      case 'g':
        return general(size, Math.max(1, places), alternate);
      case 'x':
        return (alternate ? '0x' : '') + whole.toString(16);
      case 'o':
        return (alternate ? '0o' : '') + whole.toString(8);
      case 'b':
        return (alternate ? '0b' : '') + whole.toString(2);
      case '':
        return String(size);
      default:
        return String(whole);
    }
  })();
  const cased = type === type.toUpperCase() ? shown.toUpperCase() : shown;
  return grouped ? cased.replace(/^\d+/, (one) => one.replace(/\B(?=(\d{3})+$)/g, grouped)) : cased;
}

const signOf = (value: number, wanted: string): string =>
  value < 0 || Object.is(value, -0) ? '-' : wanted === '+' || wanted === ' ' ? wanted : '';

const operatorPattern = /%(?:\(([^)]*)\))?([-+ #0]*)(\d+|\*)?(?:\.(\d*))?[hlL]?([sradiufFeEgGxXoc%])/g;

/**
 * Python's formatting operator: `%s`, `%d`, `%.1f`, `%5d`, `%(name)s`, `%%`… What has no value is `None`.
 * @param named the values of `%(name)s`
 */
export function formatOperator(
  pattern: string,
  values: readonly unknown[],
  named?: ReadonlyMap<unknown, unknown>,
): string {
  let used = 0;
  return pattern.replace(
    operatorPattern,
    (
      _whole,
      name: string | undefined,
      flags: string,
      width: string | undefined,
      precision: string | undefined,
      type: string,
    ) => {
      if (type === '%') return '%';
      const size = width === '*' ? limited(text(values[used++])) : limited(width);
      const value = name === undefined ? values[used++] : named?.get(name);
      const places = precision === '' ? 0 : limited(precision);
      const left = flags.includes('-');
      if ('srac'.includes(type)) {
        const shown = text(value).slice(0, type === 'c' ? 1 : (places ?? Infinity));
        return left ? shown.padEnd(size ?? 0) : shown.padStart(size ?? 0);
      }
      const amount = number(value);
      if (Number.isNaN(amount)) return text(value);
      const sign = signOf(amount, flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '');
      const digits = digitsOf(amount, { type, precision: places, sign, alternate: flags.includes('#') });
      const missing = (size ?? 0) - sign.length;
      if (left) return (sign + digits).padEnd(size ?? 0);
      return flags.includes('0') ? sign + digits.padStart(missing, '0') : (sign + digits).padStart(size ?? 0);
    },
  );
}

const fieldPattern = /\{\{|\}\}|\{([^{}:!]*)(?:![rsa])?(?::([^{}]*))?\}/g;
const specPattern = /^(?:(.)?([<>=^]))?([-+ ]?)(#?)(0?)(\d*)([,_]?)(?:\.(\d+))?([a-zA-Z%]?)$/su;

/** Python's `str.format`: `{}`, `{0}`, `{name}`, `{name.part[0]:.1f}`, `{{`. What has no value is `None`. */
export function formatFields(
  pattern: string,
  values: readonly unknown[],
  named: ReadonlyMap<unknown, unknown>,
): string {
  let used = 0;
  return pattern.replace(fieldPattern, (whole, field: string | undefined, spec: string | undefined) => {
    if (whole === '{{' || whole === '}}') return whole[0]!;
    const [first = '', ...path] = (field ?? '').split(/[.[\]]+/).filter((part, index) => index === 0 || part !== '');
    let value = first === '' ? values[used++] : /^\d+$/.test(first) ? values[Number(first)] : named.get(first);
    for (const part of path) value = partOf(value, part);
    return formatSpec(value, spec ?? '');
  });
}

function partOf(value: unknown, part: string): unknown {
  if (value instanceof Map) return (value as ReadonlyMap<unknown, unknown>).get(part);
  return typeof value === 'object' && value !== null && Object.hasOwn(value, part)
    ? (value as Record<string, unknown>)[part]
    : undefined;
}

function formatSpec(value: unknown, spec: string): string {
  const match = specPattern.exec(spec);
  if (match === null) return text(value);
  const [, fill, align, sign = '', alternate, zero, width, grouped, precision, type = ''] = match;
  const isNumber =
    (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') && type !== 's';
  const places = limited(precision);
  const size = limited(width) ?? 0;
  const fillWith = fill ?? (zero === '0' ? '0' : ' ');
  const how = align ?? (zero === '0' ? '=' : isNumber ? '>' : '<');
  if (!isNumber || (type === '' && spec === ''))
    return aligned('', text(value).slice(0, places ?? Infinity), size, fillWith, how);
  const amount = number(value);
  const kind = type === '' && places !== undefined ? 'g' : type;
  const digits = digitsOf(amount, { type: kind, precision: places, sign, alternate: alternate === '#', grouped });
  return aligned(signOf(amount, sign), digits, size, fillWith, how);
}

function aligned(sign: string, shown: string, size: number, fill: string, how: string): string {
  const missing = Math.max(0, size - sign.length - shown.length);
  switch (how) {
    case '<':
      return sign + shown + fill.repeat(missing);
    case '^':
      return fill.repeat(Math.floor(missing / 2)) + sign + shown + fill.repeat(Math.ceil(missing / 2));
    case '=':
      return sign + fill.repeat(missing) + shown;
    default:
      return fill.repeat(missing) + sign + shown;
  }
}
