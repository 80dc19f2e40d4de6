import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger, type Timer } from '@rookery/platform';
import { type ChangedKeys, defineRpc, defineStream, type Stream, Streams } from '@rookery/replication';
import { RoomHooks } from '@rookery/rooms';
import { RoomAudience } from '../common/room-audience.js';
import { EphemeralHooks } from '../hooks.js';
import { takeTypingAtStop, writeTypingAtStop } from './typing.query.js';

/** How long somebody types without saying so again: where the client does not say, and at most; milliseconds. */
const defaultTimeoutMs = 30_000;
const longestTimeoutMs = 120_000;
/** Users who type at the same time; further ones are passed over. */
const maxTypistsPerRoom = 500;
const maxTypists = 50_000;

/** Changes of who is typing, by room. The rows are in the memory of its writer. */
export const typingStream = defineStream({ name: 'typing', keys: { room: {} } });

/** Somebody types, or not any more; answered by the process that knows who does. */
const setTyping = defineRpc<TypingChange, void>('set_typing');

/** Where typing changed; answered by the process that knows who types. */
const typingChanges = defineRpc<
  { readonly roomIds: readonly string[]; readonly since?: number; readonly upTo?: number },
  readonly (readonly [roomId: string, userIds: readonly string[]])[]
>('typing_changes');

/** News of typing: behind one position, up to another. */
export interface TypingRange {
  readonly after: number;
  readonly upTo: number;
}

interface TypingChange {
  readonly roomId: string;
  readonly userId: string;
  /** For how long, milliseconds; absent for one who types no more. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Who is typing where. Kept in the memory of the process that writes the stream `typing`; positions go on over a restart,
 * so that tokens stay valid.
 * @spec client-server-api#typing-notifications
 */
@Injectable()
export class TypingService implements OnModuleInit, OnModuleDestroy {
  readonly stream: Stream<'room'>;
  readonly #rooms = new Map<string, Map<string, Timer>>();
  readonly #changes: ChangedKeys;
  #typists = 0;
  // Rooms in which somebody was typing when the process before this one stopped: clients from then must hear that it is over.
  #before: readonly string[] = [];

