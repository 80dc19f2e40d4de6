import { Injectable, type OnModuleInit } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { BackgroundTasks, Clock, Config, KeyedMutex, Logger } from '@rookery/platform';
import type { Stream } from '@rookery/replication';
import { UserHooks } from '@rookery/users';
import { LocalPresence } from './local-presence.js';
import {
  activeElsewhere,
  PresenceElsewhere,
  saidElsewhere,
  seenElsewhere,
  type SeenDevice,
  type SyncingDevice,
} from './presence-elsewhere.js';
import { PresencePublisher } from './presence-publisher.js';
import { isNews, offlineState, type PresenceName, type PresenceState } from '../model/presence-state.js';

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
  #opening: Promise<void> | undefined;
  #seenActive = 0;
  #timedOut = 0;

  // Eight parameters: what devices, clients, modules and other servers say of somebody becomes one presence, on one board.
  constructor(
    private readonly publisher: PresencePublisher,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly rateLimiter: RateLimiter,
    private readonly tasks: BackgroundTasks,
    private readonly elsewhere: PresenceElsewhere,
    userHooks: UserHooks,
  ) {
    this.#local = new LocalPresence(() => ({
      activeMs: config.get('presence.last_active_granularity'),
      syncGapMs: config.get('presence.sync_online_timeout'),
      idleMs: config.get('presence.idle_timeout'),
    }));
    publisher.stream.serve(saidElsewhere, (device) => this.#said(device));
    publisher.stream.serve(seenElsewhere, async ({ devices }) => devices.forEach((device) => this.#seen(device)));
    publisher.stream.serve(activeElsewhere, async ({ userId, deviceId }) => this.active(userId, deviceId));
    publisher.computeBy((before) => this.#local.combined(before, clock.nowMs()));
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

  /** How often devices said that their user is active, since the start; counted by the process that writes presence. */
  get seenActive(): number {
    return this.#seenActive;
  }

  /** How often a presence became another one because time passed, since the start. */
  get timedOut(): number {
    return this.#timedOut;
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
    if (!this.stream.isWrittenHere) return this.elsewhere.syncing({ userId, deviceId, state });
    const nowMs = this.clock.nowMs();
    const shown = this.#checked(state);
    const changes = this.#local.wouldChange(userId, deviceId, shown, nowMs);
    const ended = this.#local.syncing(userId, deviceId, nowMs);
    if (changes) void this.#coming.run(userId, () => this.#comeBy(userId, deviceId, shown));
    return () => ended(this.clock.nowMs());
  }

  /** A device says by a sync at another process how its user is there. @returns whether that holds now */
  async #said({ userId, deviceId, state }: SyncingDevice): Promise<boolean> {
    this.syncing(userId, deviceId, state)();
    if (this.#coming.isBusy(userId)) await this.#coming.run(userId, () => Promise.resolve());
    return !this.#local.wouldChange(userId, deviceId, this.#checked(state), this.clock.nowMs());
  }

  /** A device syncs at another process, or did a moment ago. What it has said is as it was, unless it is not known here. */
  #seen({ agoMs, isUnheard, ...device }: SeenDevice): void {
    const { userId, deviceId, state } = device;
    const nowMs = this.clock.nowMs();
    if (isUnheard !== true && this.#local.seen(userId, deviceId, nowMs, nowMs - agoMs)) return;
    this.syncing(userId, deviceId, state)();
  }

  /** Resolves when it is told what a sync that has just begun makes of a user's presence. */
  async arrived(userId: string): Promise<void> {
    if (!this.#coming.isBusy(userId)) return;
    await this.#coming.run(userId, () => Promise.resolve());
    await this.publisher.flush();
  }

  /** A device's user did something: read, typed, sent. Costs a look-up while nothing changes by it. */
  active(userId: string, deviceId: string | undefined): void {
    if (!this.#tracked) return;
    if (!this.stream.isWrittenHere) return this.elsewhere.active(userId, deviceId);
    this.#seenActive++;
    if (this.#local.active(userId, deviceId, this.clock.nowMs())) this.elsewhere.forget(userId, deviceId);
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
    this.#set(userId, deviceId, state);
    await this.#setStatus(userId, statusMsg?.replaceAll('\0', ''));
  }

  /** Sets presences of local users whatever their devices do: by a module. Where the server does not know `busy`, it is `online`. */
  async setForUsers(
    states: readonly { readonly userId: string; readonly state: PresenceName; readonly statusMsg?: string }[],
  ): Promise<void> {
    if (!this.enabled) return;
    for (const { userId, state, statusMsg } of states) {
      this.#set(userId, undefined, this.#checked(state));
      await this.#setStatus(userId, statusMsg);
    }
  }

  /** Presences of users of other servers, as those say; `busy` as above. */
  receive(states: readonly PresenceState[]): void {
    if (!this.enabled) return;
    for (const state of states) {
      if (this.#isLocal(state.userId)) continue;
      const told = { ...state, state: this.#checked(state.state), lastFederationMs: this.clock.nowMs() };
      this.publisher.mark(state.userId, told);
    }
  }

  /** Writes and tells what changed until now; resolves when that is done. */
  flush(): Promise<void> {
    return this.publisher.flush();
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }

  /** What the server shows of a state: `busy` only where it is set so (MSC3026). */
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
    this.#set(userId, deviceId, state);
    if (this.#differs(userId)) this.publisher.mark(userId);
  }

  #set(userId: string, deviceId: string | undefined, state: PresenceName): void {
    if (this.#local.set(userId, deviceId, state, this.clock.nowMs())) this.elsewhere.forget(userId, deviceId);
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
        if (!this.#differs(state.userId)) continue;
        this.#timedOut++;
        this.publisher.mark(state.userId);
      } else if (nowMs - state.lastFederationMs > remoteTimeoutMs) {
        this.#timedOut++;
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
