import { WrittenList } from '@rookery/http';
import type { AccountDataRow } from '@rookery/users';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { eventsByRoom } from './account-data.js';

/** @param bytes about so many */
const row = (n: number, bytes: number): AccountDataRow => {
  const content = JSON.stringify({ n, text: 'x'.repeat(bytes) });
  return { type: `org.type "${n}"`, content, bytes: content.length, streamId: n };
};
const event = (one: AccountDataRow): object => ({ type: one.type, content: JSON.parse(one.content) as unknown });

describe('account data as events', () => {
  const roomsOf = (sizes: Readonly<Record<string, readonly number[]>>): Map<string, AccountDataRow[]> =>
    new Map(Object.entries(sizes).map(([roomId, bytes]) => [roomId, bytes.map((size, n) => row(n, size))]));
  const told = (rows: ReadonlyMap<string, readonly AccountDataRow[]>): object =>
    Object.fromEntries([...rows].map(([roomId, some]) => [roomId, some.map(event)]));

  it('are objects where it is little, by room; rooms without any are left out', async () => {
    const rows = roomsOf({ '!a': [1, 100_000], '!b': [100_000], '!c': [] });
    for (const asText of [true, false]) {
      const events = await eventsByRoom(rows, ['!a', '!b', '!c', '!d'], asText);
      expect([...events.values()].every(Array.isArray)).toBe(true);
      expect(Object.fromEntries(events)).toEqual(told(roomsOf({ '!a': [1, 100_000], '!b': [100_000] })));
    }
    expect([...(await eventsByRoom(rows, ['!b'], true)).keys()]).toEqual(['!b']);
  });

  it('are text where it is much and that will do, and read by nobody', async () => {
    const rows = roomsOf({ '!a': [1, 200_000, 200_000], '!b': [20_000], '!c': [10] });
    const parsing = jest.spyOn(JSON, 'parse');
    const events = await eventsByRoom(rows, rows.keys(), true);
    expect(parsing.mock.calls.map(([text]) => text.length)).toEqual([rows.get('!c')![0]!.bytes]);
    parsing.mockRestore();
    expect(['!a', '!b', '!c'].map((roomId) => events.get(roomId) instanceof WrittenList)).toEqual([true, true, false]);
    expect(JSON.parse(JSON.stringify(Object.fromEntries(events)))).toEqual(told(rows));
    expect(Object.fromEntries(await eventsByRoom(rows, rows.keys(), false))).toEqual(told(rows));
  });

  it.each([true, false])('are made in more than one turn of the event loop (as text: %s)', async (asText) => {
    const rows = roomsOf({ '!a': [200_000, 200_000, 200_000], '!b': [200_000], '!c': [200_000] });
    let turns = 0;
    let isDone = false;
    const made = eventsByRoom(rows, rows.keys(), asText).then(() => void (isDone = true));
    for (; !isDone; turns++) await nextTurn();
    await made;
    expect(turns).toBeGreaterThanOrEqual(4);
  });
});
