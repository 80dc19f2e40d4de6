import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Ids } from '@rookery/platform';

/** What two devices leave for each other while one of them signs the other in. */
export interface RendezvousSession {
  readonly id: string;
  /** Who began it: a user, or the network of an address. */
  readonly holder: string;
  readonly data: Buffer;
  /** Content type of the data. */
  readonly type: string;
  /** Changes with every write. */
  readonly version: string;
  /** The version before, so that a write that is sent again is told from one that came too late. */
  readonly versionBefore: string | undefined;
  /** When it was written last, milliseconds since the epoch. */
  readonly writtenMs: number;
  /** When it ends, milliseconds since the epoch. */
  readonly expiresMs: number;
}

/** Sessions of one user or network, in which several may share an address, at a time; the oldest ends when there is one more. */
const maxSessionsOfOne = 10;
/** Sessions altogether; nobody's ends for somebody else's. */
const maxSessions = 5_000;
const maxDataBytes = 4_096;

/** Mailboxes for sign-in by QR code, in the memory of this process and for a short time (MSC4108, MSC4388). */
@Injectable()
export class RendezvousSessions {
  readonly #sessions = new Map<string, RendezvousSession>();

  constructor(
    private readonly clock: Clock,
    private readonly ids: Ids,
  ) {}

  /**
   * @param holder who begins it: a user, or the network of an address
   * @throws MatrixError 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED` when there are too many of all
   */
  create(holder: string, data: Buffer, type: string, lifetimeMs: number): RendezvousSession {
    checkSize(data);
    const nowMs = this.clock.nowMs();
    const own: string[] = [];
    let nextEndMs = Infinity;
    for (const [id, session] of this.#sessions) {
      if (session.expiresMs <= nowMs) {
        this.#sessions.delete(id);
        continue;
      }
      nextEndMs = Math.min(nextEndMs, session.expiresMs);
      if (session.holder === holder) own.push(id);
    }
    if (own.length >= maxSessionsOfOne) this.#sessions.delete(own[0]!);
    if (this.#sessions.size >= maxSessions) throw MatrixError.limitExceeded(nextEndMs - nowMs);
    const session: RendezvousSession = {
      id: this.ids.letters(26),
      holder,
      data,
      type,
      version: this.ids.letters(16),
      versionBefore: undefined,
      writtenMs: nowMs,
      expiresMs: nowMs + lifetimeMs,
    };
    this.#sessions.set(session.id, session);
    return session;
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  get(id: string): RendezvousSession {
    const session = this.#sessions.get(id);
    if (session === undefined || session.expiresMs <= this.clock.nowMs())
      throw MatrixError.notFound('There is no such session');
    return session;
  }

  /**
   * Replaces what lies in a session; the same write once more changes nothing.
   * @returns `undefined` when `version` is not the present one: somebody else was faster
   * @throws MatrixError 404 `M_NOT_FOUND`, 413 `M_TOO_LARGE`
   */
  write(id: string, version: string, data: Buffer, type: string): RendezvousSession | undefined {
    checkSize(data);
    const before = this.get(id);
    if (before.versionBefore === version && before.data.equals(data)) return before;
    if (before.version !== version) return undefined;
    const written = {
      ...before,
      data,
      type,
      version: this.ids.letters(16),
      versionBefore: version,
      writtenMs: this.clock.nowMs(),
    };
    this.#sessions.set(id, written);
    return written;
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  delete(id: string): void {
    this.get(id);
    this.#sessions.delete(id);
  }
}

function checkSize(data: Buffer): void {
  if (data.length > maxDataBytes) throw MatrixError.tooLarge(`Not more than ${maxDataBytes} bytes can be left`);
}
