import type { Db } from '@rookery/database';
import { batchesOf, ownTurn } from '@rookery/platform';
import { type CountRow, selectCounts } from './push-actions.query.js';

/** Of so many events, the newest ones of a room, those are counted that a user has not read. */
const maxCounted = 100_000;
/** Events that are looked at in a turn of the event loop, and of how many rooms. */
const [eventsPerTurn, roomsPerTurn] = [10_000, 20];

/**
 * Unread notifications by room and thread, some rooms, or a stretch of a large one, in a turn of the event loop. Of a room and thread there
 * may be several rows, which add up.
 * @param upTo events behind this position do not count
 */
export async function readCounts(
  db: Db,
  userId: string,
  roomIds: readonly string[],
  upTo = Number.MAX_SAFE_INTEGER - 1,
): Promise<CountRow[]> {
  const counted: CountRow[] = [];
  for (const [index, rooms] of batchesOf(roomIds, roomsPerTurn).entries()) {
    if (index > 0) await ownTurn();
    const limit = Math.floor(eventsPerTurn / rooms.length);
    const { rows, rest } = await selectCounts(db, userId, rooms, { before: upTo + 1, limit });
    counted.push(...rows);
    for (const [roomId, before] of rest)
      counted.push(...(await countOn(db, userId, roomId, { before, counted: limit })));
  }
  return counted;
}

/** What is left of a room. */
async function countOn(
  db: Db,
  userId: string,
  roomId: string,
  from: { readonly before: number; readonly counted: number },
): Promise<CountRow[]> {
  const found: CountRow[] = [];
  let before: number | undefined = from.before;
  for (let done = from.counted; before !== undefined && done < maxCounted; done += eventsPerTurn) {
    await ownTurn();
    const limit = Math.min(eventsPerTurn, maxCounted - done);
    const { rows, rest }: Awaited<ReturnType<typeof selectCounts>> = await selectCounts(db, userId, [roomId], {
      ...{ before, limit },
    });
    found.push(...rows);
    before = rest.get(roomId);
  }
  return found;
}
