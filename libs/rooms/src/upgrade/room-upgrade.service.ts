import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { domainOf, isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { eachLimit, type Requester, SingleFlight } from '@rookery/platform';
import { authStateOf, creatorsOf, parsePowerLevel, powerLevelsOf } from '@rookery/state-res';
import type { CreateRoomRequest } from '../creation/create-room.schema.js';
import { RoomCreation } from '../creation/room-creation.service.js';
import { moveListing } from '../directory/directory.query.js';
import { viaOf } from '../directory/room-summaries.service.js';
import { RoomHooks } from '../hooks.js';
import { Participation } from '../sending/participation.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { type EventDraft, StateMovedOn } from '../model/drafts.js';
import { originOf } from '../model/requesters.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { selectLastEventId } from '../reading/timeline.query.js';
import { RoomStateReader } from '../state/room-state-reader.js';

/** State that is taken along as it is. */
const copiedTypes = [
  'm.room.join_rules',
  'm.room.name',
  'm.room.topic',
  'm.room.history_visibility',
  'm.room.guest_access',
  'm.room.avatar',
  'm.room.encryption',
  'm.room.server_acl',
] as const;

/** All that is looked at beside members. */
const lookedAt = [
  ...copiedTypes,
  ...['m.room.create', 'm.room.power_levels', 'm.room.canonical_alias', 'm.space.child'],
];

/** Bans that are on their way into a new room at once: its queue holds only so many. */
const bansAtOnce = 50;
/** How often power levels are read that change while they are being raised. */
const maxAttempts = 5;

/** Replaces rooms by rooms of another version. */
@Injectable()
export class RoomUpgrade {
  readonly #underWay = new SingleFlight<string>();
  /** Rooms that are just being replaced. */
  readonly #replaced = new Set<string>();

  // Nine parameters: an upgrade is allowed or only pretended, makes a room, moves state, bans and listing, and is told to hooks and modules.
  constructor(
    private readonly database: Database,
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly creation: RoomCreation,
    private readonly persister: EventPersister,
    private readonly hooks: RoomHooks,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly participation: Participation,
  ) {}

  /**
   * Makes the new room, takes state, bans, aliases and the place in the directory along, and closes the old one. Whoever asks
   * again meanwhile, as clients do that wait for long, gets the same room; anybody else is refused, so that people are not parted.
   * Where modules do not let the old room be closed it stays as it is, and the new one leads nowhere.
   * @param additionalCreators who is a creator of the new room beside the requester; those of the old room do not follow
   * @returns the id of the new room
   * @throws MatrixError 400 `M_UNSUPPORTED_ROOM_VERSION`, 400 `M_UNKNOWN` when somebody is just replacing the room, 403 `M_FORBIDDEN`,
   *   404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`, 503 `M_UNKNOWN` when the room's state takes too long to arrive
   * @spec client-server-api#server-behaviour-16
   */
  upgrade(
    requester: Requester,
    roomId: string,
    version: string,
    additionalCreators: readonly string[] | undefined,
  ): Promise<string> {
    const key = JSON.stringify([requester.userId, roomId, version]);
    return this.#underWay.run(key, () => this.#upgrade(requester, roomId, version, additionalCreators));
  }

  async #upgrade(
    requester: Requester,
    roomId: string,
    version: string,
    additionalCreators: readonly string[] | undefined,
  ): Promise<string> {
    const rules = roomVersionRules(version);
    if (!rules) throw MatrixError.unsupportedRoomVersion();
    await this.participation.assertMaySend(requester);
    await this.limiter.take('rc_room_creation', requester.userId, requester);
    // Bans come along: all of them have to be known.
    await this.state.whole(roomId);
    const tombstoneBefore = await this.#tombstoneOf(roomId);
    const events = await this.#stateOf(roomId, requester.userId);
    const state = authStateOf(events);
    const create = state('m.room.create', '');
    if (!create) throw MatrixError.noSuchRoom();
    this.#checkPower(requester, events, create);
    if (requester.shadowBanned) return this.#pretend(requester, roomId, rules);
    if (this.#replaced.has(roomId)) throw MatrixError.badRequest('Somebody is replacing this room just now');
    this.#replaced.add(roomId);
    try {
      // Whoever was at it when this began to look may be through by now.
      if ((await this.#tombstoneOf(roomId)) !== tombstoneBefore)
        throw MatrixError.badRequest('Somebody has just replaced this room');
      return await this.#replace(requester, create, events, rules, additionalCreators);
    } finally {
      this.#replaced.delete(roomId);
    }
  }

  async #tombstoneOf(roomId: string): Promise<string | undefined> {
    return (await this.state.currentEvent(roomId, 'm.room.tombstone'))?.event.eventId;
  }

  async #replace(
    requester: Requester,
    create: RoomEvent,
    events: readonly RoomEvent[],
    rules: RoomVersionRules,
    additionalCreators: readonly string[] | undefined,
  ): Promise<string> {
    const { roomId } = create;
    const moved = (levels: Readonly<JsonObject>, from: readonly RoomEvent[]): JsonObject =>
      movedLevels(levels, create, rules, {
        requester: requester.userId,
        additionalCreators: additionalCreators ?? [],
        banned: bansIn(from).map((ban) => ban.stateKey),
      });
    const first = moved(levelsIn(authStateOf(events)('m.room.power_levels', ''), create), events);
    const predecessor = await this.#predecessor(roomId, rules);
    const { roomId: replacement } = await this.creation.create(
      requester,
      {
        room_version: rules.version,
        creation_content: this.#creationContent(create, rules, predecessor, additionalCreators),
        initial_state: [
          { type: 'm.room.power_levels', state_key: '', content: workingLevels(first, rules, requester.userId) },
          ...copied(events, create),
        ],
      },
      { bare: true },
    );
    // Before anybody is shown the way there: whatever happens behind this, who is banned is so there as well.
    const banned = bansIn(events);
    await this.#moveBans(requester, replacement, banned);
    const levels = await this.#close(requester, roomId, replacement, create);
    // Who was banned or lost power while the new room was made is the same there.
    const closed = await this.#stateOf(roomId, requester.userId);
    try {
      const known = new Set(banned.map((ban) => ban.stateKey));
      const since = bansIn(closed).filter((ban) => !known.has(ban.stateKey));
      await this.#moveBans(requester, replacement, since);
      await this.#moveDirectory(requester, roomId, replacement, closed);
    } finally {
      // Until here whoever makes the new room needed power that the old one had not given. Modules have seen the levels, and nobody is
      // to keep that power.
      const levelsOfOld = { type: 'm.room.power_levels', content: moved(levels, closed), unchecked: true };
      await this.#send(requester, { roomId: replacement, ...levelsOfOld });
    }
    for (const hook of this.hooks.all) hook.onUpgraded?.(roomId, replacement, requester.userId);
    if (this.modules.has('onRoomUpgraded')) {
      await this.modules.notify('onRoomUpgraded', callbackContext(requester), roomId, replacement, requester.userId);
    }
    return replacement;
  }

  /** A room that nobody ever sees, for whom nobody hears. */
  async #pretend(requester: Requester, roomId: string, { roomIdFormat }: RoomVersionRules): Promise<string> {
    const { eventId } = await this.participation.pretend(requester, roomId);
    return roomIdFormat === 'domain'
      ? `!${eventId.slice(1, 19)}:${domainOf(requester.userId)}`
      : `!${eventId.slice(1)}`;
  }

  /** What is looked at of the old room: of its members only the requester and who is banned. */
  async #stateOf(roomId: string, userId: string): Promise<RoomEvent[]> {
    const banned = (await this.memberships.userIdsIn([roomId], ['ban'])).get(roomId) ?? [];
    const members = [...new Set([userId, ...banned])].map((member) => ['m.room.member', member] as const);
    // Two questions: for one SQLite would look at all of the room.
    const [state, named] = await Promise.all([
      this.state.current(roomId, { types: lookedAt.map((type) => [type] as const) }),
      this.state.current(roomId, { types: members }),
    ]);
    return [...state, ...named].map((stored) => stored.event);
  }

  #checkPower(requester: Requester, events: readonly RoomEvent[], create: RoomEvent): void {
    const state = authStateOf(events);
    const isJoined = state('m.room.member', requester.userId)?.content['membership'] === 'join';
    const levels = powerLevelsOf(state, create.rules);
    if (!isJoined || levels.user(requester.userId) < levels.event('m.room.tombstone', true)) {
      throw MatrixError.forbidden('You lack the power to replace this room');
    }
  }

  /**
   * How the new room names the old one. The tombstone cannot be named, since it names the new room; clients of older versions
   * rely on some event there, and the last one does.
   */
  async #predecessor(roomId: string, { roomIdFormat }: RoomVersionRules): Promise<JsonObject> {
    const eventId =
      roomIdFormat === 'domain' ? await selectLastEventId(this.database, roomId, Number.MAX_SAFE_INTEGER) : undefined;
    return { room_id: roomId, ...(eventId !== undefined && { event_id: eventId }) };
  }

  #creationContent(
    create: RoomEvent,
    rules: RoomVersionRules,
    predecessor: JsonObject,
    additionalCreators: readonly string[] | undefined,
  ): JsonObject {
    const { creator: _c, room_version: _v, predecessor: _p, additional_creators: _a, ...kept } = create.content;
    return {
      ...kept,
      predecessor,
      ...(rules.privilegedCreators && additionalCreators && { additional_creators: [...additionalCreators] }),
    };
  }

  /**
   * Points to the new room, and keeps everybody but those with power from going on in the old one.
   * @returns the power levels of the old room, as they were until then
   */
  async #close(
    requester: Requester,
    roomId: string,
    replacement: string,
    create: RoomEvent,
  ): Promise<Readonly<JsonObject>> {
    const tombstone = { body: 'This room has been replaced', replacement_room: replacement };
    await this.#send(requester, { roomId, type: 'm.room.tombstone', content: tombstone });
    for (let attempt = 1; ; attempt++) {
      const before = (await this.state.currentEvent(roomId, 'm.room.power_levels'))?.event;
      const levels = levelsIn(before, create);
      try {
        await this.#silence(requester, levels, create, before?.eventId);
      } catch (error) {
        // Somebody has changed them just now: that must not be undone.
        if (error instanceof StateMovedOn && attempt < maxAttempts) continue;
        // Somebody who may replace the room need not have the power to silence it; and a module may be against it.
        if (!MatrixError.is(error)) throw error;
      }
      return levels;
    }
  }

  /** @throws MatrixError as sending does; StateMovedOn where `before` is not the event with the power levels any more */
  async #silence(
    requester: Requester,
    levels: Readonly<JsonObject>,
    create: RoomEvent,
    before: string | undefined,
  ): Promise<void> {
    const usual = typeof levels['users_default'] === 'number' ? levels['users_default'] : 0;
    const raised = Math.max(50, usual + 1);
    const now = (key: string): number => (typeof levels[key] === 'number' ? levels[key] : 0);
    if (now('events_default') >= raised && now('invite') >= raised) return;
    const content = {
      ...levels,
      ...(Object.keys(levels).length === 0 && !create.rules.privilegedCreators && { users: { [create.sender]: 100 } }),
      events_default: Math.max(now('events_default'), raised),
      invite: Math.max(now('invite'), raised),
    };
    await this.#send(requester, { roomId: create.roomId, type: 'm.room.power_levels', content, replaces: before });
  }

  #send(
    requester: Requester,
    state: Pick<EventDraft, 'roomId' | 'type' | 'content' | 'unchecked' | 'replaces'>,
  ): Promise<unknown> {
    const origin = originOf(requester);
    return this.persister.send({ ...state, stateKey: '', sender: requester.userId, origin, skipUnchanged: true });
  }

  async #moveDirectory(
    requester: Requester,
    roomId: string,
    replacement: string,
    events: readonly RoomEvent[],
  ): Promise<void> {
    await this.database.write((tx) => moveListing(tx, roomId, replacement), { name: 'move_aliases' });
    const canonical = events.find((event) => event.type === 'm.room.canonical_alias' && event.stateKey === '');
    if (!canonical) return;
    const { type, content } = canonical;
    const moves = [
      { roomId: replacement, type, content },
      { roomId, type, content: {} },
    ];
    for (const move of moves) {
      try {
        await this.#send(requester, move);
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
      }
    }
  }

  /**
   * A ban that the new room refuses, as that of one of its creators, stays behind. Modules were asked when somebody was banned in the
   * old room.
   * @throws what else is in the way of one: none may get lost unnoticed
   */
  async #moveBans(requester: Requester, replacement: string, bans: readonly RoomEvent[]): Promise<void> {
    const move = async ({ stateKey, content }: RoomEvent): Promise<void> => {
      try {
        await this.persister.send({
          roomId: replacement,
          type: 'm.room.member',
          stateKey,
          sender: requester.userId,
          content: {
            membership: 'ban',
            ...(typeof content['reason'] === 'string' && { reason: content['reason'] }),
          },
          unchecked: true,
        });
      } catch (error) {
        if (!MatrixError.is(error) || !refusals.has(error.status)) throw error;
      }
    };
    await eachLimit(bans, bansAtOnce, move);
  }
}

