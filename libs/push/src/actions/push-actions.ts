import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { allSoon, Config, Logger, type Soon, soon } from '@rookery/platform';
import {
  type EventBatch,
  EventSerializer,
  EventStore,
  InvitePermissions,
  isServable,
  RoomHooks,
  type StoredEvent,
} from '@rookery/rooms';
import type { CompiledRuleset } from '@rookery/push-rules';
import { PowerLevels } from '@rookery/state-res';
import { common, type Regrouped } from '../rules/own-rules.js';
import { PushRulesService } from '../rules/push-rules.service.js';
import { collectGroups, deleteGroups, writeGroups } from '../rules/rule-groups.query.js';
import {
  type EventPush,
  namedUsers,
  noteOf,
  type NotifyOutcome,
  outcomeForMany,
  ownOutcome,
  type PushCandidate,
  pushEventOf,
  type RoomContext,
  sameOutcome,
} from './event-push.js';
import { type EventTies, EventTiesReader } from './event-ties.js';
import { IgnoredSenders } from './ignored-senders.js';
import { type NameIndex, NamesInText, usersNamedIn } from './names-in-text.js';
import {
  currentInvites,
  deleteMarks,
  deleteOwnPushes,
  deleteRoomPushes,
  insertMarks,
  insertOwnPushes,
  selectTold,
  type ThreadMark,
  withdrawPushes,
} from './push-actions.query.js';
import { PushCounts } from './push-counts.js';
import { threadOf } from '../threads/thread-of.js';

type RoomView = EventBatch['room'];

/** Whom an event may notify. */
interface Audience {
  readonly localMembers: ReadonlySet<string>;
  /** Who does not want to hear from the sender, or may not see the event. */
  readonly untold: ReadonlySet<string>;
  /** Who has rules that are looked at one by one. */
  readonly candidates: readonly PushCandidate[];
}

/** What an event is looked at with. */
interface Surroundings extends EventTies {
  /** Who is told of an invite although not in the room. */
  readonly invited: string | undefined;
  /** The names of members, where the text may hold some. */
  readonly names: NameIndex | undefined;
  /** Members who may not see the event. */
  readonly hidden: ReadonlySet<string> | undefined;
}

/** Whom an event means in particular. */
interface Singled {
  readonly singled: ReadonlySet<string>;
  /** Those whose name may be in its text. */
  readonly inText: ReadonlySet<string>;
  /** Of its thread. */
  readonly subscribers: ReadonlySet<string> | undefined;
}

const nobody: readonly PushCandidate[] = [];
const unchanged: Regrouped = new Map();

/** Finds out what an event means, from what was read; at once, so that all events of a batch see the same groups of users. */
type Judgement = () => EventPush | undefined;

