import { Cache, type Config } from '@rookery/platform';

/** Members of all connections together; a connection counts as some more. */
const maxMembers = 5_000_000;
const membersOfConnection = 100;
const maxMembersPerConnection = 50_000;

/** Which member events were sent, by room and user. */
type Sent = Map<string, Map<string, string>>;

interface Entry {
  readonly confirmed: Sent;
  size: number;
  /** What the last answer brought: it counts once the client comes back with that answer's position. */
  pending: { readonly pos: string; readonly sent: Sent; readonly anew: readonly string[] } | undefined;
}

/**
 * Remembers which members a connection was sent because of its timelines (`$LAZY`). Losing an entry, as a restart does, only
 * means sending an event twice.
 */
export class LazyMembers {
  readonly #connections: Cache<number, Entry>;

  constructor(config: Config) {
    this.#connections = new Cache(config, 'sliding_sync_lazy_members', {
      ...{ invalidation: 'never', max: 2 * maxMembers },
      sizeOf: ({ size }) => size + membersOfConnection,
    });
  }

  /** The client came back with `pos`: the answer that gave it has arrived, any later one has not. */
  confirm(key: number, pos: string): void {
    const entry = this.#connections.get(key);
    if (entry?.pending?.pos === pos) {
      for (const roomId of entry.pending.anew) {
        entry.size -= entry.confirmed.get(roomId)?.size ?? 0;
        entry.confirmed.delete(roomId);
      }
      for (const [roomId, members] of entry.pending.sent) {
        let room = entry.confirmed.get(roomId);
        if (room === undefined) entry.confirmed.set(roomId, (room = new Map()));
        for (const [userId, eventId] of members) {
          if (!room.has(userId)) entry.size++;
          room.set(userId, eventId);
        }
      }
      if (entry.size > maxMembersPerConnection) {
        entry.confirmed.clear();
        entry.size = 0;
      }
      this.#connections.set(key, entry);
    }
    if (entry) entry.pending = undefined;
  }

  /** Whether the client has the member event already. */
  has(key: number | undefined, roomId: string, userId: string, eventId: string): boolean {
    if (key === undefined) return false;
    return this.#connections.get(key)?.confirmed.get(roomId)?.get(userId) === eventId;
  }

  /**
   * An answer with these members is on its way.
   * @param anew rooms of which the client is told as if for the first time: what it had of them does not count any more
   */
  sending(key: number, pos: string, sent: Sent, anew: readonly string[] = []): void {
    let entry = this.#connections.get(key);
    if (sent.size === 0 && entry === undefined) return;
    if (entry === undefined)
      this.#connections.set(key, (entry = { confirmed: new Map(), size: 0, pending: undefined }));
    entry.pending = sent.size === 0 && anew.length === 0 ? undefined : { pos, sent, anew };
  }
}
