import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  EphemeralHooks,
  presenceContent,
  presenceStream,
  receiptContents,
  receiptsStream,
  type StoredPresence,
  type StoredReceipt,
} from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Logger } from '@rookery/platform';
import { Follower, forgetCursor, inBatches, Notifier, type StreamReader, type StreamRow } from '@rookery/replication';
import type { Registration } from '../registration/registration.js';
import { RoomInterest } from './room-interest.js';

type Offer = (asId: string, edu: JsonObject) => void;

/** Rooms in which typing changed and was not told yet. */
const maxTypingRooms = 10_000;

/**
 * Typing, receipts and presence for services that want them. They are news for a moment: what a service misses while it
 * cannot be reached, or while this server restarts, is not sent later.
 * @spec application-service-api#pushing-ephemeral-data
 */
@Injectable()
export class EphemeralFeed implements OnModuleInit {
  readonly #followers: Follower[] = [];
  readonly #typing = new Map<string, readonly string[]>();
  #offer: Offer | undefined;
  #telling = false;

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly config: Config,
    private readonly hooks: EphemeralHooks,
    private readonly interest: RoomInterest,
  ) {}

  onModuleInit(): void {
    if (!this.interest.services.some(wantsEphemeral)) return;
    this.hooks.subscribe({ typistsChanged: (roomId, userIds) => this.#typistsChanged(roomId, userIds) });
  }

  /** Begins with what comes from now on. */
  async start(offer: Offer): Promise<void> {
    if (!this.interest.services.some(wantsEphemeral)) return;
    this.#offer = offer;
    await this.#follow('appservice_receipts', receiptsStream, (rows) => this.#receipts(rows));
    if (this.config.get('presence.enabled') === true)
      await this.#follow('appservice_presence', presenceStream, (rows) => this.#presence(rows));
  }

  async stop(): Promise<void> {
    this.#offer = undefined;
    await Promise.all(this.#followers.map((follower) => follower.stop()));
  }

  async #follow<Row extends StreamRow>(
    name: string,
    stream: StreamReader<Row>,
    handle: (rows: readonly Row[]) => Promise<void>,
  ): Promise<void> {
    const { database, notifier, clock, logger } = this;
    // What happened while nobody looked is no news: an old cursor would only cost time.
    await database.write((tx) => forgetCursor(tx, name), {
      name: 'appservice_start',
    });
    const follower = new Follower({
      ...{ name, stream: stream.name, database, notifier, clock, logger, startAt: 'now' },
      saveEveryMs: 60_000,
      advance: inBatches(database, stream, handle),
    });
    this.#followers.push(follower);
    await follower.start();
  }

  async #receipts(rows: readonly StoredReceipt[]): Promise<void> {
    const rooms = await this.interest.ofRooms(new Set(rows.map(({ roomId }) => roomId)));
    for (const [roomId, services] of rooms) {
      const inRoom = rows.filter((row) => row.roomId === roomId);
      for (const service of services) {
        if (!wantsEphemeral(service)) continue;
        // Private ones are for those who sent them.
        const shown = inRoom.filter(({ type, userId }) => type !== 'm.read.private' || service.covers(userId));
        if (shown.length === 0) continue;
        for (const content of receiptContents(shown))
          this.#offer?.(service.id, { type: 'm.receipt', room_id: roomId, content });
      }
    }
  }

  async #presence(rows: readonly StoredPresence[]): Promise<void> {
    const interested = await this.interest.ofUsers(rows.map(({ userId }) => userId));
    const nowMs = this.clock.nowMs();
    for (const row of rows)
      for (const service of interested.get(row.userId) ?? [])
        if (wantsEphemeral(service))
          this.#offer?.(service.id, { type: 'm.presence', sender: row.userId, content: presenceContent(row, nowMs) });
  }

  #typistsChanged(roomId: string, userIds: readonly string[]): void {
    if (!this.#offer || this.#typing.size >= maxTypingRooms) return;
    this.#typing.set(roomId, userIds);
    if (!this.#telling) void this.#tellTyping();
  }

  async #tellTyping(): Promise<void> {
    this.#telling = true;
    try {
      while (this.#typing.size > 0) {
        const changed = [...this.#typing];
        this.#typing.clear();
        const rooms = await this.interest.ofRooms(new Set(changed.map(([roomId]) => roomId)));
        for (const [roomId, userIds] of changed)
          for (const service of rooms.get(roomId) ?? [])
            if (wantsEphemeral(service))
              this.#offer?.(service.id, { type: 'm.typing', room_id: roomId, content: { user_ids: userIds } });
      }
    } catch (error) {
      this.logger.warn('Application services were not told of typing', { err: error });
    } finally {
      this.#telling = false;
    }
  }
}

/** Whether a service is told of typing, receipts and presence. */
export const wantsEphemeral = ({ fields }: Registration): boolean =>
  fields.ephemeral.stable || fields.ephemeral.unstable;
