import { buildEvent, type RoomEvent, roomVersionRules } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import type { RoomServers, RoomStateReader } from '@rookery/rooms';
import type { Candidates } from './candidates.js';
import { RoomHosts } from './room-hosts.js';

const rules = roomVersionRules('12')!;
const at = { sender: '@alice:one.test', originServerTs: 1, depth: 1, authEventIds: [], stateKey: '' };

describe('the servers of a room that are worth asking', () => {
  const make = (hosts: readonly string[], additional: readonly string[], levels: JsonObject) => {
    const content = { room_version: '12', additional_creators: additional };
    const create = buildEvent({ ...at, type: 'm.room.create', content, prevEventIds: [] }, rules);
    const { roomId, eventId } = create;
    const power = { ...at, roomId, type: 'm.room.power_levels', content: levels, prevEventIds: [eventId] };
    const state: readonly RoomEvent[] = [create, buildEvent(power, rules)];
    return new RoomHosts(
      { of: async () => new Set(hosts) } as unknown as RoomServers,
      { current: async () => state.map((event) => ({ event })) } as unknown as RoomStateReader,
      { usable: (servers: Iterable<string>) => [...servers] } as unknown as Candidates,
      Config.fromObject({}),
    );
  };

  it('are those of all creators first, who stand in no list of levels', async () => {
    const hosts = ['many.test', 'three.test', 'two.test'];
    const levels = { users: { '@carol:three.test': 50, '@dave:many.test': 10 }, invite: 50 };
    // The one who made the room has gone.
    const room = make(hosts, ['@bob:two.test'], levels);
    expect(await room.inviting('!r')).toEqual(['two.test', 'three.test']);
    expect(await room.likely('!r', 9)).toEqual(['two.test', 'three.test', 'many.test']);
    room.answered('!r', 'many.test');
    expect(await room.likely('!r', 2)).toEqual(['many.test', 'two.test']);
  });
});