/** What a batch means, computed before its transaction. */
interface Prepared {
  readonly pushes: readonly EventPush[];
  /** What clients that sent an event have read by that. */
  readonly reads: readonly ThreadMark[];
  /** Whom the tables have to know in other groups, so that the batch may refer to these; since one of its positions. */
  readonly regrouped: Regrouped;
  readonly since: number;
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
  // Ten parameters: rules, mentions, ignored users and invites are all asked about each event, in one pass.
  constructor(
    private readonly rules: PushRulesService,
    private readonly ties: EventTiesReader,
    private readonly ignored: IgnoredSenders,
    private readonly names: NamesInText,
    private readonly counts: PushCounts,
    private readonly events: EventStore,
    private readonly invitePermissions: InvitePermissions,
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
      onEventsPurged: async (tx, roomId, eventIds, stay) => {
        await this.counts.takeBackIn(tx, roomId, eventIds);
        await (stay ? withdrawPushes(tx, eventIds) : deleteOwnPushes(tx, eventIds));
        await collectGroups(tx, roomId, eventIds);
      },
      onRoomPurged: async (tx, roomId) => {
        this.counts.changeIn(tx, roomId, () => {
          this.counts.forget(roomId);
          this.rules.forgetGroups(roomId);
          this.names.forget(roomId);
        });
        await deleteRoomPushes(tx, roomId);
        // What people's rules mean in the room goes; the rules stay. They are settings of accounts, which their owners see and
        // delete, may be about more than the room, and hold again for whoever joins it anew.
        await deleteGroups(tx, roomId);
      },
    });
  }

  #prepare(batch: EventBatch): Soon<Prepared> {
    return soon(this.names.namesFor(batch), (names) => this.#prepareWith(batch, names));
  }

  #prepareWith(batch: EventBatch, names: NameIndex | undefined): Soon<Prepared> {
    const { room } = batch;
    const moved = new Map<string, number>();
    const withdrawn: Soon<string | undefined>[] = [];
    const evaluated: Soon<Judgement | undefined>[] = [];
    const reads: Soon<ThreadMark>[] = [];
    // By state resolution as well.
    for (const { userId, streamOrdering } of batch.backfilled ? [] : batch.moves)
      if (this.#isLocal(userId)) moved.set(userId, streamOrdering);
    for (const stored of batch.backfilled ? [] : batch.events) {
      const { event } = stored;
      if (stored.rejectedReason !== undefined) continue;
      if (event.type === 'm.room.member' && event.stateKey !== undefined && this.#isLocal(event.stateKey))
        moved.set(event.stateKey, stored.streamOrdering);
      if (event.redacts !== undefined && isServable(stored))
        withdrawn.push(this.#withdrawn(event, event.redacts, room));
      if (EventSerializer.isSentByHand(stored)) reads.push(this.#readBySender(stored));
      const hidden = batch.hiddenFrom.get(event.eventId);
      evaluated.push(isServable(stored) ? this.#evaluate(stored, room, { names, hidden }) : this.#invite(stored, room));
    }
    return soon(allSoon([allSoon(evaluated), allSoon(withdrawn), allSoon(reads)]), ([found, gone, read]) => {
      const pushes = found.map((judge) => judge?.()).filter((push) => push !== undefined);
      const refersToGroups = pushes.some((push) => push.exceptGroups.length > 0);
      const noted = new Map(pushes.map((push) => [push.eventId, push]));
      for (const eventId of new Set([...noted.keys(), ...batch.hiddenFrom.keys()])) {
        const note = noteOf(noted.get(eventId), batch.hiddenFrom.get(eventId));
        if (note) batch.note(eventId, note);
      }
      const joined = ([userId]: readonly [string, number]): boolean => room.localMembers.has(userId);
      return {
        pushes,
        reads: read,
        regrouped: refersToGroups ? this.rules.unsavedGroupsAt(room.roomId) : unchanged,
        since: batch.events[0]?.streamOrdering ?? 0,
        joins: [...moved].filter(joined),
        leaves: [...moved].filter((entry) => !joined(entry)).map(([userId]) => userId),
        withdrawn: gone.filter((eventId) => eventId !== undefined),
      };
    });
  }

  async #write(tx: Tx, roomId: string, prepared: Prepared): Promise<void> {
    const { reads, joins, leaves, withdrawn, regrouped } = prepared;
    if (prepared.pushes.length + reads.length + joins.length + leaves.length + withdrawn.length === 0) return;
    const pushes = await this.#accepted(tx, roomId, prepared.pushes);
    const moved = [...leaves, ...joins.map(([userId]) => userId)];
    this.counts.changeIn(tx, roomId, () => {
      for (const userId of moved) this.counts.forget(roomId, userId);
      for (const userId of regrouped.keys()) this.counts.forget(roomId, userId);
      this.rules.groupsSaved(roomId, regrouped);
      this.counts.add(roomId, pushes, reads);
    });
    if (leaves.length > 0) await deleteMarks(tx, roomId, leaves);
    if (joins.length > 0) await insertMarks(tx, roomId, joins);
    if (pushes.length > 0) await insertOwnPushes(tx, pushes);
    if (regrouped.size > 0) await writeGroups(tx, roomId, prepared.since, regrouped);
    if (withdrawn.length > 0) {
      await this.counts.takeBackIn(tx, roomId, withdrawn);
      await withdrawPushes(tx, withdrawn);
    }
  }

  /**
   * Without invites that did not become what the user's membership is. Who was told of one while this server was not in the room is not
   * told again when it comes as part of the room.
   */
  async #accepted(tx: Tx, roomId: string, pushes: readonly EventPush[]): Promise<readonly EventPush[]> {
    const invites = pushes.filter(({ invited }) => invited !== undefined);
    if (invites.length === 0) return pushes;
    const [outOfBand, placed] = [invites.filter((push) => push.outOfBand), invites.filter((push) => !push.outOfBand)];
    const current = await currentInvites(tx, roomId, outOfBand.map(eventIdOf));
    const told = await selectTold(tx, roomId, placed.map(inviteeOf), placed.map(eventIdOf));
    return pushes
      .filter((push) => !push.outOfBand || current.has(push.eventId))
      .map((push) =>
        told.has(push.eventId) ? { ...push, own: new Map([...push.own].filter(([id]) => id !== push.invited)) } : push,
      );
  }

  /**
   * Who sends something has read what lies before it, as with a receipt for its thread or, where it is in none, for what is in
   * none: nobody can tell that the threads beside it were seen too.
   * @spec client-server-api#marking-notifications-as-read
   */
  #readBySender({ event, streamOrdering }: StoredEvent): Soon<ThreadMark> {
    const { roomId, sender: userId } = event;
    return soon(threadOf(this.events, event), (threadId) => ({
      ...{ userId, roomId, streamOrdering },
      // As a database keeps it, which knows no half characters.
      threadId: threadId.toWellFormed(),
    }));
  }

  #evaluate(
    stored: StoredEvent,
    room: RoomView,
    { names, hidden }: Partial<Pick<Surroundings, 'names' | 'hidden'>> = {},
  ): Soon<Judgement | undefined> {
    const { event } = stored;
    const { localMembers } = room;
    const alone = localMembers.size === 0 || (localMembers.size === 1 && localMembers.has(event.sender));
    const invites = isInvite(event) && this.#isLocal(event.stateKey);
    if (alone && !invites) return undefined;
    const invited = invites ? this.#welcome(event) : undefined;
    return soon(allSoon([invited, this.ties.of(event), this.rules.learn(localMembers)]), ([target, ties]) =>
      this.#evaluateWith(stored, room, { invited: target, names, hidden, ...ties }),
    );
  }

  #evaluateWith(
    { event, streamOrdering }: StoredEvent,
    room: RoomView,
    { invited, names, hidden, threadId, subscribers, related }: Surroundings,
  ): Soon<Judgement> {
    const { localMembers } = room;
    const singled = new Set<string>();
    for (const userId of namedUsers(event)) if (localMembers.has(userId) || userId === invited) singled.add(userId);
    const inText = usersNamedIn(names, event.content);
    for (const userId of inText) if (localMembers.has(userId)) singled.add(userId);
    if (subscribers !== undefined) for (const userId of common(localMembers, subscribers)) singled.add(userId);
    for (const { event: target } of related?.values() ?? []) {
      const sender = String(target['sender']);
      if (localMembers.has(sender)) singled.add(sender);
    }
    const candidates = this.rules.aloneAmong(localMembers, event.roomId, event.sender);
    for (const userId of singled) candidates.add(userId);
    candidates.delete(event.sender);
    const surroundings = [
      contextOf(event, room),
      this.ignored.ignorersOf(event.sender),
      candidates.size === 0 ? nobody : this.#candidates(candidates, { singled, inText, subscribers }, room),
      this.rules.readGroups(event.roomId),
    ] as const;
    return soon(allSoon(surroundings), ([context, ignorers, own]) => () => {
      const untold = hidden === undefined ? ignorers : new Set([...ignorers, ...hidden]);
      const tied = subscribers || related ? { ...context, threadSubscribed: subscribers && false, related } : context;
      const judged = this.#judgeAll(event, tied, { localMembers, untold, candidates: own });
      if (judged.everyone === undefined && judged.own.size === 0) return undefined;
      const { eventId, roomId, sender } = event;
      const invitedByRemote = this.#isLocal(sender) ? undefined : invited;
      return {
        eventId,
        roomId,
        streamOrdering,
        sender,
        threadId,
        ...judged,
        outOfBand: false,
        invited: invitedByRemote,
      };
    });
  }

  #judgeAll(
    event: RoomEvent,
    context: RoomContext,
    { localMembers, untold, candidates }: Audience,
  ): Pick<EventPush, 'everyone' | 'except' | 'exceptGroups' | 'own'> {
    const pushEvent = pushEventOf(event);
    const forMany = memoized((rules: CompiledRuleset) =>
      this.#judge(event, () => outcomeForMany(rules, pushEvent, context)),
    );
    const everyone = forMany(this.rules.defaults);
    const except = new Set(everyone && untold.size > 0 ? common(localMembers, untold) : []);
    const own = new Map<string, NotifyOutcome>();
    const differing = this.rules
      .groupsAt(event.roomId)
      .map((group) => ({ ...group, outcome: forMany(group.rules) }))
      .filter(({ outcome }) => !sameOutcome(outcome, everyone));
    for (const { users, outcome } of differing)
      if (outcome) for (const userId of common(users, localMembers)) own.set(userId, outcome);
    own.delete(event.sender);
    if (own.size > 0) for (const userId of untold) own.delete(userId);
    for (const candidate of candidates) {
      const { userId } = candidate;
      own.delete(userId);
      if (untold.has(userId)) continue;
      const outcome = candidate.isLikeOthers
        ? forMany(candidate.ruleset)
        : this.#judge(event, () => ownOutcome(pushEvent, candidate, context));
      const isMember = localMembers.has(userId);
      // Who is in a group to which it does not apply has to be told alone, even what everybody is told.
      if (isMember && sameOutcome(outcome, everyone) && !differing.some(({ users }) => users.has(userId))) continue;
      if (isMember && everyone) except.add(userId);
      if (outcome) own.set(userId, outcome);
    }
    return { everyone, except: [...except], exceptGroups: everyone ? differing.map(({ id }) => id) : [], own };
  }

  async #candidates(
    userIds: Iterable<string>,
    { singled, inText, subscribers }: Singled,
    room: RoomView,
  ): Promise<PushCandidate[]> {
    const compiled = await this.rules.compiled(userIds);
    return allSoon(
      [...compiled].map(([userId, ready]): Soon<PushCandidate> => {
        const isLikeOthers = !ready.needsDisplayName && !singled.has(userId);
        const ruleset = isLikeOthers ? ready.unnamed : ready.rules;
        const candidate = { userId, ruleset, isLikeOthers, threadSubscribed: subscribers?.has(userId) };
        if (!ready.needsDisplayName && !inText.has(userId)) return candidate;
        return soon(displayNameOf(userId, room), (displayName) => ({ ...candidate, displayName }));
      }),
    );
  }

  /** An invite from a room that this server is not in lies outside every timeline; its target is told all the same. */
  #invite(stored: StoredEvent, room: RoomView): Soon<Judgement | undefined> {
    const { event } = stored;
    if (!stored.outlier || !isInvite(event) || !this.#isLocal(event.stateKey)) return undefined;
    return soon(this.#evaluate(stored, room), (judge) => () => {
      const push = judge?.();
      return push && { ...push, everyone: undefined, except: [], exceptGroups: [], outOfBand: true };
    });
  }

  /** What a redaction redacts, if it takes effect: on its own server's events, or where the power levels allow it. */
  async #withdrawn(redaction: RoomEvent, redacts: string, room: RoomView): Promise<string | undefined> {
    const target = (await this.events.one(redacts))?.event;
    if (target === undefined || target.roomId !== room.roomId) return undefined;
    if (domainOf(target.sender) === domainOf(redaction.sender)) return redacts;
    const levels = await levelsOf(room);
    return levels.user(redaction.sender) >= levels.scalar('redact') ? redacts : undefined;
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

  /** Whom an invite is for, if they want to hear of it. */
  #welcome({ sender, stateKey }: RoomEvent & { readonly stateKey: string }): Soon<string | undefined> {
    if (!this.invitePermissions.hasFilters) return stateKey;
    return this.invitePermissions.of(stateKey).then((judge) => (judge(sender) === 'allow' ? stateKey : undefined));
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }
}

