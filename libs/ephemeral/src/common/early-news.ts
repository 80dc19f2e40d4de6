/** How much is kept, and for how long. */
export interface EarlyNewsLimits<T> {
  /** Pieces that are kept: of one server's users, and in all. */
  readonly perServer: number;
  readonly inAll: number;
  /** What has not been taken by then is not waited for, milliseconds. */
  readonly keptMs: number;
  /** Called with each piece that is kept no more, for whatever reason. */
  readonly dropped?: (piece: T) => void;
}

interface Kept<T> {
  readonly piece: T;
  readonly untilMs: number;
}

/** What other servers have told before its time. The latest of each key is kept, in memory; where there is too much, the oldest goes. */
export class EarlyNews<T> {
  /** By server, then by key; the oldest first. */
  readonly #servers = new Map<string, Map<string, Kept<T>>>();
  readonly #limits: EarlyNewsLimits<T>;
  #size = 0;

  constructor(limits: EarlyNewsLimits<T>) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#size;
  }

  /** Keeps a piece, in place of the one with the same key. */
  add(server: string, key: string, piece: T, nowMs: number): void {
    const { perServer, inAll, keptMs } = this.#limits;
    this.delete(server, key);
    let ofServer = this.#servers.get(server);
    if (!ofServer) this.#servers.set(server, (ofServer = new Map()));
    ofServer.set(key, { piece, untilMs: nowMs + keptMs });
    this.#size++;
    if (ofServer.size > perServer) this.#deleteOldest(server);
    else if (this.#size > inAll) this.#deleteOldest(this.#servers.keys().next().value!);
  }

  /** What is kept of one server's users. */
  of(server: string): T[] {
    return Array.from(this.#servers.get(server)?.values() ?? [], ({ piece }) => piece);
  }

  /** Takes a piece out. @returns it, unless it is too old or not there */
  take(server: string, key: string, nowMs: number): T | undefined {
    const kept = this.delete(server, key);
    return kept && kept.untilMs > nowMs ? kept.piece : undefined;
  }

  /** Forgets a piece. */
  delete(server: string, key: string): Kept<T> | undefined {
    const ofServer = this.#servers.get(server);
    const kept = ofServer?.get(key);
    if (!ofServer || !kept) return undefined;
    ofServer.delete(key);
    if (ofServer.size === 0) this.#servers.delete(server);
    this.#size--;
    this.#limits.dropped?.(kept.piece);
    return kept;
  }

  #deleteOldest(server: string): void {
    const oldest = this.#servers.get(server)?.keys().next().value;
    if (oldest !== undefined) this.delete(server, oldest);
  }
}
