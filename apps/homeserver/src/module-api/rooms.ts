import type { RateLimiter } from '@rookery/http';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Quarantine } from '@rookery/media';
import type { EventToSend, ModuleEvent, PublicRoomListManager, RoomApi, StateFilter } from '@rookery/module-api';
import { toModuleEvent } from '@rookery/module-host';
import type { Config, Requester } from '@rookery/platform';
import {
  type AliasService,
  checkCreateRoom,
  type CreateRoomRequest,
  type EventPersister,
  type EventStore,
  type JoinService,
  type MemberEvents,
  type MembershipReader,
  type MembershipService,
  type RoomBlocking,
  type RoomCreation,
  type RoomDirectory,
  type RoomShutdown,
  type RoomStateReader,
  type SentEvent,
  type TimelineReader,
} from '@rookery/rooms';
import type { LocalAccounts } from './module-requester.js';
import { plainJson } from './plain-json.js';
import { mediaInRoom } from './room-media.js';

/** What rooms are reached through. */
export interface RoomParts {
  readonly config: Config;
  readonly limiter: RateLimiter;
  readonly local: LocalAccounts;
  readonly state: RoomStateReader;
  readonly events: EventStore;
  readonly persister: EventPersister;
  readonly memberships: MembershipReader;
  readonly membership: MembershipService;
  readonly members: MemberEvents;
  readonly joins: JoinService;
  readonly creation: RoomCreation;
  readonly aliases: AliasService;
  readonly directory: RoomDirectory;
  readonly blocking: RoomBlocking;
  readonly shutdown: RoomShutdown;
  readonly timeline: TimelineReader;
  readonly quarantine: Quarantine;
}

const maxFilter = 1_000;
const longestRoomId = 255;

/** The part of the module API that is about rooms. */
export function roomCapabilities(parts: RoomParts): RoomApi {
  const { config, state, local, memberships } = parts;
  // Where an administrator is named; no user can have this name.
  const nobody = `@:${config.serverName}`;

  const stateEvents = async (roomId: string, filter?: StateFilter): Promise<readonly ModuleEvent[]> => {
    const stored = await state.current(roomId, filter && { types: typesOf(filter) });
    return stored.map(({ event }) => toModuleEvent(event));
  };

  return {
    getRoomState: stateEvents,
    getStateEventsInRoom: stateEvents,
    createAndSendEventIntoRoom: (event) => sendEvent(parts, event),
    updateRoomMembership: (...args) => updateMembership(parts, ...args),

    async createRoom(userId, roomConfig, { ratelimit = true, creatorJoinProfile } = {}) {
      const request = plainJson(roomConfig, 'The configuration of a room');
      checkCreateRoom(request);
      const requester = await local.actingAs(userId);
      if (ratelimit) {
        await parts.limiter.take('rc_room_creation', userId, { ...requester, rateLimitExempt: false });
      }
      const { roomId, alias } = await parts.creation.create(requester, request as CreateRoomRequest, {
        unchecked: true,
      });
      if (creatorJoinProfile) {
        const { displayName, avatarUrl } = creatorJoinProfile;
        const profile = {
          ...(displayName === undefined ? {} : { displayname: displayName }),
          ...(avatarUrl === undefined ? {} : { avatar_url: avatarUrl }),
        };
        await parts.members.send(requester, roomId, userId, 'join', profile, { unchecked: true });
      }
      return Object.freeze({ roomId, roomAlias: alias });
    },

    async deleteRoom(roomId) {
      checkRoomId(roomId);
      if ((await state.currentId(roomId, 'm.room.create')) === undefined) throw MatrixError.noSuchRoom();
      const everything = { block: false, purge: true, forcePurge: true };
      await parts.shutdown.start(roomId, { requesterId: nobody, ...everything }, false, { source: 'module' });
    },

    async setRoomBlocked(roomId, blocked) {
      checkRoomId(roomId);
      if (blocked) await parts.blocking.block(roomId, nobody);
      else await parts.blocking.unblock(roomId);
    },

    async setRoomMediaQuarantined(roomId, quarantined) {
      checkRoomId(roomId);
      let changed = 0;
      for await (const uris of mediaInRoom(parts.timeline, roomId)) {
        changed += await parts.quarantine.changeByUri(uris, quarantined ? nobody : undefined);
      }
      return changed;
    },

    usersShareRoom: async (userId, otherUserId) => (await memberships.sharing(userId, [otherUserId])).has(otherUserId),

    async getCanonicalRoomAlias(roomId) {
      const found = await state.currentEvent(roomId, 'm.room.canonical_alias');
      const alias = found?.event.content['alias'];
      return typeof alias === 'string' && alias !== '' ? alias : undefined;
    },

    async lookupRoomAlias(alias) {
      const found = await parts.aliases.resolve(alias);
      if (!found) throw MatrixError.noSuchAlias();
      return Object.freeze({ roomId: found.roomId, servers: [...found.servers] });
    },

    publicRoomListManager: publicRoomListManager(parts.directory),
  };
}

