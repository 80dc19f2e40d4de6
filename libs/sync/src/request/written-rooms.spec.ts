import { WrittenList } from '@rookery/http';
import { answerBytes, holdsText, WrittenRooms } from './written-rooms.js';

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

  it('go out with account data that are written ahead, with or without them', async () => {
    const events = [
      { type: 'a', content: { n: 1 } },
      { type: 'b', content: {} },
    ];
    const list = new WrittenList();
    list.add(events.slice(0, 1));
    list.addWritten([JSON.stringify(events[1])]);
    const joined = { '!a': { account_data: { events: list } }, '!b': { timeline: {} } };
    const rooms = await WrittenRooms.of({ join: joined as never });
    const read = (answer: object): unknown => {
      // Nothing that is written is read again.
      const parsing = jest.spyOn(JSON, 'parse');
      const bytes = Buffer.concat(answerBytes(answer as never) ?? []).toString();
      expect(parsing).not.toHaveBeenCalled();
      parsing.mockRestore();
      return JSON.parse(bytes);
    };
    const whole = { account_data: { events }, rooms: { join: { ...joined, '!a': { account_data: { events } } } } };
    expect(read({ next_batch: 's', account_data: { events: list }, rooms })).toEqual({ next_batch: 's', ...whole });
    expect(read({ account_data: { events: list }, rooms })).toEqual(whole);
    expect(read({ account_data: { events }, rooms })).toEqual(whole);
    const others = { presence: {}, rooms: { join: {} } };
    expect(read({ account_data: { events: list }, ...others })).toEqual({ account_data: { events }, ...others });
    expect(holdsText({ join: joined as never })).toBe(true);
    expect(holdsText({ join: { '!b': { account_data: { events: [] } } } as never, leave: {} })).toBe(false);
  });

  it('no rooms give an empty object', () => {
    const rooms = new WrittenRooms();
    expect(read(rooms.parts())).toEqual({});
    expect(read(answerBytes({ rooms }))).toEqual({ rooms: {} });
    expect(answerBytes({ next_batch: 's', rooms: { join: {} } })).toBeUndefined();
    expect(answerBytes({ next_batch: 's' })).toBeUndefined();
  });
});
