import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import {
  type EventBatch,
  EventStore,
  InviteWishes,
  isServable,
  relationOf,
  RoomHooks,
  type RoomView,
  type StoredEvent,
} from '@rookery/rooms';
import { PowerLevels } from '@rookery/state-res';
import { PushRulesService } from '../rules/push-rules.service.js';
import {
  defaultOutcome,
  type EventPush,
  namedUsers,
  type NotifyOutcome,
  ownOutcome,
  pushEventOf,
  type RoomContext,
  sameOutcome,
} from './event-push.js';
import { IgnoredSenders } from './ignored-senders.js';
import {
  currentInvites,
  deleteMarks,
  deletePushes,
  deleteRoomPushes,
  insertMarks,
  insertPushes,
} from './push-actions.query.js';
import { PushCounts } from './push-counts.js';

/** What a batch means, computed before its transaction. */
interface Prepared {
  readonly pushes: readonly EventPush[];
  /** Local users in the room after the batch, whom the batch let in: where they begin to count. */
  readonly joins: readonly (readonly [userId: string, position: number])[];
  readonly leaves: readonly string[];
  /** What was redacted. */
  readonly withdrawn: readonly string[];
}

/**
 * Evaluates push rules as events are stored and keeps what comes out. Users with the default rules are evaluated together,
 * so that an event costs what the users with rules of their own, and those it names, cost.
 */
@Injectable()
export class PushActions implements OnModuleInit {
  constructor(
    private readonly rules: PushRulesService,
    private readonly ignored: IgnoredSenders,
    private readonly counts: PushCounts,
    private readonly events: EventStore,
    private readonly inviteWishes: InviteWishes,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe<Prepared>({
      prepare: (batch) => this.#prepare(batch),
      inTransaction: async (tx, batch, prepared) => {
        if (prepared) await this.#write(tx, batch.roomId, prepared);
      },
      onEventsPurged: async (tx, roomId, eventIds) => {
        this.counts.changeIn(tx, roomId, () => this.counts.forget(roomId));
        await deletePushes(tx, roomId, eventIds);
      },
      onRoomPurged: async (tx, roomId) => {
        this.counts.changeIn(tx, roomId, () => this.counts.forget(roomId));
        await deleteRoomPushes(tx, roomId);
      },
    });
  }

  async #prepare({ events, room, backfilled }: EventBatch): Promise<Prepared> {
    const pushes: EventPush[] = [];
    const moved = new Map<string, number>();
    const withdrawn: string[] = [];
    if (!backfilled) {
      for (const stored of events) {
        const { event } = stored;
        if (stored.rejectedReason !== undefined) continue;
        if (event.type === 'm.room.member' && event.stateKey !== undefined && this.#isLocal(event.stateKey))
          moved.set(event.stateKey, stored.streamOrdering);
        if (event.redacts !== undefined && isServable(stored) && (await this.#takesEffect(event, event.redacts, room)))
          withdrawn.push(event.redacts);
        const push = isServable(stored) ? await this.#evaluate(stored, room) : await this.#invite(stored, room);
        if (push) pushes.push(push);
      }
    }
    const joined = ([userId]: readonly [string, number]): boolean => room.localMembers.has(userId);
    return {
      pushes,
      joins: [...moved].filter(joined),
      leaves: [...moved].filter((entry) => !joined(entry)).map(([userId]) => userId),
      withdrawn,
    };
  }

  async #write(tx: Tx, roomId: string, prepared: Prepared): Promise<void> {
    const { joins, leaves, withdrawn } = prepared;
    if (prepared.pushes.length + joins.length + leaves.length + withdrawn.length === 0) return;
    const pushes = await this.#accepted(tx, prepared.pushes);
    const moved = [...leaves, ...joins.map(([userId]) => userId)];
    this.counts.changeIn(tx, roomId, () => {
      if (withdrawn.length > 0) this.counts.forget(roomId);
      for (const userId of moved) this.counts.forget(roomId, userId);
      this.counts.add(roomId, pushes);
    });
    if (leaves.length > 0) await deleteMarks(tx, roomId, leaves);
    if (joins.length > 0) await insertMarks(tx, roomId, joins);
    if (pushes.length > 0) await insertPushes(tx, pushes);
    if (withdrawn.length > 0) await deletePushes(tx, roomId, withdrawn);
  }

  /** Without invites that did not become what the user's membership is. */
  async #accepted(tx: Tx, pushes: readonly EventPush[]): Promise<readonly EventPush[]> {
    const outOfBand = pushes.filter((push) => push.outOfBand).map((push) => push.eventId);
    if (outOfBand.length === 0) return pushes;
    const current = await currentInvites(tx, outOfBand);
    return pushes.filter((push) => !push.outOfBand || current.has(push.eventId));
  }

