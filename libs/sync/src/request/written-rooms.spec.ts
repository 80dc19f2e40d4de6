import { answerBytes, WrittenRooms } from './written-rooms.js';

const read = (parts: readonly Uint8Array[] | undefined): unknown =>
  JSON.parse(Buffer.concat(parts ?? []).toString()) as unknown;

describe('rooms that are written ahead', () => {
  it('say what the objects would', async () => {
    const rooms = new WrittenRooms();
    expect(rooms.isEmpty).toBe(true);
    await rooms.add('join', { '!a:"x"': { timeline: { events: [{ body: 'ü"\u2028', left: undefined }] } }, '!d': {} });
    await rooms.add('leave', { '!c': {} });
    await rooms.add('join', { '!b': { state: {} } });
    expect(rooms.isEmpty).toBe(false);
    const expected = {
      join: { '!a:"x"': { timeline: { events: [{ body: 'ü"\u2028' }] } }, '!b': { state: {} }, '!d': {} },
      leave: { '!c': {} },
    };
    expect(read(rooms.parts())).toEqual(expected);
    expect(JSON.parse(JSON.stringify({ rooms }))).toEqual({ rooms: expected });
    expect(read(answerBytes({ next_batch: 's', rooms, presence: {} }))).toEqual({
      ...{ next_batch: 's', rooms: expected, presence: {} },
    });
    expect(read(answerBytes({ rooms }))).toEqual({ rooms: expected });
  });

  it('of many events or large account data are the same, written in more than one turn', async () => {
    const events = (count: number, size: number): object[] =>
      Array.from({ length: count }, (_, n) => ({ n, body: 'x'.repeat(size) }));
    const joined = {
      ...{ '!few': { state: { events: events(3, 10) } }, '!many': { timeline: { events: events(100, 10_000) } } },
      ...{ '!after': {}, '!data': { account_data: { events: events(5, 200_000) } }, '!last': {} },
    };
    const rooms = new WrittenRooms();
    await rooms.add('join', joined as never);
    expect(read(rooms.parts())).toEqual({ join: joined });
    expect(rooms.parts().length).toBeGreaterThan(8);
  });

  it('no rooms give an empty object', () => {
    const rooms = new WrittenRooms();
    expect(read(rooms.parts())).toEqual({});
    expect(read(answerBytes({ rooms }))).toEqual({ rooms: {} });
    expect(answerBytes({ next_batch: 's', rooms: { join: {} } })).toBeUndefined();
    expect(answerBytes({ next_batch: 's' })).toBeUndefined();
  });
});
