import type { Database, Tx } from '@rookery/database';
import type { RoomAudience } from '@rookery/ephemeral';
import { Config } from '@rookery/platform';
import { type EventBatch, type EventStore, RoomHooks, type StoredEvent } from '@rookery/rooms';
import type { AppserviceRegistry } from '../registration/appservice-registry.js';
import { NamespacePattern } from '../registration/namespaces.js';
import { Registration } from '../registration/registration.js';
import { RoomInterest } from './room-interest.js';

const user = (name: string): string => `@${name}:example.org`;

function service(id: string, kind: 'users' | 'aliases' | 'rooms', regex: string, hasUrl = true) {
  const empty = { users: [], aliases: [], rooms: [] };
  const namespaces = { ...empty, [kind]: [{ pattern: new NamespacePattern(regex), exclusive: true }] };
  const fields = {
    ...{
      id,
      url: hasUrl ? 'http://x' : undefined,
      asToken: id,
      hsToken: id,
      senderUserId: user(`${id}bot`),
      rateLimited: true,
      namespaces,
    },
    ...{
      protocols: [],
      ephemeral: { stable: false, unstable: false },
      extensions: false,
      scopes: [],
      proxied: undefined,
      sources: undefined,
    },
  };
  return new Registration(fields, 'example.org');
}