  // Eight parameters: who types lies in memory; the database keeps over a restart what was told, hooks and the stream
  // tell it.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly audience: RoomAudience,
    private readonly hooks: EphemeralHooks,
    streams: Streams,
    roomHooks: RoomHooks,
  ) {
    this.stream = streams.of(typingStream);
    this.#changes = this.stream.changes('room');
    this.stream.serve(typingChanges, async ({ roomIds, since, upTo = Infinity }) => [
      ...(await this.changes(roomIds, since === undefined ? undefined : { after: since, upTo })),
    ]);
    this.stream.serve(setTyping, ({ roomId, userId, timeoutMs }) => this.#set(roomId, userId, timeoutMs));
    roomHooks.subscribe({
      afterCommit: ({ roomId, moves }) => {
        if (!this.#rooms.has(roomId)) return;
        for (const { userId, membership } of moves) {
          if (membership !== 'join') void this.#set(roomId, userId, undefined);
        }
      },
    });
  }

  async onModuleInit(): Promise<void> {
    if (!this.stream.isWrittenHere) return;
    this.#before = await this.database.write((tx) => takeTypingAtStop(tx), { name: 'typing_at_start' });
  }

  async onModuleDestroy(): Promise<void> {
    const roomIds = [...this.#rooms.keys()];
    for (const typists of this.#rooms.values()) for (const timer of typists.values()) timer.cancel();
    this.#rooms.clear();
    if (roomIds.length > 0 && this.stream.isWrittenHere)
      await this.database.write((tx) => writeTypingAtStop(tx, roomIds), { name: 'typing_at_stop' });
  }

  /**
   * A local user says to be typing, or not any more.
   * @param timeoutMs how long, unless said again; clamped to two minutes
   * @throws MatrixError 403 `M_FORBIDDEN` when the user is not in the room
   */
  async setByClient(roomId: string, userId: string, typing: boolean, timeoutMs = defaultTimeoutMs): Promise<void> {
    if (!(await this.audience.localMembers(roomId)).has(userId)) throw MatrixError.notInRoom();
    const forMs = typing ? Math.min(Math.max(timeoutMs, 1), longestTimeoutMs) : undefined;
    await this.stream.askWriter(setTyping, { roomId, userId, timeoutMs: forMs });
  }

  /** Another server says that its user types, or not any more; that the user is in the room was checked. */
  setRemote(roomId: string, userId: string, typing: boolean): Promise<void> {
    return this.stream.askWriter(setTyping, { roomId, userId, timeoutMs: typing ? 60_000 : undefined });
  }

  /** Who is typing in a room now. */
  typists(roomId: string): string[] {
    return [...(this.#rooms.get(roomId)?.keys() ?? [])];
  }

  /**
   * Rooms in which typing changed last after one position and not after another, with who is typing there now (maybe nobody):
   * where it changed again behind `upTo`, whoever reads up to there is told. Without a range the rooms in which somebody types.
   * Costs no query; in a process that does not write the stream a call where something changed.
   */
  changes(
    roomIds: ReadonlySet<string> | readonly string[],
    range: TypingRange | undefined,
  ): ReadonlyMap<string, readonly string[]> | Promise<ReadonlyMap<string, readonly string[]>> {
    if (!this.stream.isWrittenHere) return this.#changesElsewhere(roomIds, range);
    const isKnown = range !== undefined && range.after >= this.#changes.earliestKnown;
    const changed = isKnown
      ? this.#changes.changedSince(roomIds, range.after, range.upTo)
      : this.#among(roomIds, range === undefined ? [] : this.#before);
    return new Map(changed.map((roomId) => [roomId, this.typists(roomId)]));
  }

  /** What the process says that knows who types. */
  async #changesElsewhere(
    roomIds: ReadonlySet<string> | readonly string[],
    range: TypingRange | undefined,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    const isKnown = range !== undefined && range.after >= this.#changes.earliestKnown;
    const asked = isKnown ? this.#changes.changedSince(roomIds, range.after, range.upTo) : [...roomIds];
    if (asked.length === 0) return new Map();
    const asking = { roomIds: asked, ...(range && { since: range.after, upTo: range.upTo }) };
    const answer = await this.stream.askWriter(typingChanges, asking);
    return new Map(answer);
  }

  /** Rooms with somebody typing, and further ones, that are among the given. */
  #among(roomIds: ReadonlySet<string> | readonly string[], more: readonly string[]): string[] {
    if (this.#rooms.size + more.length === 0) return [];
    const wanted: ReadonlySet<string> = roomIds instanceof Set ? roomIds : new Set(roomIds);
    return [...this.#rooms.keys(), ...more].filter((roomId) => wanted.has(roomId));
  }

  async #set(roomId: string, userId: string, timeoutMs: number | undefined): Promise<void> {
    const before = this.#rooms.get(roomId)?.get(userId);
    before?.cancel();
    if (timeoutMs === undefined) {
      if (before === undefined) return;
      this.#remove(roomId, userId);
    } else {
      const timer = (): Timer => this.clock.after(timeoutMs, () => void this.#set(roomId, userId, undefined));
      if (before !== undefined) return void this.#rooms.get(roomId)?.set(userId, timer());
      let typists = this.#rooms.get(roomId);
      if (this.#typists >= maxTypists || (typists?.size ?? 0) >= maxTypistsPerRoom) return;
      if (!typists) this.#rooms.set(roomId, (typists = new Map()));
      typists.set(userId, timer());
      this.#typists++;
    }
    try {
      await this.#announce(roomId);
    } catch (error) {
      this.logger.error('Could not tell about typing', { room_id: roomId, err: error });
    }
    if (domainOf(userId) === this.config.serverName) this.hooks.typingChanged(roomId, userId, timeoutMs !== undefined);
  }

  #remove(roomId: string, userId: string): void {
    const typists = this.#rooms.get(roomId);
    if (!typists?.delete(userId)) return;
    this.#typists--;
    if (typists.size === 0) this.#rooms.delete(roomId);
  }

  async #announce(roomId: string): Promise<void> {
    const users = await this.audience.localMembers(roomId);
    const reserved = await this.stream.allocate();
    reserved.commit({ changed: { room: [roomId] }, users });
    this.hooks.typistsChanged(roomId, this.typists(roomId));
  }
}
