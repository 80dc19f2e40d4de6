import { canonicalJson } from '@rookery/events';

/** What goes into a transaction, each as it lies there. */
export interface TransactionParts {
  readonly pduTexts: readonly string[];
  readonly eduTexts: readonly string[];
}

interface Written extends TransactionParts {
  readonly ts: number;
  readonly body: Buffer;
}

/** Transactions that begin within this time may say that they began together, milliseconds. */
const togetherMs = 1_000;

/**
 * Writes transactions. News of a room go to many servers one after the other: what they are sent says the same, and is written once for
 * all of them.
 */
export class WrittenTransactions {
  readonly #origin: string;
  #last: Written | undefined;

  constructor(serverName: string) {
    this.#origin = canonicalJson(serverName);
  }

  /** When a transaction is to have begun, milliseconds since 1970. */
  beginningOf(parts: TransactionParts, nowMs: number): number {
    const last = this.#last;
    if (last === undefined || Math.abs(nowMs - last.ts) > togetherMs) return nowMs;
    return isSame(last, parts) ? last.ts : nowMs;
  }

  /** The body of a transaction, canonical JSON. Not to be changed. */
  of(parts: TransactionParts, ts: number): Buffer {
    const last = this.#last;
    if (last?.ts === ts && isSame(last, parts)) return last.body;
    const { pduTexts, eduTexts } = parts;
    // Keys in canonical order.
    const body = Buffer.from(
      `{"edus":[${eduTexts.join(',')}],"origin":${this.#origin},"origin_server_ts":${ts},"pdus":[${pduTexts.join(',')}]}`,
    );
    // EDUs are for one server each, most of them.
    if (eduTexts.length === 0) this.#last = { ...parts, ts, body };
    return body;
  }
}

const isSame = (a: TransactionParts, b: TransactionParts): boolean =>
  a.eduTexts.length === 0 &&
  b.eduTexts.length === 0 &&
  a.pduTexts.length === b.pduTexts.length &&
  a.pduTexts.every((text, i) => text === b.pduTexts[i]);
