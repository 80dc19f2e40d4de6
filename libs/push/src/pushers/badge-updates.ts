import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Clock, KeyedMutex, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import { OwnReads } from '../actions/own-reads.js';
import { PushDelivery } from './push-delivery.js';
import { PushMessages } from './push-messages.js';
import { type PushMessage, PushRequests } from './push-requests.js';
import { gatewayOf, type Pusher } from './pusher.js';
import { PushersService } from './pushers.service.js';

/** What is read within this time changes a badge once. */
const badgeDelayMs = 1_000;
/** A number that was worked out longer ago, for want of a place or of an answer to the device before, is worked out anew. */
const freshMs = 100;

/** Tells devices how much is unread when something was read, soon and once, in whichever process sends to them. Best effort. */
@Injectable()
export class BadgeUpdates implements OnModuleInit {
  readonly #stopping = new AbortController();
  readonly #waiting = new Map<string, Timer>();
  readonly #tasks = new Set<Promise<void>>();
  readonly #turns = new KeyedMutex();

  // Nine parameters: who has read is told by two, whom that concerns, what they are told and whether by three more.
  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly lifecycle: Lifecycle,
    private readonly pushers: PushersService,
    private readonly ownReads: OwnReads,
    private readonly messages: PushMessages,
    private readonly requests: PushRequests,
    private readonly delivery: PushDelivery,
  ) {}

  onModuleInit(): void {
    this.ownReads.onWritten((userIds) => this.#track(this.#haveSent(userIds)));
    this.delivery.onBadgeDue((userId) => this.#due(userId));
    this.lifecycle.on('streams', { name: 'push badges', everyProcess: true, stop: () => this.stop() });
  }

  /** Cuts requests under way short; nobody is told any more. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const timer of this.#waiting.values()) timer.cancel();
    await Promise.all(this.#tasks);
  }

  /** A user has read something. */
  changed(userId: string): void {
    if (!this.pushers.any || this.#waiting.has(userId) || this.#stopping.signal.aborted) return;
    const timer = this.clock.after(badgeDelayMs, () => {
      this.#waiting.delete(userId);
      this.delivery.tellBadge(userId);
    });
    this.#waiting.set(userId, timer);
  }

  /** Users have read by sending: one query finds out who has a badge, of however many. */
  async #haveSent(userIds: readonly string[]): Promise<void> {
    if (!this.pushers.any || this.#stopping.signal.aborted) return;
    try {
      for (const userId of await this.pushers.withBadges(userIds)) this.changed(userId);
    } catch (error) {
      this.logger.warn('The badges of senders could not be looked up', { err: error });
    }
  }

  /** Looks at a user's devices. One look at a time: whatever changes meanwhile is looked at once more. */
  #due(userId: string): void {
    if (this.#stopping.signal.aborted || this.#turns.waiting(userId) > 0) return;
    this.#track(this.#turns.run(userId, () => this.#send(userId)));
  }

  #isDue(pusher: Pusher, { unread }: PushMessage): boolean {
    if (this.requests.shownBy(pusher.id) === unread) return false;
    return !this.requests.isResting(pusher) && !this.delivery.isRetried(pusher.id);
  }

  /** Tells a device the number, counted anew where there was a wait. */
  async #sendTo(pusher: Pusher, counted: (pusher: Pusher) => PushMessage, countedAtMs: number): Promise<void> {
    const isOld = this.clock.monotonicMs() - countedAtMs > freshMs;
    const messageFor = isOld ? await this.messages.ofBadge(pusher.userId) : counted;
    const message = messageFor(pusher);
    if (!this.#isDue(pusher, message)) return;
    const verdict = await this.requests.send(pusher, message, this.#stopping.signal);
    const outcome = verdict.kind === 'sent' ? 'processed' : 'failed';
    this.metrics.counter(`synapse_http_httppusher_badge_updates_${outcome}`).inc({});
  }

  /** Never rejects. */
  async #send(userId: string): Promise<void> {
    const { signal } = this.#stopping;
    try {
      const pushers = (await this.pushers.list(userId)).filter(
        (one) => one.kind === 'http' && one.enabled && this.messages.showsBadge(one),
      );
      if (pushers.length === 0) return;
      const countedAtMs = this.clock.monotonicMs();
      const messageFor = await this.messages.ofBadge(userId);
      for (const pusher of pushers) {
        if (!this.#isDue(pusher, messageFor(pusher))) continue;
        const place = { userId, gateway: gatewayOf(pusher) };
        await this.requests.places.run(place, () => this.#sendTo(pusher, messageFor, countedAtMs), signal);
      }
    } catch (error) {
      if (!signal.aborted) this.logger.warn('A badge could not be sent', { userId, err: error });
    }
  }

  #track(task: Promise<void>): void {
    this.#tasks.add(task);
    void task.finally(() => this.#tasks.delete(task));
  }
}
