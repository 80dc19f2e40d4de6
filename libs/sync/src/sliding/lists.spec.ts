import { type ListedRoom, selectRooms, sortRooms } from './lists.js';
import { parseSlidingRequest } from './request.js';

const room = (roomId: string, activity: number, changes: Partial<ListedRoom> = {}): ListedRoom => ({
  roomId,
  section: 'join',
  membership: { roomId, membership: 'join', eventId: '$e', sender: '@a:b', streamOrdering: 1 },
  activity,
  roomType: undefined,
  name: undefined,
  isEncrypted: false,
  isDm: false,
  ...changes,
});
const none = { inSpaces: new Set<string>(), tags: new Map<string, ReadonlySet<string>>() };

describe('lists of rooms', () => {
  it('puts the latest first, and equals always in the same order', () => {
    const sorted = sortRooms([room('!b', 1), room('!c', 3), room('!a', 1), room('!d', 2)]);
    expect(sorted.map((each) => each.roomId)).toEqual(['!c', '!d', '!a', '!b']);
  });

  it('shows windows, with what any list or subscription wants of a room', () => {
    const sorted = sortRooms([room('!a', 3), room('!b', 2), room('!c', 1, { isDm: true })]);
    const request = parseSlidingRequest({
      lists: {
        top: {
          ranges: [
            [0, 0],
            [2, 5],
          ],
          timeline_limit: 1,
          required_state: [['m.room.name', '']],
        },
        direct: { filters: { is_dm: true }, timeline_limit: 3, required_state: [['m.room.topic', '']] },
        far: { ranges: [[7, 9]], timeline_limit: 1 },
      },
      room_subscriptions: { '!c': { timeline_limit: 2, required_state: [] }, '!gone': { timeline_limit: 1 } },
    });
    const { lists, rooms, byList } = selectRooms(sorted, request, () => none);
    expect(lists).toEqual({
      top: {
        count: 3,
        ops: [
          { op: 'SYNC', range: [0, 0], room_ids: ['!a'] },
          { op: 'SYNC', range: [2, 5], room_ids: ['!c'] },
        ],
      },
      direct: { count: 1, ops: [{ op: 'SYNC', range: [0, 0], room_ids: ['!c'] }] },
      far: { count: 3, ops: [{ op: 'SYNC', range: [7, 9], room_ids: [] }] },
    });
    expect(byList.get('top')).toEqual(['!a', '!c']);
    expect([...rooms.keys()].map((each) => each.roomId)).toEqual(['!a', '!c']);
    const [first, last] = [...rooms.values()];
    expect(first?.timelineLimit).toBe(1);
    expect(last?.timelineLimit).toBe(3);
    expect(
      ['m.room.name', 'm.room.topic', 'm.room.create'].map((type) => last?.requiredState.matches(type, '', '@a:b')),
    ).toEqual([true, true, false]);
  });

  it('names so many rooms and no more, however often ranges repeat them', () => {
    const sorted = sortRooms(Array.from({ length: 2_000 }, (_, n) => room(`!${n}`, n)));
    const ranges = Array.from({ length: 100 }, () => [0, Number.MAX_SAFE_INTEGER]);
    const lists = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`l${n}`, { ranges, timeline_limit: 1 }]));
    const answer = selectRooms(sorted, parseSlidingRequest({ lists }), () => none);
    expect(JSON.stringify(answer.lists).length).toBeLessThan(3_000_000);
    expect(answer.rooms.size).toBe(2_000);
  });

  it('lets the filters that leave out win', () => {
    const sorted = [room('!space', 2, { roomType: 'm.space' }), room('!tagged', 1)];
    const chosen = (filters: object): string[] => {
      const request = parseSlidingRequest({ lists: { all: { timeline_limit: 1, filters } } } as never);
      const facts = { inSpaces: new Set(['!space']), tags: new Map([['!tagged', new Set(['u.a', 'u.b'])]]) };
      return [...selectRooms(sorted, request, () => facts).rooms.keys()].map((each) => each.roomId);
    };
    expect(chosen({ room_types: [null, 'm.space'], not_room_types: [null] })).toEqual(['!space']);
    expect(chosen({ tags: ['u.a'], not_tags: ['u.b'] })).toEqual([]);
    expect(chosen({ tags: ['u.a', 'u.x'] })).toEqual(['!tagged']);
    expect(chosen({ spaces: ['!any'] })).toEqual(['!space']);
    expect(chosen({ is_invite: true })).toEqual([]);
    expect(chosen({ room_types: [], is_dm: null })).toEqual([]);
  });
});