describe('what application services are interested in', () => {
  const irc = service('irc', 'users', '@irc_.*');
  const aliases = service('aliases', 'aliases', '#names_.*');
  const rooms = service('rooms', 'rooms', '!listed');
  const silent = service('silent', 'users', '@.*', false);

  let members: Map<string, Set<string>>;
  let named: { room_id: string; room_alias: string }[];
  let queries: number;
  let loads: number;
  let hooks: RoomHooks;
  let interest: RoomInterest;
  /** Member events in memory. */
  let seen: Map<string, StoredEvent>;

  beforeEach(() => {
    members = new Map();
    named = [];
    queries = 0;
    loads = 0;
    hooks = new RoomHooks();
    const audience = {
      ofRooms: (roomIds: readonly string[]) => {
        loads++;
        return Promise.resolve(new Map(roomIds.map((roomId) => [roomId, new Set(members.get(roomId))])));
      },
    };
    const database = {
      dialect: { anyOf: (column: string) => column },
      query: () => {
        queries++;
        return Promise.resolve(named);
      },
    };
    const registry = { all: [irc, aliases, rooms, silent] };
    const events = { peek: (eventId: string) => seen.get(eventId) };
    seen = new Map();
    interest = new RoomInterest(
      registry as unknown as AppserviceRegistry,
      audience as unknown as RoomAudience,
      events as unknown as EventStore,
      hooks,
      database as unknown as Database,
      Config.fromObject({ server_name: 'example.org' }),
    );
    interest.onModuleInit();
  });

  const stored = (
    roomId: string,
    sender: string,
    streamOrdering: number,
    membership?: string,
    stateKey?: string,
  ): StoredEvent => {
    const type = membership === undefined ? 'm.room.message' : 'm.room.member';
    const content = membership === undefined ? {} : { membership };
    return {
      event: { eventId: `$${streamOrdering}`, roomId, type, sender, stateKey, content },
      streamOrdering,
    } as StoredEvent;
  };
  /** A member event becomes durable. */
  const moves = (
    roomId: string,
    userId: string,
    membership: string,
    streamOrdering: number,
    replacesState?: string,
  ): void => {
    const inRoom = members.get(roomId) ?? new Set();
    members.set(roomId, inRoom);
    if (membership === 'join') inRoom.add(userId);
    else inRoom.delete(userId);
    const { event } = stored(roomId, userId, streamOrdering, membership, userId);
    const move = { userId, streamOrdering, membership, event, eventId: event.eventId, prevEventId: replacesState };
    const room = { localMembers: inRoom };
    const batch = { roomId, moves: [move], backfilled: false, room } as unknown as EventBatch;
    for (const hook of hooks.all) hook.afterCommit?.(batch, undefined);
  };
  const who = async (event: StoredEvent): Promise<string[]> => {
    const [services] = await interest.ofEvents([event]);
    return [...(services ?? [])].map(({ id }) => id);
  };

  it('are those with an address alone', () => {
    expect(interest.services.map(({ id }) => id)).toEqual(['irc', 'aliases', 'rooms']);
  });

  it('is everything in rooms by id and by alias', async () => {
    expect(await who(stored('!listed:example.org', user('alice'), 1))).toEqual(['rooms']);
    expect(await who(stored('!other:example.org', user('alice'), 2))).toEqual([]);
    named = [{ room_id: '!other:example.org', room_alias: '#names_x:example.org' }];
    expect(await who(stored('!other:example.org', user('alice'), 3))).toEqual(['aliases']);
  });

  it('is everything in rooms with a local user of theirs, and nothing for a foreign one', async () => {
    members.set('!r', new Set([user('alice'), user('irc_bob')]));
    expect(await who(stored('!r', user('alice'), 1))).toEqual(['irc']);
    members.set('!s', new Set([user('alice'), user('ircbot')]));
    expect(await who(stored('!s', user('alice'), 2))).toEqual(['irc']);
    expect(await who(stored('!t', '@irc_bob:else.org', 3))).toEqual([]);
  });

  it('is what their users do, and what is done to them, wherever that is', async () => {
    expect(await who(stored('!r', user('irc_bob'), 1))).toEqual(['irc']);
    expect(await who(stored('!r', user('alice'), 2, 'invite', user('irc_bob')))).toEqual(['irc']);
    expect(await who(stored('!r', user('alice'), 3, 'invite', user('bob')))).toEqual([]);
  });

  it('follows who comes and goes, without asking again', async () => {
    expect(await who(stored('!r', user('alice'), 1))).toEqual([]);
    moves('!r', user('irc_bob'), 'join', 2);
    moves('!r', user('carol'), 'join', 3);
    expect(await who(stored('!r', user('alice'), 4))).toEqual(['irc']);
    moves('!r', user('irc_bob'), 'leave', 5);
    expect(await who(stored('!r', user('alice'), 6))).toEqual([]);
    expect(loads).toBe(1);
  });

  it('reaches back to what was said before somebody left, until that was looked at', async () => {
    moves('!r', user('irc_bob'), 'join', 1);
    await who(stored('!r', user('alice'), 2));
    moves('!r', user('irc_bob'), 'leave', 4);
    expect(await who(stored('!r', user('alice'), 3))).toEqual(['irc']);
    expect(await who(stored('!r', user('alice'), 5))).toEqual([]);
    interest.forget(3);
    expect(await who(stored('!r', user('alice'), 3))).toEqual(['irc']);
    interest.forget(4);
    expect(await who(stored('!r', user('alice'), 3))).toEqual([]);
  });

  it('does not reach back for somebody who came later', async () => {
    await who(stored('!r', user('alice'), 1));
    moves('!r', user('irc_bob'), 'join', 3);
    expect(await who(stored('!r', user('alice'), 2))).toEqual([]);
    expect(await who(stored('!r', user('alice'), 4))).toEqual(['irc']);
    moves('!r', user('irc_eve'), 'join', 5);
    moves('!r', user('irc_bob'), 'leave', 7);
    moves('!r', user('irc_eve'), 'leave', 9);
    const told = await Promise.all([2, 4, 6, 8, 10].map((at) => who(stored('!r', user('alice'), at))));
    expect(told).toEqual([[], ['irc'], ['irc'], ['irc'], []]);
  });

  it('does so for a room that was not in memory, too', async () => {
    moves('!new', user('irc_bob'), 'join', 3);
    expect(await who(stored('!new', user('alice'), 2))).toEqual([]);
    expect(await who(stored('!new', user('alice'), 4))).toEqual(['irc']);
    // A new name is no arrival.
    members.set('!old', new Set([user('irc_bob')]));
    seen.set('$1', stored('!old', user('irc_bob'), 1, 'join', user('irc_bob')));
    moves('!old', user('irc_bob'), 'join', 6, '$1');
    expect(await who(stored('!old', user('alice'), 5))).toEqual(['irc']);
    // Who is back was away before.
    seen.set('$7', stored('!back', user('irc_bob'), 7, 'leave', user('irc_bob')));
    moves('!back', user('irc_bob'), 'join', 9, '$7');
    expect(await who(stored('!back', user('alice'), 8))).toEqual([]);
  });

  it('sees who comes and goes at once', async () => {
    await who(stored('!r', user('alice'), 1));
    const bob = user('irc_bob');
    members.set('!r', new Set());
    // Between the two bob says something.
    const batch = {
      roomId: '!r',
      moves: [
        { userId: bob, streamOrdering: 3, membership: 'join', eventId: '$3', prevEventId: undefined },
        { userId: bob, streamOrdering: 5, membership: 'leave', eventId: '$5', prevEventId: '$3' },
      ],
      backfilled: false,
      room: { localMembers: new Set() },
    } as unknown as EventBatch;
    for (const hook of hooks.all) hook.afterCommit?.(batch, undefined);
    const told = await Promise.all([2, 4, 6].map((at) => who(stored('!r', user('alice'), at))));
    expect(told).toEqual([[], ['irc'], []]);
  });

  it('counts the users of each service', async () => {
    moves('!r', user('irc_bob'), 'join', 1);
    moves('!r', user('irc_eve'), 'join', 2);
    interest.forget(2);
    expect(await who(stored('!r', user('alice'), 3))).toEqual(['irc']);
    moves('!r', user('irc_bob'), 'leave', 4);
    interest.forget(4);
    expect(await who(stored('!r', user('alice'), 5))).toEqual(['irc']);
    expect(await interest.membersOf(new Set(['!r']))).toEqual([new Set([user('irc_eve')])]);
  });

  it('does not reach back for somebody who was only invited', async () => {
    await who(stored('!r', user('alice'), 1));
    moves('!r', user('irc_bob'), 'invite', 3);
    moves('!r', user('irc_bob'), 'leave', 4);
    expect(await who(stored('!r', user('alice'), 2))).toEqual([]);
  });

  it('does not keep what was read while somebody moved', async () => {
    members.set('!r', new Set());
    const reading = interest.ofRooms(new Set(['!r']));
    moves('!r', user('irc_bob'), 'join', 1);
    await reading;
    expect(await who(stored('!r', user('alice'), 2))).toEqual(['irc']);
  });

  it('forgets rooms that are purged, and asks for aliases only where a service wants some', async () => {
    members.set('!r', new Set([user('irc_bob')]));
    expect(await who(stored('!r', user('alice'), 1))).toEqual(['irc']);
    expect(queries).toBe(1);
    const committed: (() => void)[] = [];
    const tx = { unlessRolledBack: (fn: () => void) => committed.push(fn) } as unknown as Tx;
    for (const hook of hooks.all) await hook.onRoomPurged?.(tx, '!r');
    for (const fn of committed) fn();
    members.set('!r', new Set());
    expect(await who(stored('!r', user('alice'), 2))).toEqual([]);
    expect(loads).toBe(2);
  });
});