/** Statuses of errors that say that a room will not have an event. */
const refusals: ReadonlySet<number> = new Set([400, 403, 413]);

const bansIn = (events: readonly RoomEvent[]): RoomEvent[] =>
  events.filter((event) => event.type === 'm.room.member' && event.content['membership'] === 'ban');

/** State of the old room for the new one. */
function copied(events: readonly RoomEvent[], create: RoomEvent): NonNullable<CreateRoomRequest['initial_state']> {
  const types: ReadonlySet<string> = new Set(copiedTypes);
  const isSpace = create.content['type'] === 'm.space';
  return events
    .filter(({ type, stateKey, content }) =>
      // A child without servers is one that was taken out of the space.
      type === 'm.space.child' ? isSpace && viaOf(content).length > 0 : types.has(type) && stateKey === '',
    )
    .map((event) => ({ type: event.type, state_key: event.stateKey!, content: event.content }));
}

/** The power levels of a room, as newer rooms write them. */
const levelsIn = (levels: RoomEvent | undefined, { rules }: RoomEvent): JsonObject =>
  withNumbers(levels?.content ?? {}, rules);

/** The power levels of a room for the one that replaces it. */
function movedLevels(
  levels: Readonly<JsonObject>,
  create: RoomEvent,
  rules: RoomVersionRules,
  who: {
    readonly requester: string;
    readonly additionalCreators: readonly string[];
    readonly banned: readonly (string | undefined)[];
  },
): JsonObject {
  const users: JsonObject = { ...(isJsonObject(levels['users']) ? levels['users'] : {}) };
  const events: JsonObject = { ...(isJsonObject(levels['events']) ? levels['events'] : {}) };
  const creators = creatorsOf(create);
  if (rules.privilegedCreators) {
    const before = create.rules.privilegedCreators ? creators : [];
    for (const userId of [who.requester, ...who.additionalCreators, ...before]) delete users[userId];
    events['m.room.tombstone'] = Math.max(levelOf(events['m.room.tombstone']), 150);
    return { ...levels, users, events };
  }
  if (create.rules.privilegedCreators || Object.keys(levels).length === 0) {
    // What creators had by the rules they have by their level.
    for (const userId of creators) users[userId] = 100;
    if (levelOf(events['m.room.tombstone']) > 100) events['m.room.tombstone'] = 100;
  }
  // Nobody could ban them in the new room, whose creator is no more powerful: they would be let in with all their power.
  const own = Math.max(levelOf(users[who.requester]), 100);
  for (const userId of who.banned) if (userId !== undefined && levelOf(users[userId]) >= own) delete users[userId];
  return { ...levels, users, events };
}

const levelOf = (value: unknown): number => (typeof value === 'number' ? value : 0);

/** Levels that old rooms may write as text, as newer ones demand them. */
const withNumbers = (levels: Readonly<JsonObject>, rules: RoomVersionRules): JsonObject =>
  Object.fromEntries(
    Object.entries(levels).flatMap(([key, value]): [string, JsonObject[string]][] => {
      if (isJsonObject(value)) return [[key, withNumbers(value, rules)]];
      if (typeof value !== 'string') return [[key, value]];
      const level = parsePowerLevel(value, rules);
      return level === undefined ? [] : [[key, level]];
    }),
  );

/** The same while the room is being set up: whoever makes it must be able to finish the job. */
function workingLevels(levels: JsonObject, rules: RoomVersionRules, creator: string): JsonObject {
  const users = levels['users'] as JsonObject;
  const own = users[creator];
  if (rules.privilegedCreators || (typeof own === 'number' && own >= 100)) return levels;
  return { ...levels, users: { ...users, [creator]: 100 } };
}
