import type { Db, SqlBool, Tx } from '@rookery/database';
import {
  type ChainedEvent,
  generationAfter,
  selectChainPositions,
  writeAuthChains,
} from '../state/auth-chains.query.js';

/** Rooms whose chain cover is incomplete; at most `limit`, behind `after` by id. */
export async function selectUncovered(db: Db, after: string, limit: number): Promise<string[]> {
  const rows = await db.query<{ room_id: string }>(
    `SELECT room_id FROM rooms WHERE has_auth_chain_index = FALSE AND room_id > ? ORDER BY room_id
     LIMIT ${Math.trunc(limit)}`,
    [after],
  );
  return rows.map((row) => row.room_id);
}

export async function markCovered(tx: Tx, roomId: string): Promise<void> {
  await tx.run('UPDATE rooms SET has_auth_chain_index = TRUE WHERE room_id = ?', [roomId]);
}

/** A state event that lacks its place in the chain cover, or its generation. */
export interface UncoveredEvent extends ChainedEvent {
  readonly streamOrdering: number;
  readonly isPlaced: boolean;
}

/** State events of a room that are not fully covered, in stream order behind `after`; two queries. */
export async function selectUncoveredEvents(
  db: Db,
  roomId: string,
  after: number,
  limit: number,
): Promise<UncoveredEvent[]> {
  const rows = await db.query<{
    event_id: string;
    type: string;
    state_key: string;
    stream_ordering: number;
    is_placed: SqlBool;
  }>(
    `SELECT e.event_id, e.type, e.state_key, e.stream_ordering, (c.chain_id IS NOT NULL) AS is_placed FROM events e
     LEFT JOIN event_auth_chains c ON c.event_id = e.event_id
     WHERE e.room_id = ? AND e.stream_ordering > ? AND e.state_key IS NOT NULL AND c.generation IS NULL
       AND e.rejection_reason IS NULL AND NOT EXISTS (
         SELECT 1 FROM event_auth a JOIN events x ON x.event_id = a.auth_id
         WHERE a.event_id = e.event_id AND x.room_id <> e.room_id)
     ORDER BY e.stream_ordering LIMIT ${Math.trunc(limit)}`,
    [roomId, after],
  );
  if (rows.length === 0) return [];
  const auth = new Map<string, string[]>(rows.map((row) => [row.event_id, []]));
  const edges = await db.query<{ event_id: string; auth_id: string }>(
    `SELECT event_id, auth_id FROM event_auth WHERE ${db.dialect.anyOf('event_id')}`,
    [[...auth.keys()]],
  );
  for (const edge of edges) auth.get(edge.event_id)!.push(edge.auth_id);
  return rows.map((row) => ({
    eventId: row.event_id,
    type: row.type,
    stateKey: row.state_key,
    authEventIds: auth.get(row.event_id)!,
    streamOrdering: row.stream_ordering,
    isPlaced: !!row.is_placed,
  }));
}

/**
 * Places what can be placed and counts what can be counted.
 * @param chainIds one fresh id per event
 * @returns how many events have come further
 */
export async function coverEvents(
  tx: Tx,
  events: readonly UncoveredEvent[],
  chainIds: readonly number[],
): Promise<number> {
  const placed = events.filter((event) => event.isPlaced);
  const lost = events.filter((event) => !event.isPlaced);
  const counted = await writeGenerations(tx, placed);
  return counted + lost.length - (await writeAuthChains(tx, lost, chainIds)).size;
}

async function writeGenerations(tx: Tx, placed: readonly UncoveredEvent[]): Promise<number> {
  const known = new Map<string, number | undefined>();
  const positions = await selectChainPositions(tx, [...new Set(placed.flatMap((event) => event.authEventIds))]);
  for (const [id, { generation }] of positions) known.set(id, generation);
  const byGeneration = new Map<number, string[]>();
  for (const event of placed) {
    const generation = generationAfter(event.authEventIds.map((id) => known.get(id)));
    if (generation === undefined) continue;
    known.set(event.eventId, generation);
    const alike = byGeneration.get(generation);
    if (alike) alike.push(event.eventId);
    else byGeneration.set(generation, [event.eventId]);
  }
  for (const [generation, ids] of byGeneration) {
    await tx.run(`UPDATE event_auth_chains SET generation = ? WHERE ${tx.dialect.anyOf('event_id')}`, [
      generation,
      ids,
    ]);
  }
  return [...byGeneration.values()].reduce((sum, ids) => sum + ids.length, 0);
}
