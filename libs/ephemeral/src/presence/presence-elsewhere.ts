import { Injectable, type OnModuleInit } from '@nestjs/common';
import { BackgroundTasks, Cache, Clock, Config, eachLimit, Logger } from '@rookery/platform';
import { defineRpc, Invalidations, type Stream, Streams } from '@rookery/replication';
import type { PresenceName } from '../model/presence-state.js';
import { presenceStream } from './presence-publisher.js';

/** A device that syncs, and how its user counts as present meanwhile. */
export interface SyncingDevice {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly state: PresenceName;
}

/** A device that syncs, or did not long ago. */
export interface SeenDevice extends SyncingDevice {
  /** How long ago it was there last, milliseconds. */
  readonly agoMs: number;
  /** That it says this may not have been heard. */
  readonly isUnheard?: boolean;
}

/** A device says by a sync how its user is there; answered by whether that holds now, by the version before with nothing. */
export const saidElsewhere = defineRpc<SyncingDevice, boolean | undefined>('presence_syncing');

/** Devices sync, or did, of which that process has heard what they say. */
export const seenElsewhere = defineRpc<{ readonly devices: readonly SeenDevice[] }, void>('presence_seen', {
  timeoutMs: 5_000,
});

/** A device's user did something. */
export const activeElsewhere = defineRpc<Omit<SyncingDevice, 'state'>, void>('presence_active');

/** What the process that knows who is there was told of a device. Times are monotonic, milliseconds. */
interface Told {
  /** Absent where it was told only that the user is active. */
  readonly state: PresenceName | undefined;
  seenMs: number;
  activeMs: number;
}

/** What there is to tell of a device with the next round. */
interface Due {
  readonly userId: string;
  readonly deviceId: string | undefined;
  state: PresenceName;
  /** Syncs that wait right now. */
  syncing: number;
  seenMs: number;
  isUnheard: boolean;
}

/** Rounds are so far apart at most, milliseconds: who is left without a word goes offline so much too early. */
const longestRoundMs = 5_000;
/** ... and at most this part of the time after which a device counts as gone, where that is no moment. */
const roundsPerGap = 6;
const shortestRoundMs = 1_000;
/** That somebody is active is told no oftener, milliseconds. */
const tellActiveMs = 10_000;
const maxToldBytes = 8 * 1024 * 1024;
/** What an entry holds beside its key, bytes. */
const toldBytes = 160;
/** Devices of which more is not waited for: what is over is left out. */
const maxDue = 20_000;
const maxPerCall = 2_000;

const keyOf = (userId: string, deviceId: string | undefined): string => `${userId}\n${deviceId ?? ''}`;

/**
 * Tells the process that knows who is there of devices that sync by way of another one. What a device says is told when it is new, that it
 * is still there with all others from time to time: so often that nobody goes offline between two syncs, or stays online by a process
 * that is lost. What that process knows is forgotten here as soon as it changes there.
 */
@Injectable()
export class PresenceElsewhere implements OnModuleInit {
  readonly #stream: Stream;
  readonly #told: Cache<string, Told>;
  readonly #due = new Map<string, Due>();
  /** False where a version before this one knows who is there: it is told of each device by itself. */
  #isUnderstood = true;

