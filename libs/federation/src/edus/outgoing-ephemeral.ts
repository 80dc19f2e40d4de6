import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { EphemeralHooks, PresenceService, type PresenceState, type Receipt, RoomAudience } from '@rookery/ephemeral';
import { domainOf } from '@rookery/matrix-types';
import { BackgroundTasks, Clock, Config, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import { type EventBatch, EventStore, RoomHooks } from '@rookery/rooms';
import { FederationSender } from '../sender/federation-sender.js';
import { RemoteAudience } from '../sender/remote-audience.js';

/** Servers take users for offline of whom they hear nothing for half an hour. */
const remindEveryMs = 25 * 60_000;
const remindCheckMs = 5 * 60_000;
/** Arrivals are answered together. */
const arrivalDelayMs = 500;
const maxArrivals = 1_000;
/** Presences that an arriving server is told of one room. */
const maxPresences = 500;
/** Rooms whose receipts wait. */
const maxReceiptRooms = 20_000;

interface ReceiptRoom {
  readonly waiting: Map<string, Receipt>;
  timer: Timer | undefined;
}

/** Tells other servers who types, reads and is there. Best effort: what cannot be told now is no news later. */
@Injectable()
export class OutgoingEphemeral implements OnModuleInit, OnModuleDestroy {
  readonly #receiptRooms = new Map<string, ReceiptRoom>();
  /** When the presence of a user was told last, milliseconds of the monotonic clock. */
  readonly #told = new Map<string, number>();
  #arrivals = new Map<string, Set<string>>();
  #arrivalTimer: Timer | undefined;
  readonly #presenceOut;

  // Thirteen parameters: typing, receipts and presence each have a source, and share the audience and the sender.
  constructor(
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly hooks: EphemeralHooks,
    private readonly roomHooks: RoomHooks,
    private readonly presence: PresenceService,
    private readonly members: RoomAudience,
    private readonly events: EventStore,
    private readonly audience: RemoteAudience,
    private readonly sender: FederationSender,
    private readonly tasks: BackgroundTasks,
    metrics: Metrics,
  ) {
    this.#presenceOut = metrics.counter('synapse_handler_presence_federation_presence_out');
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      typingChanged: (roomId, userId, typing) => this.#try('typing', () => this.#typing(roomId, userId, typing)),
      receiptsSent: (receipts) => this.#try('receipts', () => this.#receipts(receipts)),
      presenceChanged: (states) => this.#try('presence', () => this.#presence(states)),
      presenceFor: (userIds, states) => this.#presenceFor(userIds, states),
    });
    this.roomHooks.subscribe({ afterCommit: (batch) => this.#noteArrivals(batch) });
    const run = (): Promise<void> => this.#remind();
    this.tasks.add({ name: 'remind_of_presence', role: 'federation_sender', everyMs: remindCheckMs, run }).start();
  }

  onModuleDestroy(): void {
    this.#arrivalTimer?.cancel();
    for (const { timer } of this.#receiptRooms.values()) timer?.cancel();
  }

  async #typing(roomId: string, userId: string, typing: boolean): Promise<void> {
    for (const server of await this.audience.of(roomId)) this.sender.to(server).addTyping({ roomId, userId, typing });
  }

  async #receipts(receipts: readonly Receipt[]): Promise<void> {
    const shown = receipts.filter(({ type }) => type === 'm.read');
    if (shown.length === 0) return;
    const audiences = await this.audience.ofRooms(shown.map(({ roomId }) => roomId));
    for (const [roomId, inRoom] of Map.groupBy(shown, (receipt) => receipt.roomId)) {
      const servers = audiences.get(roomId) ?? [];
      if (servers.length > 0) this.#addReceipts(roomId, inRoom, servers);
    }
  }

  /** The first receipt goes at once; those of the time after it together, so that a room causes no flood of transactions. */
  #addReceipts(roomId: string, receipts: readonly Receipt[], servers: readonly string[]): void {
    let room = this.#receiptRooms.get(roomId);
    if (room === undefined) {
      for (const server of servers) this.sender.to(server).addReceipts(receipts);
      if (this.#receiptRooms.size >= maxReceiptRooms) return;
      room = { waiting: new Map(), timer: undefined };
      this.#receiptRooms.set(roomId, room);
      this.#rest(roomId, room, servers.length);
      return;
    }
    for (const receipt of receipts) room.waiting.set(`${receipt.userId}\n${receipt.threadId ?? ''}`, receipt);
  }

  #rest(roomId: string, room: ReceiptRoom, servers: number): void {
    const pauseMs = (1000 * servers) / this.config.get('federation_rr_transactions_per_room_per_second');
    room.timer = this.clock.after(pauseMs, () => this.#try('receipts', () => this.#flush(roomId, room)));
  }

  async #flush(roomId: string, room: ReceiptRoom): Promise<void> {
    const waiting = [...room.waiting.values()];
    if (waiting.length === 0) return void this.#receiptRooms.delete(roomId);
    room.waiting.clear();
    let servers: readonly string[] = [];
    try {
      servers = await this.audience.of(roomId);
      for (const server of servers) this.sender.to(server).addReceipts(waiting);
    } finally {
      this.#rest(roomId, room, Math.max(servers.length, 1));
    }
  }

  async #presence(states: readonly PresenceState[]): Promise<void> {
    if (!this.audience.hasAny) return;
    const userIds = states.map(({ userId }) => userId);
    const audiences = await this.audience.ofUsers(userIds, new Set(this.config.get('exclude_rooms_from_presence')));
    const byServer = new Map<string, PresenceState[]>();
    for (const state of states) {
      const servers = audiences.get(state.userId) ?? new Set();
      for (const server of servers) {
        const list = byServer.get(server);
        if (list) list.push(state);
        else byServer.set(server, [state]);
      }
      if (servers.size > 0 && state.state !== 'offline') this.#told.set(state.userId, this.clock.monotonicMs());
      else this.#told.delete(state.userId);
    }
    for (const [server, list] of byServer) {
      this.sender.to(server).addPresence(list);
      this.#presenceOut.inc({}, list.length);
    }
  }

  #presenceFor(userIds: readonly string[], states: readonly PresenceState[]): void {
    for (const server of new Set(userIds.map(domainOf)))
      if (this.audience.mayReach(server)) this.sender.to(server).addPresence(states);
  }

  /** Tells again of those who are still there, but of whom nothing was told for long. */
  async #remind(): Promise<void> {
    if (this.#told.size === 0) return;
    const before = this.clock.monotonicMs() - remindEveryMs + remindCheckMs;
    const due = this.presence.localPresent().filter(({ userId }) => (this.#told.get(userId) ?? Infinity) < before);
    if (due.length > 0) await this.#presence(due);
  }

  /** A server that comes into a room is told who is there. */
  #noteArrivals({ roomId, events, room, backfilled }: EventBatch): void {
    if (backfilled || room.remoteServers.length === 0 || room.localMembers.size === 0) return;
    for (const { event, outlier, replacesState } of events) {
      if (outlier || event.type !== 'm.room.member' || event.content['membership'] !== 'join') continue;
      const server = event.stateKey === undefined ? undefined : domainOf(event.stateKey);
      if (server === undefined || server === this.config.serverName) continue;
      // A new name is the commonest of these events, and no arrival.
      const before = replacesState === undefined ? undefined : this.events.peek(replacesState)?.event.content;
      if (before?.['membership'] === 'join') continue;
      if (!this.presence.enabled || this.#arrivals.size >= maxArrivals) return;
      const servers = this.#arrivals.get(roomId);
      if (servers) servers.add(server);
      else this.#arrivals.set(roomId, new Set([server]));
      this.#arrivalTimer ??= this.clock.after(arrivalDelayMs, () => this.#try('presence', () => this.#welcome()));
    }
  }

  async #welcome(): Promise<void> {
    this.#arrivalTimer = undefined;
    const arrivals = this.#arrivals;
    this.#arrivals = new Map();
    const present = this.presence.localPresent();
    if (present.length === 0) return;
    const hidden = new Set(this.config.get('exclude_rooms_from_presence'));
    const rooms = [...arrivals.keys()].filter((roomId) => !hidden.has(roomId));
    const members = await this.members.ofRooms(rooms);
    for (const roomId of rooms) {
      const there = present.filter(({ userId }) => members.get(roomId)?.has(userId)).slice(0, maxPresences);
      if (there.length === 0) continue;
      for (const { userId } of there) this.#told.set(userId, this.clock.monotonicMs());
      for (const server of arrivals.get(roomId) ?? [])
        if (this.audience.mayReach(server)) this.sender.to(server).addPresence(there);
    }
  }

  #try(what: string, work: () => Promise<void>): void {
    if (this.lifecycle.stopping.aborted) return;
    work().catch((error: unknown) => {
      if (!this.lifecycle.stopping.aborted)
        this.logger.warn('Other servers could not be told of news', { what, err: error });
    });
  }
}
