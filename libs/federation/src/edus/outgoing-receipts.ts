import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { EphemeralHooks, type StoredReceipt } from '@rookery/ephemeral';
import { Clock, Config, Lifecycle, Logger, type Timer } from '@rookery/platform';
import { FederationSender } from '../sender/federation-sender.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { BestEffort } from './best-effort.js';

/** How often it is said again that somebody still types, milliseconds: servers that do not hear it forget that after a minute. */
const typingAgainMs = 40_000;
/** Rooms whose receipts wait. */
const maxReceiptRooms = 20_000;

interface ReceiptRoom {
  readonly waiting: Map<string, StoredReceipt>;
  /**
   * The position of the newest receipt that came in this pause, by user and thread: processes may tell of them in another order than they
   * came; and in the one before.
   */
  newest: Map<string, number>;
  before: ReadonlyMap<string, number>;
  timer: Timer | undefined;
}

/** Tells other servers who types and reads. Best effort: what cannot be told now is no news later. */
@Injectable()
export class OutgoingReceipts implements OnModuleInit, OnModuleDestroy {
  readonly #receiptRooms = new Map<string, ReceiptRoom>();
  /** Users of this server who type, by room and user. */
  readonly #typists = new Map<string, Timer>();
  readonly #effort: BestEffort;

  constructor(
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly hooks: EphemeralHooks,
    private readonly audience: RemoteAudience,
    private readonly sender: FederationSender,
    lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#effort = new BestEffort(lifecycle, logger);
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      typingChanged: (roomId, userId, typing) => this.#effort.try('typing', () => this.#typing(roomId, userId, typing)),
      receiptsSent: (receipts) => this.#effort.try('receipts', () => this.#receipts(receipts)),
    });
  }

  onModuleDestroy(): void {
    for (const { timer } of this.#receiptRooms.values()) timer?.cancel();
    for (const timer of this.#typists.values()) timer.cancel();
  }

  async #typing(roomId: string, userId: string, typing: boolean): Promise<void> {
    const key = `${roomId}\n${userId}`;
    this.#typists.get(key)?.cancel();
    const again = (): void => this.#effort.try('typing', () => this.#typing(roomId, userId, true));
    if (typing && this.audience.hasAny) this.#typists.set(key, this.clock.after(typingAgainMs, again));
    else this.#typists.delete(key);
    this.sender.sendTyping(await this.audience.of(roomId), { roomId, userId, typing });
  }

  async #receipts(receipts: readonly StoredReceipt[]): Promise<void> {
    const shown = receipts.filter(({ type }) => type === 'm.read');
    if (shown.length === 0) return;
    const audiences = await this.audience.ofRooms(shown.map(({ roomId }) => roomId));
    for (const [roomId, inRoom] of Map.groupBy(shown, (receipt) => receipt.roomId)) {
      const servers = audiences.get(roomId) ?? [];
      if (servers.length > 0) this.#addReceipts(roomId, inRoom, servers);
    }
  }

  /** The first receipt goes at once; those of the time after it together, so that a room causes no flood of transactions. */
  #addReceipts(roomId: string, receipts: readonly StoredReceipt[], servers: readonly string[]): void {
    let room = this.#receiptRooms.get(roomId);
    if (room === undefined) {
      this.sender.sendReceipts(servers, receipts);
      if (this.#receiptRooms.size >= maxReceiptRooms) return;
      room = { waiting: new Map(), newest: new Map(), before: new Map(), timer: undefined };
      for (const receipt of receipts) room.newest.set(placeOf(receipt), receipt.position);
      this.#receiptRooms.set(roomId, room);
      this.#rest(roomId, room, servers.length);
      return;
    }
    for (const receipt of receipts) {
      const place = placeOf(receipt);
      if (receipt.position < (room.newest.get(place) ?? room.before.get(place) ?? 0)) continue;
      room.newest.set(place, receipt.position);
      room.waiting.set(place, receipt);
    }
  }

  #rest(roomId: string, room: ReceiptRoom, servers: number): void {
    const pauseMs = (1000 * servers) / this.config.get('federation_rr_transactions_per_room_per_second');
    room.timer = this.clock.after(pauseMs, () => this.#effort.try('receipts', () => this.#flush(roomId, room)));
  }

  async #flush(roomId: string, room: ReceiptRoom): Promise<void> {
    const waiting = [...room.waiting.values()];
    if (waiting.length === 0) return void this.#receiptRooms.delete(roomId);
    room.waiting.clear();
    // A room that is never quiet would keep everybody who ever read in it.
    room.before = room.newest;
    room.newest = new Map();
    let servers: readonly string[] = [];
    try {
      servers = await this.audience.of(roomId);
      this.sender.sendReceipts(servers, waiting);
    } finally {
      this.#rest(roomId, room, Math.max(servers.length, 1));
    }
  }
}

const placeOf = ({ userId, threadId }: StoredReceipt): string => `${userId}\n${threadId ?? ''}`;
