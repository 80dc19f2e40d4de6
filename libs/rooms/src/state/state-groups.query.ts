import type { Db } from '@rookery/database';
import { stateKeyOf } from '@rookery/state-res';
import type { StateFilter } from './state-filter.js';
import type { StateRow } from './room-state.query.js';
import { pageSql, stateFilterSql, type StateSpan } from './state-filter.query.js';

/** A group in a delta chain; `position` counts changes since the chain's full group. */
export interface ChainLink {
  readonly group: number;
  readonly position: number;
}

/** Longest chain that is followed: far above what is ever written, so that a damaged table cannot spin. */
const maxHops = 500;

// CROSS JOIN, here and below: SQLite takes a chain for long, and would go through the states of all rooms to look each row up in it.
// UNION, not UNION ALL: where restored data have an edge twice, each hop would double the rows.
const chainCte = (seed: string): string => `WITH RECURSIVE chain(root, state_group, hop) AS (
    ${seed}
    UNION
    SELECT c.root, e.prev_state_group, c.hop + 1 FROM chain c CROSS JOIN state_group_edges e
    WHERE e.state_group = c.state_group AND c.hop < ${maxHops}
  )`;

/** The delta chain of a group, itself first. Empty when there is no such group. */
export async function selectChain(db: Db, group: number): Promise<ChainLink[]> {
  return db.query<ChainLink>(
    `${chainCte('SELECT id, id, 0 FROM state_groups WHERE id = ?')}
     SELECT c.state_group AS "group", g.chain_position AS position FROM chain c CROSS JOIN state_groups g
     WHERE g.id = c.state_group ORDER BY c.hop`,
    [group],
  );
}

/** The delta chains of groups, each itself first; empty for one that does not exist. */
export async function selectChains(db: Db, groups: readonly number[]): Promise<Map<number, ChainLink[]>> {
  const chains = new Map<number, ChainLink[]>(groups.map((group) => [group, []]));
  const rows = await db.query<ChainLink & { readonly root: number }>(
    `${chainCte(`SELECT id, id, 0 FROM state_groups WHERE ${db.dialect.anyOf('id')}`)}
     SELECT c.root, c.state_group AS "group", g.chain_position AS position FROM chain c
     CROSS JOIN state_groups g WHERE g.id = c.state_group ORDER BY c.hop`,
    [groups],
  );
  for (const { root, group, position } of rows) chains.get(root)!.push({ group, position });
  return chains;
}

interface GroupRow extends StateRow {
  readonly root: number;
}

/**
 * The state of several groups in one query: in each chain the row nearest to the group counts.
 * Groups that do not exist come back empty.
 * @param atMost of more rows nothing is told: `undefined`
 */
export async function selectStates(
  db: Db,
  groups: readonly number[],
  filter: StateFilter | undefined,
): Promise<Map<number, Map<string, string>>>;
export async function selectStates(
  db: Db,
  groups: readonly number[],
  filter: StateFilter | undefined,
  atMost: number,
): Promise<Map<number, Map<string, string>> | undefined>;
export async function selectStates(
  db: Db,
  groups: readonly number[],
  filter: StateFilter | undefined,
  atMost?: number,
): Promise<Map<number, Map<string, string>> | undefined> {
  const alternatives = stateFilterSql(filter, db.dialect, 's.');
  const states = new Map<number, Map<string, string>>(groups.map((group) => [group, new Map()]));
  if (groups.length === 0) return states;
  // In no order: to bring them into one, all would be read before the first is given.
  const rows = await db.query<GroupRow & { readonly hop: number }>(
    `${chainCte(`SELECT id, id, 0 FROM state_groups WHERE ${db.dialect.anyOf('id')}`)}
     ${alternatives
       .map(
         ({
           sql,
         }) => `SELECT c.root, c.hop, s.type, s.state_key, s.event_id FROM chain c CROSS JOIN state_groups_state s
     WHERE s.state_group = c.state_group AND ${sql}`,
       )
       .join(' UNION ALL ')}
     ${atMost === undefined ? '' : `LIMIT ${Math.trunc(atMost) + 1}`}`,
    [groups, ...alternatives.flatMap(({ params }) => params)],
  );
  if (atMost !== undefined && rows.length > atMost) return undefined;
  rows.sort((a, b) => b.hop - a.hop);
  for (const row of rows) states.get(row.root)!.set(stateKeyOf(row.type, row.state_key), row.event_id);
  return states;
}

/** Next rows of a single group, in the order of types and keys. */
export function selectGroupPage(
  db: Db,
  group: number,
  span: StateSpan,
  after: readonly [type: string, stateKey: string] | undefined,
  limit: number,
): Promise<StateRow[]> {
  const page = pageSql(span, after, limit);
  return db.query<StateRow>(
    `SELECT type, state_key, event_id FROM state_groups_state WHERE state_group = ? ${page.sql}`,
    [group, ...page.params],
  );
}

/** The rows of single groups, not of their chains. */
export async function selectDeltas(db: Db, groups: readonly number[]): Promise<Map<number, Map<string, string>>> {
  const deltas = new Map<number, Map<string, string>>(groups.map((group) => [group, new Map()]));
  const rows = await db.query<GroupRow>(
    `SELECT state_group AS root, type, state_key, event_id FROM state_groups_state
     WHERE ${db.dialect.anyOf('state_group')}`,
    [groups],
  );
  for (const row of rows) deltas.get(row.root)!.set(stateKeyOf(row.type, row.state_key), row.event_id);
  return deltas;
}

/** The same for events of one room only: whoever names events of another must not bring its state along. */
export async function selectGroupsIn(
  db: Db,
  roomId: string,
  eventIds: readonly string[],
): Promise<Map<string, number>> {
  if (eventIds.length === 0) return new Map();
  const rows = await db.query<{ event_id: string; state_group: number; room_id: string }>(
    `SELECT g.event_id, g.state_group, e.room_id FROM event_to_state_groups g JOIN events e ON e.event_id = g.event_id
     WHERE ${db.dialect.anyOf('g.event_id')}`,
    [eventIds],
  );
  // Told apart here: a condition on the room would let PostgreSQL go through the whole of it.
  return new Map(rows.flatMap((row) => (row.room_id === roomId ? [[row.event_id, row.state_group]] : [])));
}

/** The groups of events: the state after each. Outliers have none. */
export async function selectGroupsOf(db: Db, eventIds: readonly string[]): Promise<Map<string, number>> {
  if (eventIds.length === 0) return new Map();
  const rows = await db.query<{ event_id: string; state_group: number }>(
    `SELECT event_id, state_group FROM event_to_state_groups WHERE ${db.dialect.anyOf('event_id')}`,
    [eventIds],
  );
  return new Map(rows.map((row) => [row.event_id, row.state_group]));
}