  constructor(
    streams: Streams,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly tasks: BackgroundTasks,
    private readonly invalidations: Invalidations,
  ) {
    this.#stream = streams.of(presenceStream);
    this.#told = new Cache(config, 'presence_told', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 2 * maxToldBytes },
      sizeOf: (_, key) => 2 * key.length + toldBytes,
    });
    invalidations.on('presence_told', this.#told);
  }

  onModuleInit(): void {
    if (this.#stream.isWrittenHere) return;
    const run = (): Promise<void> => this.#tellSeen();
    this.tasks.add({ name: 'tell_presence', role: 'every_process', everyMs: this.#roundMs, run }).start();
  }

  /** A device begins to sync. Call what it gives when the sync ends. */
  syncing(device: SyncingDevice): () => void {
    const { userId, deviceId, state } = device;
    const key = keyOf(userId, deviceId);
    const nowMs = this.clock.monotonicMs();
    const due = this.#due.get(key) ?? { userId, deviceId, state, syncing: 0, seenMs: nowMs, isUnheard: false };
    this.#due.set(key, due);
    due.state = state;
    due.syncing++;
    due.seenMs = nowMs;
    const told = this.#told.get(key);
    // A round later it must still be there.
    if (told?.state !== state || nowMs - told.seenMs >= this.#gapMs - 2 * this.#roundMs) void this.#say(key, due);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      due.syncing--;
      due.seenMs = this.clock.monotonicMs();
      if (due.syncing === 0 && this.#due.size > maxDue) this.#due.delete(key);
    };
  }

  /** A device's user did something: told now and then. */
  active(userId: string, deviceId: string | undefined): void {
    const key = keyOf(userId, deviceId);
    const nowMs = this.clock.monotonicMs();
    const told = this.#told.get(key);
    if (told === undefined) this.#told.set(key, { state: undefined, seenMs: -Infinity, activeMs: nowMs });
    else if (nowMs - told.activeMs < tellActiveMs) return;
    else told.activeMs = nowMs;
    this.#stream.atWriter(activeElsewhere, { userId, deviceId }).catch((err: unknown) => {
      this.logger.debug('Nobody could be told that somebody is active', { err });
    });
  }

  /** Where it is known who is there: a device says something else than it did, so all others must tell of it again. */
  forget(userId: string, deviceId: string | undefined): void {
    this.invalidations.send(this.#told.name, [keyOf(userId, deviceId)]);
  }

  get #gapMs(): number {
    return this.config.get('presence.sync_online_timeout');
  }

  get #roundMs(): number {
    return Math.max(shortestRoundMs, Math.min(longestRoundMs, this.#gapMs / roundsPerGap));
  }

  async #say(key: string, due: Due): Promise<void> {
    const { userId, deviceId, state } = due;
    const seenMs = this.clock.monotonicMs();
    const activeMs = this.#told.peek(key)?.activeMs ?? -Infinity;
    this.#told.delete(key);
    const reading = this.#told.begin();
    try {
      const holds = await this.#stream.atWriter(saidElsewhere, { userId, deviceId, state });
      this.#isUnderstood = holds !== undefined;
      due.isUnheard = false;
      if (holds === true) reading.keep(key, { state, seenMs, activeMs });
    } catch (err) {
      due.isUnheard = true;
      this.#lost(err);
    } finally {
      reading.end();
    }
  }

  async #tellSeen(): Promise<void> {
    const all = [...this.#due];
    if (!this.#isUnderstood) return this.#tellEach(all);
    for (let at = 0; at < all.length; at += maxPerCall) {
      const part = all.slice(at, at + maxPerCall);
      const nowMs = this.clock.monotonicMs();
      const devices = part.map(([, { syncing, seenMs, userId, deviceId, state, isUnheard }]): SeenDevice => {
        const agoMs = syncing > 0 ? 0 : Math.round(nowMs - seenMs);
        return { userId, deviceId, state, agoMs, ...(isUnheard && { isUnheard }) };
      });
      try {
        await this.#stream.atWriter(seenElsewhere, { devices });
      } catch (err) {
        this.#lost(err);
        break;
      }
      for (const [index, [key, due]] of part.entries()) {
        due.isUnheard = false;
        const told = this.#told.peek(key);
        if (told !== undefined) told.seenMs = Math.max(told.seenMs, nowMs - devices[index]!.agoMs);
        this.#settle(key, due, nowMs);
      }
    }
    this.#forgetGone();
  }

  async #tellEach(all: readonly (readonly [key: string, due: Due])[]): Promise<void> {
    const nowMs = this.clock.monotonicMs();
    await eachLimit(all, 16, async ([key, due]) => {
      await this.#say(key, due);
      this.#settle(key, due, nowMs);
    });
  }

  /** What was over is told. */
  #settle(key: string, due: Due, toldMs: number): void {
    if (due.syncing === 0 && due.seenMs <= toldMs && !due.isUnheard) this.#due.delete(key);
  }

  /** Of whom nobody could be told in time is gone. */
  #forgetGone(): void {
    const goneMs = this.clock.monotonicMs() - this.#gapMs;
    for (const [key, { syncing, seenMs }] of this.#due) if (syncing === 0 && seenMs <= goneMs) this.#due.delete(key);
  }

  /** Perhaps another process knows from now on who is there. */
  #lost(err: unknown): void {
    this.#told.clear();
    this.logger.debug('Nobody could be told which devices sync', { err });
  }
}
