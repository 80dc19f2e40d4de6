import { Injectable } from '@nestjs/common';
import { redactEvent, type HistoryVisibility, historyVisibilityIn } from '@rookery/events';
import { isMembership, type Membership } from '@rookery/matrix-types';
import { EventStore } from '../store/event-store.js';
import { dummyEventType, isShown, type ShownSoftFailed, type StoredEvent } from '../model/stored-event.js';
import { MembershipHistory } from './membership-history.js';
import { ReaderStates } from './reader-states.js';
import { HiddenSenders } from './hidden-senders.js';
import { RetentionPolicies } from './retention-policies.js';
import { maySee, moreOpen } from '../model/visibility-rule.js';

/** An event that its reader may see. */
export interface VisibleEvent {
  readonly stored: StoredEvent;
  /**
   * The reader's membership when it was sent, by the event itself where that is about the reader; shown as
   * `unsigned.membership`.
   * @spec client-server-api#definition-clientevent
   */
  readonly membership: Membership | undefined;
}

/** What is shown that others do not see: see {@link VisibilityFilter.visible}. */
interface VisibleOptions {
  readonly withIgnored?: boolean;
  readonly softFailed?: ShownSoftFailed;
  readonly withUnshown?: boolean;
}

const nobody: ReadonlySet<string> = new Set();

/**
 * Decides who may see which event. Every path that hands events to a client goes through it; it takes a bounded number of
 * queries for any number of events, and none for what was looked at lately.
 * @spec client-server-api#room-history-visibility
 */
@Injectable()
export class VisibilityFilter {
  constructor(
    private readonly events: EventStore,
    private readonly states: ReaderStates,
    private readonly hidden: HiddenSenders,
    private readonly history: MembershipHistory,
    private readonly retention: RetentionPolicies,
  ) {}

  /** The events of these ids that a user may see, in the order given; those that are not there are absent, as in {@link visible}. */
  async visibleOf(
    userId: string,
    eventIds: readonly string[],
    options: { readonly withIgnored?: boolean } = {},
  ): Promise<VisibleEvent[]> {
    return this.visible(userId, await this.events.inOrder(eventIds), options);
  }

  /**
   * The events that a user may see, in the order given. Events of users who asked to be forgotten come pruned, unless the
   * reader was in the room with them.
   * @param options.withIgnored also what ignored users said
   * @param options.softFailed which of those that were soft-failed; none unless told
   * @param options.withUnshown also what is shown to no client, by its kind or its age
   */
  async visible(userId: string, events: readonly StoredEvent[], options: VisibleOptions = {}): Promise<VisibleEvent[]> {
    const { softFailed = 'none' } = options;
    const wanted = events.filter((stored) => isShown(stored, softFailed));
    const candidates = options.withUnshown ? wanted : await this.#shown(wanted);
    if (candidates.length === 0) return [];
    const [states, ignored, erased] = await Promise.all([
      this.states.at(
        userId,
        candidates.map((stored) => stored.event.eventId),
      ),
      options.withIgnored ? nobody : this.hidden.ignoredBy(userId),
      this.hidden.erasedOf(candidates.map((stored) => stored.event.sender)),
    ]);
    const needed = new Set<string>();
    for (const { visibility, member } of states.values()) {
      if (visibility !== undefined) needed.add(visibility);
      if (member !== undefined) needed.add(member);
    }
    for (const stored of candidates) if (stored.replacesState !== undefined) needed.add(stored.replacesState);
    const loaded = await this.events.events(needed);
    const membershipOf = (eventId: string | undefined): Membership | undefined => {
      const membership = eventId === undefined ? undefined : loaded.get(eventId)?.content['membership'];
      return isMembership(membership) ? membership : undefined;
    };
    let lastStays: Map<string, number> | undefined;
    const result: VisibleEvent[] = [];
    for (const stored of candidates) {
      const { event } = stored;
      if (event.stateKey === undefined && ignored.has(event.sender)) continue;
      const state = states.get(event.eventId);
      // Who had no membership by then had left, to clients; where the state is not known, nobody can say.
      const membership = state === undefined ? undefined : (membershipOf(state.member) ?? 'leave');
      let visibility = visibilityOf(loaded.get(state?.visibility ?? '')?.content);
      if (event.type === 'm.room.history_visibility' && event.stateKey === '') {
        const before = stored.replacesState === undefined ? undefined : loaded.get(stored.replacesState)?.content;
        visibility = moreOpen(visibility, visibilityOf(before));
      }
      const isOwn = event.type === 'm.room.member' && event.stateKey === userId;
      if (!isOwn && !maySee(visibility, membership, false)) {
        lastStays ??= await this.history.lastStays(userId, [...new Set(candidates.map((each) => each.event.roomId))]);
        const wasInLater = stored.streamOrdering < (lastStays.get(event.roomId) ?? -Infinity);
        if (!maySee(visibility, membership, wasInLater)) continue;
      }
      const isHidden = erased.has(event.sender) && membership !== 'join' && !isOwn && event.sender !== userId;
      result.push({ stored: isHidden ? { ...stored, event: redactEvent(event) } : stored, membership });
    }
    return result;
  }

  async #shown(events: readonly StoredEvent[]): Promise<readonly StoredEvent[]> {
    const told = events.filter((stored) => stored.event.type !== dummyEventType);
    return this.#unexpired(await this.events.withoutVoidRedactions(told));
  }

  /** What has outlived its room's policy is not shown any more, whether or not it was purged yet. */
  async #unexpired(events: readonly StoredEvent[]): Promise<readonly StoredEvent[]> {
    if (!this.retention.isEnabled || events.length === 0) return events;
    const since = await this.retention.shownSince(new Set(events.map((stored) => stored.event.roomId)));
    if (since.size === 0) return events;
    return events.filter(({ event, receivedTs }) => {
      const limit = event.stateKey === undefined ? since.get(event.roomId) : undefined;
      return limit === undefined || Math.min(event.originServerTs, receivedTs) >= limit;
    });
  }

  /** Whether a user may see what a room was when an event was sent, whether or not clients are shown the event. */
  async isTimeVisible(userId: string, stored: StoredEvent): Promise<boolean> {
    return (await this.visible(userId, [stored], { withIgnored: true, withUnshown: true })).length > 0;
  }
}

const visibilityOf = (content: Readonly<Record<string, unknown>> | undefined): HistoryVisibility =>
  historyVisibilityIn(content);
