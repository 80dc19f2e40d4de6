import type { AnyErrcode } from '@rookery/matrix-types';
import { ConfigError, MatrixError, RedirectError } from '@rookery/module-api';

/** Any function that one side lends the other. */
export type Lent = (...args: unknown[]) => unknown;

/** Most entries of a list that travels. */
export const maxListed = 100_000;

/** The beginning of a text, or of what is none as one. */
export const cut = (value: unknown, length: number): string | undefined =>
  value === undefined ? undefined : String(value).slice(0, length);

/** A key named __proto__ is data here, not a prototype. */
export function define(copy: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__') Object.defineProperty(copy, key, { value, enumerable: true, writable: true });
  else copy[key] = value;
}

/** Bytes alone, of whatever they are a view. */
export function bytesOf(value: ArrayBufferView): unknown {
  // A view on a pool of the runtime would bring all of the pool along.
  return value instanceof Uint8Array ? new Uint8Array(value) : value;
}

/** @throws RangeError */
export function tooMany(): never {
  throw new RangeError('A list is too long');
}

/** What an iterable gives. @throws RangeError for too many */
export function entriesOf(values: Iterable<unknown>): unknown[] {
  const entries: unknown[] = [];
  for (const entry of values) if (entries.push(entry) > maxListed) tooMany();
  return entries;
}

/** Whether something is an error, also one of the interface by another copy of it. */
export const isErrorLike = (value: object): boolean =>
  value instanceof Error || MatrixError.is(value) || RedirectError.is(value) || ConfigError.is(value);

/** An error as it was, from how it travels. @param part reads what else it holds */
export function errorOf(given: Record<string, unknown>, part: (value: unknown) => unknown): Error {
  const { type, status, message, name, stack } = given;
  const text = cut(message, 10_000) ?? '';
  let error: Error;
  if (type === 'MatrixError') {
    const extra = part(given['extra']) as Record<string, unknown> | undefined;
    error = MatrixError.passedOn(status as number, String(given['errcode']) as AnyErrcode, text, extra);
  } else if (type === 'RedirectError') error = new RedirectError(String(given['location']), status as 302);
  else if (type === 'ConfigError') {
    const others = part(given['others']) as ConfigError['others'] | undefined;
    error = new ConfigError(text, part(given['path']) as string[], others);
  } else if (type === 'RangeError') error = new RangeError(text);
  else if (type === 'TypeError') error = new TypeError(text);
  else error = new Error(text);
  if (typeof name === 'string') error.name = name;
  if (typeof stack === 'string') error.stack = stack;
  return error;
}

/** Whether something is an answer to a web request, of whatever implementation. */
export const isResponse = (value: object): value is Response =>
  value instanceof Response ||
  (typeof (value as Response).status === 'number' &&
    typeof (value as Response).arrayBuffer === 'function' &&
    typeof (value as Response).headers?.get === 'function');

/** The body of a request or an answer, piece by piece. */
export async function* piecesOf(of: Request | Response): AsyncGenerator<unknown> {
  if (!(of.body instanceof ReadableStream)) yield new Uint8Array(await of.arrayBuffer());
  else yield* of.body;
}

/** Statuses whose answers have no body are given none. */
export function bodyOf(pieces: unknown): ReadableStream<Uint8Array> | null {
  if (pieces == null) return null;
  const iterator = (pieces as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: async () => void (await iterator.return?.()),
    },
    { highWaterMark: 0 },
  );
}

/** A stream that is read, and ended, by functions of the other side. */
export const iterable = (next: Lent, end: Lent): AsyncIterable<unknown> => ({
  [Symbol.asyncIterator]: () => ({
    next: () => next() as Promise<IteratorResult<unknown>>,
    async return() {
      await end();
      return { done: true as const, value: undefined };
    },
  }),
});

/** A stream that is asked for once it is read. */
export async function* later(begin: () => Promise<AsyncIterable<unknown>>): AsyncGenerator<unknown> {
  yield* await begin();
}
