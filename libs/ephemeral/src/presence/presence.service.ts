import { Injectable, type OnModuleInit } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { BackgroundTasks, Clock, Config, KeyedMutex, Logger } from '@rookery/platform';
import { defineRpc, type Stream } from '@rookery/replication';
import { RoomHooks } from '@rookery/rooms';
import { UserHooks } from '@rookery/users';
import { LocalPresence } from './local-presence.js';
import { PresencePublisher } from './presence-publisher.js';
import { isNews, offlineState, type PresenceName, type PresenceState } from '../model/presence-state.js';

/** A device syncs by way of another process. */
const syncingElsewhere = defineRpc<SyncingDevice, void>('presence_syncing');

/** A device's user did something by way of another process. */
const activeElsewhere = defineRpc<Omit<SyncingDevice, 'state'>, void>('presence_active');

interface SyncingDevice {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly state: PresenceName;
}

/** How often another process tells that a sync goes on; less than what counts as its end. */
const tellAgainMs = 10_000;
/** Devices of which it is remembered when they were told of last. */
const maxToldActive = 20_000;
const sweepEveryMs = 5_000;
/** Users of another server go offline when nothing is heard of them for so long. */
const remoteTimeoutMs = 30 * 60_000;
const longestStatusBytes = 1_024;

/**
 * Who is there. What devices of local users do is noted in memory; {@link PresencePublisher} tells others what they should
 * know, and `PresenceReader` shows it.
 * @spec client-server-api#presence
 */
@Injectable()
export class PresenceService implements OnModuleInit {
  readonly #local: LocalPresence;
  /** What syncs are about to make of users' presence. */
  readonly #coming = new KeyedMutex();
  readonly #toldActiveMs = new Map<string, number>();
  #opening: Promise<void> | undefined;

