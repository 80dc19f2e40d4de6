import type { BackedUpSession } from './backup.query.js';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { isBetter, parseRooms, parseSession, roomsText, sessionsText } from './session-rules.js';

const rank = (isVerified: boolean, firstMessageIndex: number, forwardedCount: number) => ({
  ...{ isVerified, firstMessageIndex, forwardedCount },
});
const session = { first_message_index: 1, forwarded_count: 2, is_verified: true, session_data: { c: 'x' } };

describe('which session is worth more', () => {
  it.each([
    [rank(true, 9, 9), rank(false, 0, 0), true],
    [rank(false, 0, 0), rank(true, 9, 9), false],
    [rank(true, 0, 9), rank(true, 1, 0), true],
    [rank(true, 1, 0), rank(true, 0, 9), false],
    [rank(false, 1, 0), rank(false, 1, 1), true],
    [rank(false, 1, 1), rank(false, 1, 0), false],
    [rank(true, 1, 1), rank(true, 1, 1), false],
  ])('%j against %j: %s', (offered, stored, better) => {
    expect(isBetter(offered, stored)).toBe(better);
  });
});

describe('sessions from clients', () => {
  it('go out as they came, in whatever parts', async () => {
    const rooms = {
      '!a:x': { sessions: { s1: session, 's"2': session } },
      '!b': { sessions: { s3: session } },
      '!c': { sessions: { s1: session, s4: session } },
    };
    const sessions = parseRooms({ rooms });
    async function* pages(list: readonly BackedUpSession[], size: number): AsyncGenerator<readonly BackedUpSession[]> {
      for (let start = 0; start < list.length; start += size) yield Promise.resolve(list.slice(start, start + size));
    }
    const read = async (pieces: AsyncIterable<string>): Promise<unknown> =>
      JSON.parse(await text(Readable.from(pieces, { objectMode: false })));
    for (const size of [1, 2, 3, 9]) {
      expect(await read(roomsText(pages(sessions, size)))).toEqual({ rooms });
      expect(await read(sessionsText(pages(sessions.slice(0, 2), size)))).toEqual(rooms['!a:x']);
    }
    expect(await read(roomsText(pages([], 1)))).toEqual({ rooms: {} });
    expect(await read(sessionsText(pages([], 1)))).toEqual({ sessions: {} });
  });

  it.each([
    [{ ...session, first_message_index: -1 }, 'M_BAD_JSON'],
    [{ ...session, first_message_index: 1.5 }, 'M_BAD_JSON'],
    [{ ...session, forwarded_count: '1' }, 'M_BAD_JSON'],
    [{ ...session, is_verified: 1 }, 'M_BAD_JSON'],
    [{ ...session, session_data: 'x' }, 'M_BAD_JSON'],
    [{ ...session, session_data: { x: 'y'.repeat(70_000) } }, 'M_TOO_LARGE'],
    ['text', 'M_BAD_JSON'],
  ])('are refused: %j', (value, errcode) => {
    expect(() => parseSession('!r', 's', value)).toThrow(expect.objectContaining({ errcode }));
  });

  it('have names that fit', () => {
    expect(() => parseSession('', 's', session)).toThrow(expect.objectContaining({ errcode: 'M_INVALID_PARAM' }));
    expect(() => parseSession('!r', 's'.repeat(256), session)).toThrow();
    expect(() => parseSession('!r', 'a\0b', session)).toThrow();
  });
});