  async #evaluate(stored: StoredEvent, room: RoomView): Promise<EventPush | undefined> {
    const { event } = stored;
    const { localMembers } = room;
    const alone = localMembers.size === 0 || (localMembers.size === 1 && localMembers.has(event.sender));
    const invited = isInvite(event) && (await this.#isWelcome(event)) ? event.stateKey : undefined;
    if (alone && invited === undefined) return undefined;
    const named = namedUsers(event).filter((userId) => localMembers.has(userId) || userId === invited);
    const candidates = new Set(named);
    for (const userId of intersection(localMembers, this.rules.withOwnRules)) candidates.add(userId);
    candidates.delete(event.sender);
    const ignorers = await this.ignored.ignorersOf(event.sender);
    const context = await contextOf(event, room);
    const pushEvent = pushEventOf(event);
    const everyone = this.#judge(event, () => defaultOutcome(pushEvent, context));
    const own = new Map<string, NotifyOutcome>();
    const except = new Set(everyone && ignorers.size > 0 ? intersection(localMembers, ignorers) : []);
    const compiled = candidates.size > 0 ? await this.rules.compiled(candidates) : undefined;
    for (const [userId, { rules, needsDisplayName }] of compiled ?? []) {
      if (ignorers.has(userId)) continue;
      const displayName = needsDisplayName ? await displayNameOf(userId, room) : undefined;
      const outcome = this.#judge(event, () => ownOutcome(pushEvent, { userId, ruleset: rules, displayName }, context));
      const isMember = localMembers.has(userId);
      if (isMember && sameOutcome(outcome, everyone)) continue;
      if (isMember && everyone) except.add(userId);
      if (outcome) own.set(userId, outcome);
    }
    if (everyone === undefined && own.size === 0) return undefined;
    return {
      eventId: event.eventId,
      roomId: event.roomId,
      streamOrdering: stored.streamOrdering,
      sender: event.sender,
      threadId: await this.#threadOf(event),
      everyone,
      except: [...except],
      own,
      outOfBand: false,
    };
  }

  /** An invite from a room that this server is not in lies outside every timeline; its target is told all the same. */
  async #invite(stored: StoredEvent, room: RoomView): Promise<EventPush | undefined> {
    const { event } = stored;
    if (!stored.outlier || !isInvite(event) || !this.#isLocal(event.stateKey)) return undefined;
    const push = await this.#evaluate(stored, room);
    return push && { ...push, everyone: undefined, except: [], outOfBand: true };
  }

  /** Whether a redaction takes effect: of an event of the own server, or by somebody whom the power levels let redact. */
  async #takesEffect(redaction: RoomEvent, redacts: string, room: RoomView): Promise<boolean> {
    const target = (await this.events.one(redacts))?.event;
    if (target === undefined || target.roomId !== room.roomId) return false;
    if (domainOf(target.sender) === domainOf(redaction.sender)) return true;
    const levels = await levelsOf(room);
    return levels.user(redaction.sender) >= levels.scalar('redact');
  }

  /** Rules and events come from outside: should one ever break the evaluation, the event is stored all the same. */
  #judge(event: RoomEvent, judge: () => NotifyOutcome | undefined): NotifyOutcome | undefined {
    try {
      return judge();
    } catch (error) {
      this.logger.error('Push rules could not be evaluated', { eventId: event.eventId, err: error });
      return undefined;
    }
  }

  /** Whether an invite is for somebody here who wants to hear of it. */
  async #isWelcome({ sender, stateKey }: RoomEvent & { readonly stateKey: string }): Promise<boolean> {
    return this.#isLocal(stateKey) && (await this.inviteWishes.of(stateKey))(sender) === 'allow';
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }

  /** @spec client-server-api#threaded-read-receipts */
  async #threadOf(event: RoomEvent): Promise<string> {
    const relation = relationOf(event.content);
    if (relation === undefined) return 'main';
    if (relation.type === 'm.thread') return relation.eventId;
    const target = await this.events.one(relation.eventId);
    const next = target?.event.roomId === event.roomId ? relationOf(target.event.content) : undefined;
    return next?.type === 'm.thread' ? next.eventId : 'main';
  }
}

function isInvite(event: RoomEvent): event is RoomEvent & { readonly stateKey: string } {
  return event.type === 'm.room.member' && event.stateKey !== undefined && event.content['membership'] === 'invite';
}

/** The common members of two sets, in the time of the smaller one. */
function intersection(a: ReadonlySet<string>, b: ReadonlySet<string>): string[] {
  const [small, large] = a.size < b.size ? [a, b] : [b, a];
  return [...small].filter((one) => large.has(one));
}

async function levelsOf(room: RoomView): Promise<PowerLevels> {
  const [powerLevels, create] = await Promise.all([
    room.state('m.room.power_levels', ''),
    room.state('m.room.create', ''),
  ]);
  return new PowerLevels(powerLevels, create, room.rules);
}

async function contextOf(event: RoomEvent, room: RoomView): Promise<RoomContext> {
  const levels = await levelsOf(room);
  const notifications = (await room.state('m.room.power_levels', ''))?.content['notifications'];
  return {
    memberCount: room.joinedCount,
    senderPowerLevel: levels.user(event.sender),
    notificationLevels: isJsonObject(notifications) ? notifications : {},
  };
}

async function displayNameOf(userId: string, room: RoomView): Promise<string | undefined> {
  const name = (await room.state('m.room.member', userId))?.content['displayname'];
  return typeof name === 'string' ? name : undefined;
}
