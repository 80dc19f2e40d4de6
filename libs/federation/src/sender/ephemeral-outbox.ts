import { presenceContent, type PresenceState, type Receipt } from '@rookery/ephemeral';
import { eduOf, type OutgoingEdu } from './outgoing-edu.js';

/** Somebody began or stopped typing. */
export interface TypingNews {
  readonly roomId: string;
  readonly userId: string;
  readonly typing: boolean;
}

/** Most that waits for one server; the oldest is old news and goes first. */
const maxTyping = 500;
const maxReceipts = 5_000;
const maxPresence = 2_000;
/** In one EDU. */
const maxPresencePerEdu = 50;
const maxReceiptsPerEdu = 200;

/** EDUs of one transaction, and what they were made of. */
export interface EphemeralEdus {
  readonly edus: readonly OutgoingEdu[];
  /** Forgets what was sent, unless it has changed since. */
  delivered(): void;
}

/**
 * Typing, receipts and presence on their way to one server: the latest of each only, however slowly it takes them. News for a
 * moment: lost with the process.
 */
export class EphemeralOutbox {
  readonly #typing = new Map<string, TypingNews>();
  readonly #receipts = new Map<string, Receipt>();
  readonly #presence = new Map<string, PresenceState>();

  get size(): number {
    return this.#typing.size + this.#receipts.size + this.#presence.size;
  }

  addTyping(news: TypingNews): void {
    put(this.#typing, `${news.roomId}\n${news.userId}`, news, maxTyping);
  }

  addReceipts(receipts: readonly Receipt[]): void {
    for (const receipt of receipts) {
      const key = `${receipt.roomId}\n${receipt.userId}\n${receipt.threadId ?? ''}`;
      put(this.#receipts, key, receipt, maxReceipts);
    }
  }

  addPresence(states: readonly PresenceState[]): void {
    for (const state of states) put(this.#presence, state.userId, state, maxPresence);
  }

  /** At most `limit` EDUs. What they hold stays here until it is delivered. */
  next(limit: number, nowMs: number): EphemeralEdus {
    const edus: OutgoingEdu[] = [];
    const done: (() => void)[] = [];
    const room = (): number => limit - edus.length;
    if (room() > 0 && this.#presence.size > 0) {
      const states = [...this.#presence.values()].slice(0, maxPresencePerEdu * Math.min(room(), 2));
      for (let i = 0; i < states.length; i += maxPresencePerEdu)
        edus.push(presenceEdu(states.slice(i, i + maxPresencePerEdu), nowMs));
      done.push(() => forget(this.#presence, states, (state) => state.userId));
    }
    if (room() > 0 && this.#receipts.size > 0) {
      const { made, used } = receiptEdus(this.#receipts, Math.min(room(), 10));
      edus.push(...made);
      done.push(() => {
        for (const [key, receipt] of used) if (this.#receipts.get(key) === receipt) this.#receipts.delete(key);
      });
    }
    const typing = [...this.#typing.values()].slice(0, Math.max(0, room()));
    for (const { roomId, userId, typing: is } of typing)
      edus.push(eduOf('m.typing', { room_id: roomId, user_id: userId, typing: is }));
    done.push(() => forget(this.#typing, typing, (news) => `${news.roomId}\n${news.userId}`));
    return { edus, delivered: () => done.forEach((one) => one()) };
  }
}

function put<Value>(map: Map<string, Value>, key: string, value: Value, max: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= max) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}

function forget<Value>(map: Map<string, Value>, values: readonly Value[], keyOf: (value: Value) => string): void {
  for (const value of values) {
    const key = keyOf(value);
    if (map.get(key) === value) map.delete(key);
  }
}

/** @spec server-server-api#mpresence-schema */
function presenceEdu(states: readonly PresenceState[], nowMs: number): OutgoingEdu {
  const push = states.map((state) => ({
    user_id: state.userId,
    last_active_ago: 0,
    ...presenceContent(state, nowMs),
  }));
  return eduOf('m.presence', { push });
}

type Receipts = Record<string, { 'm.read': Record<string, object> }>;

/**
 * An EDU has one receipt of a user and room: those in threads take further EDUs.
 * @spec server-server-api#receipts
 */
function receiptEdus(
  waiting: ReadonlyMap<string, Receipt>,
  limit: number,
): { readonly made: OutgoingEdu[]; readonly used: [string, Receipt][] } {
  const used: [string, Receipt][] = [];
  const contents: { count: number; readonly rooms: Receipts }[] = [];
  for (const [key, receipt] of waiting) {
    const { roomId, userId, eventId, threadId, ts } = receipt;
    let content = contents.find(
      ({ count, rooms }) => count < maxReceiptsPerEdu && rooms[roomId]?.['m.read'][userId] === undefined,
    );
    if (content === undefined) {
      if (contents.length >= limit) break;
      contents.push((content = { count: 0, rooms: {} }));
    }
    const users = (content.rooms[roomId] ??= { 'm.read': {} })['m.read'];
    users[userId] = { event_ids: [eventId], data: threadId === undefined ? { ts } : { ts, thread_id: threadId } };
    content.count++;
    used.push([key, receipt]);
  }
  return { made: contents.map(({ rooms }) => eduOf('m.receipt', rooms)), used };
}
