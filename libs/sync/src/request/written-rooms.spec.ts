import { answerText, WrittenRooms } from './written-rooms.js';

describe('rooms that are written as text', () => {
  it('say what the objects would', () => {
    const rooms = new WrittenRooms();
    expect(rooms.isEmpty).toBe(true);
    rooms.add('join', '!a:"x"', { timeline: { events: [{ body: 'ü"\u2028', left: undefined }] } });
    rooms.add('leave', '!c', {});
    rooms.add('join', '!b', { state: {} });
    expect(rooms.isEmpty).toBe(false);
    const expected = {
      join: { '!a:"x"': { timeline: { events: [{ body: 'ü"\u2028' }] } }, '!b': { state: {} } },
      leave: { '!c': {} },
    };
    expect(JSON.parse(rooms.pieces().join(''))).toEqual(expected);
    expect(JSON.parse(JSON.stringify({ rooms }))).toEqual({ rooms: expected });
    expect(JSON.parse(answerText({ next_batch: 's', rooms, presence: {} }) ?? '')).toEqual({
      ...{ next_batch: 's', rooms: expected, presence: {} },
    });
    expect(JSON.parse(answerText({ rooms }) ?? '')).toEqual({ rooms: expected });
  });

  it('may be none', () => {
    const rooms = new WrittenRooms();
    expect(rooms.pieces().join('')).toBe('{}');
    expect(answerText({ rooms })).toBe('{"rooms":{}}');
    expect(answerText({ next_batch: 's', rooms: { join: {} } })).toBeUndefined();
    expect(answerText({ next_batch: 's' })).toBeUndefined();
  });
});
