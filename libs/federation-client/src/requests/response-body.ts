import { Readable, Transform, type TransformCallback } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import type { Dispatcher } from 'undici';
import { FederationRequestError } from './federation-request-error.js';
import { tooLarge } from './whole-answer.js';

const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/** Lets a number of bytes through. */
class BodySizeLimit extends Transform {
  #seen = 0;
  constructor(
    private readonly maxBytes: number,
    private readonly tooLarge: () => Error,
  ) {
    super();
  }
  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#seen += chunk.length;
    if (this.#seen > this.maxBytes) done(this.tooLarge());
    else done(null, chunk);
  }
}

/**
 * The body of an answer, unpacked; fails when it grows too large or breaks off. Destroying it frees the connection.
 * @param explain turns what went wrong into what is told
 */
export function boundedBody(
  destination: string,
  { headers, body }: Pick<Dispatcher.ResponseData, 'headers' | 'body'>,
  maxBytes: number,
  explain: (error: unknown) => FederationRequestError,
): Readable {
  const tooMuch = (): FederationRequestError => tooLarge(destination, maxBytes);
  const limit = new BodySizeLimit(maxBytes, tooMuch);
  const fail = (error: unknown): void => void limit.destroy(explain(error));
  // Readers see the failure all the same; nobody may be reading yet.
  limit.on('error', () => undefined);
  limit.on('close', () => body.destroy());
  body.on('error', fail);
  const encoding = String(headers['content-encoding'] ?? '').toLowerCase();
  const decoder = decoders[encoding]?.();
  if (decoder !== undefined) {
    decoder.on('error', () =>
      limit.destroy(
        new FederationRequestError(destination, 'bad_response', `The answer of ${destination} cannot be unpacked`),
      ),
    );
    limit.on('close', () => decoder.destroy());
    body.pipe(decoder).pipe(limit);
  } else {
    body.pipe(limit);
    if (Number(headers['content-length'] ?? 0) > maxBytes) limit.destroy(tooMuch());
  }
  return limit;
}

/** Whether JSON text is nested more deeply than `limit`; looks at brackets outside strings. */
export function isNestedTooDeeply(text: string, limit: number): boolean {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit === 0x22) {
      for (i++; i < text.length; i++) {
        const inside = text.charCodeAt(i);
        if (inside === 0x5c) i++;
        else if (inside === 0x22) break;
      }
    } else if (unit === 0x7b || unit === 0x5b) {
      if (++depth > limit) return true;
    } else if (unit === 0x7d || unit === 0x5d) depth--;
  }
  return false;
}