const eventIdOf = ({ eventId }: EventPush): string => eventId;
const inviteeOf = ({ invited = '' }: EventPush): string => invited;

function isInvite(event: RoomEvent): event is RoomEvent & { readonly stateKey: string } {
  return event.type === 'm.room.member' && event.stateKey !== undefined && event.content['membership'] === 'invite';
}

/** Asks once for each ruleset. */
function memoized(
  judge: (rules: CompiledRuleset) => NotifyOutcome | undefined,
): (rules: CompiledRuleset) => NotifyOutcome | undefined {
  const known = new Map<CompiledRuleset, NotifyOutcome | undefined>();
  return (rules) => {
    const before = known.get(rules);
    if (before !== undefined || known.has(rules)) return before;
    const outcome = judge(rules);
    known.set(rules, outcome);
    return outcome;
  };
}

function levelsOf(room: RoomView): Soon<PowerLevels> {
  const state = [room.state('m.room.power_levels', ''), room.state('m.room.create', '')] as const;
  return soon(allSoon(state), ([powerLevels, create]) => new PowerLevels(powerLevels, create, room.rules));
}

function contextOf(event: RoomEvent, room: RoomView): Soon<RoomContext> {
  return soon(levelsOf(room), (levels) => ({
    memberCount: room.joinedCount,
    senderPowerLevel: levels.user(event.sender),
    notificationLevel: (key) => levels.notification(key),
  }));
}

function displayNameOf(userId: string, room: RoomView): Soon<string | undefined> {
  return soon(room.state('m.room.member', userId), (member) => {
    const name = member?.content['displayname'];
    return typeof name === 'string' ? name : undefined;
  });
}
