/** Controls that turn the direction of what follows, even beyond the text they stand in. */
const directions = /[\u202a-\u202e\u2066-\u2069]/gu;
/** Whatever ends a line, and controls that nobody sees. */
const controls = /[\p{Cc}\u2028\u2029]+/gu;
const otherLineEnds = /\r\n?|[\u2028\u2029]/gu;
const invisible = /(?![\n\t])\p{Cc}/gu;
/** Values that are texts of several lines; all others are names, links and the like. */
const severalLines = /^body_text_/;
const maxDepth = 20;

/** A text that cannot turn around what stands behind it. */
export const inItsDirection = (text: string): string => text.replace(directions, '');

/** A text in one line without control characters: nothing in it can start another header, or a line of its own. */
export const inOneLine = (text: string): string => inItsDirection(text).replace(controls, ' ').trim();

/**
 * The values of a template so that a user's name cannot look like something else of the page or mail: in one line, and in
 * the direction in which it is written. Texts of messages keep their lines.
 */
export function harmless(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return mapped(values, 0) as Record<string, unknown>;
}

function mapped(value: unknown, depth: number, key = ''): unknown {
  if (typeof value === 'string')
    return severalLines.test(key)
      ? inItsDirection(value).replace(otherLineEnds, '\n').replace(invisible, '')
      : inOneLine(value);
  if (typeof value !== 'object' || value === null || depth > maxDepth) return value;
  if (Array.isArray(value)) return value.map((one) => mapped(one, depth + 1, key));
  const prototype = Object.getPrototypeOf(value) as unknown;
  if (prototype !== Object.prototype && prototype !== null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mapped(one, depth + 1, name)]));
}