function checkRoomId(roomId: string): void {
  if (typeof roomId !== 'string' || !roomId.startsWith('!') || Buffer.byteLength(roomId) > longestRoomId) {
    throw MatrixError.notRoomId();
  }
}

function publicRoomListManager(directory: RoomDirectory): PublicRoomListManager {
  const publish = async (roomId: string, published: boolean): Promise<void> => {
    if ((await directory.isPublished(roomId)) !== published) await directory.publish(roomId, published);
  };
  return Object.freeze({
    roomIsInPublicRoomList: (roomId: string) => directory.isPublished(roomId),
    addRoomToPublicRoomList: (roomId: string) => publish(roomId, true),
    removeRoomFromPublicRoomList: (roomId: string) => publish(roomId, false),
  });
}

function typesOf(filter: StateFilter): (readonly [type: string, stateKey?: string])[] {
  if (!Array.isArray(filter) || filter.length > maxFilter) {
    throw new RangeError(`A filter is a list of at most ${maxFilter} types or pairs`);
  }
  return filter.map((entry: StateFilter[number]) => (typeof entry === 'string' ? [entry] : [entry[0], entry[1]]));
}

async function sendEvent(parts: RoomParts, event: EventToSend): Promise<ModuleEvent> {
  const { roomId, type, stateKey } = event;
  if (typeof type !== 'string' || type === '') throw MatrixError.invalidParam('An event needs a type');
  const content = plainJson(event.content, 'The content of an event');
  if (type === 'm.room.member' && stateKey !== undefined) {
    const { membership, ...rest } = content;
    return updateMembership(parts, event.sender, stateKey, roomId, membership as 'join', rest);
  }
  const requester = await parts.local.actingAs(event.sender);
  const sent = await parts.persister.send({
    roomId,
    type,
    stateKey,
    sender: requester.userId,
    content,
    ...(type === 'm.room.redaction' && typeof content['redacts'] === 'string' ? { redacts: content['redacts'] } : {}),
    skipUnchanged: stateKey !== undefined,
    unchecked: true,
  });
  return loaded(parts.events, sent.eventId);
}

async function updateMembership(
  parts: RoomParts,
  ...[sender, target, roomId, newMembership, given = {}, remoteRoomHosts]: Parameters<RoomApi['updateRoomMembership']>
): Promise<ModuleEvent> {
  const { membership: _, reason, ...content } = plainJson(given, 'The content of a member event');
  const requester = await parts.local.actingAs(sender);
  if (target !== requester.userId && (newMembership === 'join' || newMembership === 'knock')) {
    throw MatrixError.forbidden(`Nobody can ${newMembership} for somebody else`);
  }
  const sent = await changeMembership(parts, requester, target, roomId, newMembership, {
    content,
    ...(typeof reason === 'string' ? { reason } : {}),
    ...(remoteRoomHosts === undefined ? {} : { via: remoteRoomHosts }),
    unchecked: true,
  });
  const eventId =
    sent?.eventId ??
    (domainOf(target) === parts.config.serverName
      ? (await parts.memberships.inRoom(target, roomId))?.eventId
      : await parts.state.currentId(roomId, 'm.room.member', target));
  if (eventId === undefined) throw MatrixError.notFound('The user has no membership in this room');
  return loaded(parts.events, eventId);
}

interface ChangeOptions {
  readonly content: JsonObject;
  readonly reason?: string;
  readonly via?: readonly string[];
  readonly unchecked: true;
}

async function changeMembership(
  { members, membership, joins }: RoomParts,
  requester: Requester,
  target: string,
  roomId: string,
  next: Parameters<RoomApi['updateRoomMembership']>[3],
  options: ChangeOptions,
): Promise<SentEvent | undefined> {
  switch (next) {
    case 'join':
      return joins.join(requester, roomId, options);
    case 'knock':
      return joins.knock(requester, roomId, options);
    case 'invite':
      return membership.invite(requester, roomId, target, options);
    case 'ban':
      return membership.ban(requester, roomId, target, options);
    case 'leave': {
      if (target === requester.userId) return membership.leave(requester, roomId, options);
      const before = await members.currentOf(roomId, target);
      return before === 'ban'
        ? membership.unban(requester, roomId, target, options)
        : membership.kick(requester, roomId, target, options);
    }
    default:
      throw MatrixError.invalidParam('A membership is one of invite, join, knock, leave and ban');
  }
}

async function loaded(events: EventStore, eventId: string): Promise<ModuleEvent> {
  const stored = await events.one(eventId);
  if (!stored) throw new Error(`The event ${eventId} is not there after it was stored`);
  return toModuleEvent(stored.event);
}