  // Eight parameters: what devices, clients, modules and other servers say of somebody becomes one presence, on one board.
  constructor(
    private readonly publisher: PresencePublisher,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly rateLimiter: RateLimiter,
    private readonly tasks: BackgroundTasks,
    userHooks: UserHooks,
    roomHooks: RoomHooks,
  ) {
    this.#local = new LocalPresence(() => ({
      activeMs: config.get('presence.last_active_granularity'),
      syncGapMs: config.get('presence.sync_online_timeout'),
      idleMs: config.get('presence.idle_timeout'),
    }));
    publisher.stream.serve(syncingElsewhere, async ({ userId, deviceId, state }) =>
      this.syncing(userId, deviceId, state)(),
    );
    publisher.stream.serve(activeElsewhere, async ({ userId, deviceId }) => this.active(userId, deviceId));
    publisher.computeBy((before) => this.#local.combined(before, clock.nowMs()));
    roomHooks.subscribe({
      afterCommit: ({ roomId, moves, backfilled }) => {
        if (backfilled || publisher.board.size === 0) return;
        for (const { userId, membership } of moves) publisher.moved(userId, roomId, membership === 'join');
      },
    });
    userHooks.deactivated.subscribe({
      afterCommit: async ({ userId }) => {
        this.#local.forget(userId);
        // With the status message, which is theirs.
        this.publisher.mark(userId, offlineState(userId));
      },
    });
  }

  onModuleInit(): Promise<void> {
    return this.open();
  }

  /** Loads the stream's counter and who was there. Needs the migrated schema. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The stream; `current()` is what readers may read up to. */
  get stream(): Stream {
    return this.publisher.stream;
  }

  /** How many users' presence is in memory. */
  get known(): number {
    return this.publisher.board.size;
  }

  /** Whether presence is shown at all. */
  get enabled(): boolean {
    return this.publisher.enabled;
  }

  /** Whether devices of local users make their presence. */
  get #tracked(): boolean {
    return this.config.get('presence.enabled') === true;
  }

  /**
   * A device begins to sync. Call what it gives when the sync ends.
   * @param state what the sync says with `set_presence`; `offline` changes nothing
   */
  syncing(userId: string, deviceId: string | undefined, state: PresenceName): () => void {
    if (!this.#tracked || state === 'offline') return () => {};
    if (!this.stream.isWrittenHere) return this.#syncingElsewhere({ userId, deviceId, state });
    const nowMs = this.clock.nowMs();
    const shown = this.#checked(state);
    const changes = this.#local.wouldChange(userId, deviceId, shown, nowMs);
    const ended = this.#local.syncing(userId, deviceId, nowMs);
    if (changes) void this.#coming.run(userId, () => this.#comeBy(userId, deviceId, shown));
    return () => ended(this.clock.nowMs());
  }

  /**
   * Tells the process that knows who is there, again and again while the sync goes on: nobody is left online by a process that is
   * lost.
   */
  #syncingElsewhere(who: SyncingDevice): () => void {
    const tell = (): void => {
      this.stream.atWriter(syncingElsewhere, who).catch((err: unknown) => {
        this.logger.debug('Nobody could be told that a device syncs', { err });
      });
    };
    tell();
    const telling = this.clock.every(tellAgainMs, tell);
    return () => {
      telling.cancel();
      tell();
    };
  }

  /** Tells the process that knows who is there, now and then. */
  #activeElsewhere(userId: string, deviceId: string | undefined): void {
    const key = `${userId}\n${deviceId ?? ''}`;
    const nowMs = this.clock.monotonicMs();
    if (nowMs - (this.#toldActiveMs.get(key) ?? -Infinity) < tellAgainMs) return;
    if (this.#toldActiveMs.size >= maxToldActive) this.#toldActiveMs.clear();
    this.#toldActiveMs.set(key, nowMs);
    this.stream.atWriter(activeElsewhere, { userId, deviceId }).catch((err: unknown) => {
      this.logger.debug('Nobody could be told that somebody is active', { err });
    });
  }

  /** Resolves when it is told what a sync that has just begun makes of a user's presence. */
  async arrived(userId: string): Promise<void> {
    if (!this.#coming.isBusy(userId)) return;
    await this.#coming.run(userId, () => Promise.resolve());
    await this.publisher.flush();
  }

  /** A device's user did something: sent, read, typed. Costs a look-up while nothing changes by it. */
  active(userId: string, deviceId: string | undefined): void {
    if (!this.#tracked) return;
    if (!this.stream.isWrittenHere) return this.#activeElsewhere(userId, deviceId);
    this.#local.active(userId, deviceId, this.clock.nowMs());
    if (this.#differs(userId)) this.publisher.mark(userId);
  }

  /**
   * A user sets presence and status message.
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  async setByClient(
    userId: string,
    deviceId: string | undefined,
    state: PresenceName,
    statusMsg: string | undefined,
  ): Promise<void> {
    if (statusMsg !== undefined && (Buffer.byteLength(statusMsg) > longestStatusBytes || !statusMsg.isWellFormed()))
      throw MatrixError.invalidParam(`The status message may not be longer than ${longestStatusBytes} bytes`);
    if (this.#checked(state) !== state) throw MatrixError.invalidParam(`The server does not know "${state}"`);
    if (!this.#tracked) return;
    this.#local.set(userId, deviceId, state, this.clock.nowMs());
    await this.#setStatus(userId, statusMsg?.replaceAll('\0', ''));
  }

  /** Sets presences of local users whatever their devices do: by a module. */
  async setForUsers(
    states: readonly { readonly userId: string; readonly state: PresenceName; readonly statusMsg?: string }[],
  ): Promise<void> {
    if (!this.enabled) return;
    for (const { userId, state, statusMsg } of states) {
      this.#local.set(userId, undefined, state, this.clock.nowMs());
      await this.#setStatus(userId, statusMsg);
    }
  }

  /** Presences of users of other servers, as those say. */
  receive(states: readonly PresenceState[]): void {
    if (!this.enabled) return;
    for (const state of states) {
      if (this.#isLocal(state.userId)) continue;
      this.publisher.mark(state.userId, { ...state, lastFederationMs: this.clock.nowMs() });
    }
  }

  /** Writes and tells what changed until now; resolves when that is done. */
  flush(): Promise<void> {
    return this.publisher.flush();
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }

  #checked(state: PresenceName): PresenceName {
    return state === 'busy' && !this.config.get('experimental_features.msc3026_enabled') ? 'online' : state;
  }

  /** A device comes back by a sync, or changes its mind; too often is passed over, until the next sync. */
  async #comeBy(userId: string, deviceId: string | undefined, state: PresenceName): Promise<void> {
    try {
      await this.rateLimiter.take('rc_presence.per_user', userId);
    } catch (error) {
      if (!MatrixError.is(error)) this.logger.error('Could not limit presence', { err: error });
      return;
    }
    this.#local.set(userId, deviceId, state, this.clock.nowMs());
    if (this.#differs(userId)) this.publisher.mark(userId);
  }

  async #setStatus(userId: string, statusMsg: string | undefined): Promise<void> {
    const before = await this.publisher.current(userId);
    this.publisher.mark(userId, { ...before, statusMsg });
  }

  #differs(userId: string): boolean {
    const before = this.publisher.board.find(userId) ?? offlineState(userId);
    return isNews(before, this.publisher.now(before));
  }

  #sweep(): void {
    const nowMs = this.clock.nowMs();
    for (const state of this.publisher.board.present()) {
      if (this.#isLocal(state.userId)) {
        if (this.#differs(state.userId)) this.publisher.mark(state.userId);
      } else if (nowMs - state.lastFederationMs > remoteTimeoutMs) {
        this.publisher.mark(state.userId, { ...state, state: 'offline', currentlyActive: false });
      }
    }
    this.#local.sweep(nowMs);
  }

  async #open(): Promise<void> {
    // What devices do is known where the stream is written.
    if (!this.stream.isWrittenHere) return void (await this.publisher.open());
    for (const state of await this.publisher.open()) {
      // Everybody has the usual time to sync again.
      if (this.#isLocal(state.userId)) this.#local.restore(state, this.clock.nowMs());
    }
    const run = (): void => this.#sweep();
    this.tasks.add({ name: 'sweep_presence', role: 'writer', everyMs: sweepEveryMs, run }).start();
  }
}
