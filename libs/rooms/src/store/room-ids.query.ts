import type { DataStores, Db } from '@rookery/database';

/** The highest numbers that the tables hold; 0 where there are none. */
export async function selectTakenCounters({
  main,
  state,
}: DataStores): Promise<Record<'groups' | 'chains' | 'reports', number>> {
  const row = await main.get<Record<'chains' | 'reports', number | null>>(
    `SELECT (SELECT MAX(chain_id) FROM event_auth_chains) AS chains, (SELECT MAX(id) FROM event_reports) AS reports`,
  );
  const top = await state.get<{ groups: number | null }>('SELECT MAX(id) AS groups FROM state_groups');
  return { groups: top?.groups ?? 0, chains: row?.chains ?? 0, reports: row?.reports ?? 0 };
}

/** The highest position of the stream of events: of an event that came as news, or where a room's state became whole; 0 without any. */
export async function highestOrdering(db: Db): Promise<number> {
  const row = await db.get<{ highest: number | null; completed: number | null }>(
    `SELECT (SELECT MAX(stream_ordering) FROM events) AS highest,
       (SELECT MAX(stream_id) FROM un_partial_stated_room_stream) AS completed`,
  );
  return Math.max(0, row?.highest ?? 0, row?.completed ?? 0);
}

/** The lowest stream ordering, of history that was fetched; 0 without any. */
export async function lowestOrdering(db: Db): Promise<number> {
  const row = await db.get<{ lowest: number | null }>('SELECT MIN(stream_ordering) AS lowest FROM events');
  return Math.max(0, -(row?.lowest ?? 0));
}
