import type { Readable } from 'node:stream';

/** The bytes are not what `multipart` is. */
export class MultipartError extends Error {
  override readonly name = 'MultipartError';
}

/** One part; its body must be read before the next part is asked for. */
export interface MultipartPart {
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: AsyncGenerator<Buffer, void>;
}

/** Longest text before the first part, and longest headers of a part, bytes. */
const maxPreambleBytes = 65_536;
const maxHeaderBytes = 16_384;
const endOfHeaders = Buffer.from('\r\n\r\n');

/** The boundary that a content type names; `undefined` when it is not multipart. RFC 2046 */
export function boundaryOf(contentType: string): string | undefined {
  if (contentType.length > 1_024 || !/^\s*multipart\//i.test(contentType)) return undefined;
  const match = /;\s*boundary\s*=\s*(?:"([^"]{1,70})"|([^\s;"]{1,70})(?=[\s;]|$))/i.exec(contentType);
  return match?.[1] ?? match?.[2];
}

/** Reads the parts of a multipart body as it arrives, in bounded memory. */
export class MultipartReader {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #delimiter: Buffer;
  #pending: Buffer;
  #ended = false;
  #started = false;

  constructor(stream: Readable, boundary: string) {
    this.#chunks = (stream as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
    // The first delimiter may stand at the very beginning, without an end of line before it.
    this.#pending = Buffer.from('\r\n');
  }

  /**
   * The next part; `undefined` after the last one.
   * @throws MultipartError, and what the stream fails with
   */
  async next(): Promise<MultipartPart | undefined> {
    if (!this.#started) {
      this.#started = true;
      await this.#take(this.#delimiter, maxPreambleBytes);
    }
    if ((await this.#peek(2)).equals(Buffer.from('--'))) return undefined;
    // White space may stand behind a delimiter; the end of that line belongs to the headers' end when there are none.
    const text = (await this.#take(endOfHeaders, maxHeaderBytes)).toString('latin1');
    const headers = new Map<string, string>();
    for (const line of text.split('\r\n')) {
      const colon = line.indexOf(':');
      if (colon > 0) headers.set(line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim());
    }
    return { headers, body: this.#body() };
  }

  async *#body(): AsyncGenerator<Buffer, void> {
    // A part without content: its delimiter starts with the end of line that ends the headers.
    for (;;) {
      const at = this.#pending.indexOf(this.#delimiter);
      if (at >= 0) {
        const last = this.#pending.subarray(0, at);
        this.#pending = this.#pending.subarray(at + this.#delimiter.length);
        if (last.length > 0) yield last;
        return;
      }
      const safe = this.#pending.length - this.#delimiter.length + 1;
      if (safe > 0) {
        const ready = this.#pending.subarray(0, safe);
        this.#pending = this.#pending.subarray(safe);
        yield ready;
      }
      if (!(await this.#fill())) throw new MultipartError('A part has no end');
    }
  }

  /** Everything before a mark, which is left behind. */
  async #take(mark: Buffer, maxBytes: number): Promise<Buffer> {
    for (;;) {
      const at = this.#pending.indexOf(mark);
      if (at >= 0) {
        const taken = this.#pending.subarray(0, at);
        this.#pending = this.#pending.subarray(at + mark.length);
        return taken;
      }
      if (this.#pending.length > maxBytes) throw new MultipartError('The headers of a part are too long');
      if (!(await this.#fill())) throw new MultipartError('A part is missing');
    }
  }

  async #peek(length: number): Promise<Buffer> {
    while (this.#pending.length < length) if (!(await this.#fill())) throw new MultipartError('A part is missing');
    return this.#pending.subarray(0, length);
  }

  async #fill(): Promise<boolean> {
    if (this.#ended) return false;
    const { done, value } = await this.#chunks.next();
    if (done === true) {
      this.#ended = true;
      return false;
    }
    this.#pending = this.#pending.length === 0 ? value : Buffer.concat([this.#pending, value]);
    return true;
  }
}
