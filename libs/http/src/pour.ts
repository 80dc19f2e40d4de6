import type { ServerResponse } from 'node:http';

/** What goes out as one body. */
export type Body = string | Uint8Array | readonly Uint8Array[];

/** Whether a body is in parts. */
export const isInParts = (body: Body): body is readonly Uint8Array[] => Array.isArray(body);

/** Most that is handed to the system at once, bytes: what is sent in parts shows whether the client reads. */
export const sliceBytes = 65_536;
/** Most that is written of an answer in one turn of the event loop, bytes: a fast reader takes as much as there is. */
export const pouredPerTurnBytes = 1_048_576;

/** A body in pieces of {@link sliceBytes} at most, which are views of it. */
export function* slicesOf(body: Body): Generator<Uint8Array> {
  const parts = typeof body === 'string' ? [Buffer.from(body)] : isInParts(body) ? body : [body];
  for (const part of parts)
    for (let at = 0; at < part.length; at += sliceBytes) yield part.subarray(at, at + sliceBytes);
}

/** Writes a body as fast as the client reads, and ends the answer. */
export function pour(response: ServerResponse, body: Body): void {
  const slices = slicesOf(body);
  let leftBytes = pouredPerTurnBytes;
  const goOn = (): void => {
    if (response.destroyed) return;
    // One write for the system.
    response.cork();
    for (let taken = true; taken;) {
      const { done, value } = slices.next();
      if (done === true) {
        response.end();
        return;
      }
      leftBytes -= value.length;
      taken = response.write(value);
    }
    response.uncork();
    response.once('drain', () => {
      if (leftBytes > 0) return goOn();
      leftBytes = pouredPerTurnBytes;
      setImmediate(goOn);
    });
  };
  goOn();
}
