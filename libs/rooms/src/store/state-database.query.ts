import { type Db, hasTable, tablesAmong, type Tx } from '@rookery/database';

/** The tables that a database of its own for state holds. */
export const stateTables: readonly string[] = ['state_groups', 'state_group_edges', 'state_groups_state'];

/** What a database of its own for state says about itself. */
export interface StateMark {
  /** By what the main database knows it. */
  readonly link: string;
  readonly server_name: string;
}

/** By what the main database knows its database of state; `undefined` where it has the state itself. */
export async function selectStateLink(main: Db): Promise<string | undefined> {
  if (!(await hasTable(main, 'state_database_link'))) return undefined;
  return (await main.get<{ link: string }>('SELECT link FROM state_database_link'))?.link;
}

/** To whom a database of state belongs; `undefined` where nobody has it yet. */
export async function selectStateMark(state: Db): Promise<StateMark | undefined> {
  if (!(await hasTable(state, 'state_database_mark'))) return undefined;
  return state.get<StateMark>('SELECT link, server_name FROM state_database_mark');
}

/** Notes that the state lies in a database of its own from now on. */
export async function insertStateLink(tx: Tx, link: string): Promise<void> {
  await tx.run('INSERT INTO state_database_link (link) VALUES (?)', [link]);
}

/** Notes that the state lies in the main database again. */
export async function deleteStateLink(tx: Tx): Promise<void> {
  await tx.run('DELETE FROM state_database_link');
}

/** Notes to whom a database of state belongs. */
export async function insertStateMark(tx: Tx, { link, server_name: name }: StateMark): Promise<void> {
  await tx.run('INSERT INTO state_database_mark (link, server_name) VALUES (?, ?)', [link, name]);
}

/**
 * How many transactions have deleted state groups. While the number stays the same, everything that the main database named at the
 * first look is there at the second.
 */
export async function selectDeletions(state: Db): Promise<number> {
  // Tables of state that were brought here are without it until a server has started with them.
  if (!(await hasTable(state, 'state_database_mark'))) return 0;
  const row = await state.get<{ deletions: number }>('SELECT deletions FROM state_database_mark');
  return Number(row?.deletions ?? 0);
}

/** Has to be in every transaction that deletes state groups in a database of their own. */
export async function countDeletion(tx: Tx): Promise<void> {
  await tx.run('UPDATE state_database_mark SET deletions = deletions + 1');
}

/** Tables that only a main database has. */
export const selectMainTables = (db: Db): Promise<ReadonlySet<string>> =>
  tablesAmong(db, ['events', 'event_to_state_groups', 'rooms']);

/**
 * State groups that events name, by which it shows whether their rows are elsewhere, and all of one day: the lowest and the highest, and
 * those on which rooms go on.
 */
export async function selectNamedGroups(main: Db): Promise<number[]> {
  const rows = await main.query<{ id: number | null }>(
    `SELECT MIN(state_group) AS id FROM event_to_state_groups UNION SELECT MAX(state_group) FROM event_to_state_groups
     UNION SELECT h.state_group FROM event_forward_extremities f JOIN event_to_state_groups h ON h.event_id = f.event_id`,
  );
  return rows.flatMap(({ id }) => id ?? []);
}

/** Those of these state groups that events name. */
export async function selectStillNamed(main: Db, groups: readonly number[]): Promise<number[]> {
  const rows = await main.query<{ id: number }>(
    `SELECT DISTINCT state_group AS id FROM event_to_state_groups WHERE ${main.dialect.anyOf('state_group')}`,
    [groups],
  );
  return rows.map((row) => row.id);
}

/** Those of these state groups that exist. */
export async function selectExistingGroups(state: Db, groups: readonly number[]): Promise<ReadonlySet<number>> {
  if (!(await hasTable(state, 'state_groups'))) return new Set();
  const rows = await state.query<{ id: number }>(`SELECT id FROM state_groups WHERE ${state.dialect.anyOf('id')}`, [
    groups,
  ]);
  return new Set(rows.map((row) => row.id));
}

/** Whether there is any state group at all. */
export async function hasGroups(state: Db): Promise<boolean> {
  if (!(await hasTable(state, 'state_groups'))) return false;
  return (await state.get('SELECT 1 AS found FROM state_groups LIMIT 1')) !== undefined;
}

/** A state group upon which no other one rests. */
export interface LeafGroup {
  readonly id: number;
  readonly room_id: string;
}

/** State groups behind `after` upon which no other one rests, in order. At most `limit`. */
export function selectLeafGroups(
  state: Db,
  {
    roomId,
    after,
    upTo,
    limit,
  }: { readonly roomId?: string; readonly after: number; readonly upTo: number; readonly limit: number },
): Promise<LeafGroup[]> {
  // With the number plain PostgreSQL might go through the groups of all rooms for those of one.
  const id = roomId === undefined ? 'g.id' : 'g.id + 0';
  return state.query<LeafGroup>(
    `SELECT g.id, g.room_id FROM state_groups g
     WHERE ${id} > ? AND ${id} <= ? ${roomId === undefined ? '' : 'AND g.room_id = ?'}
       AND NOT EXISTS (SELECT 1 FROM state_group_edges d WHERE d.prev_state_group = g.id)
     ORDER BY ${id} LIMIT ${Math.trunc(limit)}`,
    [after, upTo, ...(roomId === undefined ? [] : [roomId])],
  );
}

/** How many rows leaves have of their own. */
export async function selectSizes(state: Db, leaves: readonly LeafGroup[]): Promise<ReadonlyMap<number, number>> {
  if (leaves.length === 0) return new Map();
  const rows = await state.query<{ state_group: number; size: number }>(
    `SELECT state_group, COUNT(*) AS size FROM state_groups_state WHERE ${state.dialect.anyOf('state_group')}
     GROUP BY state_group`,
    [leaves.map((leaf) => leaf.id)],
  );
  return new Map(rows.map((row) => [row.state_group, Number(row.size)]));
}

/** What the main database says of leaves: which it names, and up to which one those of a room are left behind. */
export interface NamedState {
  readonly named: ReadonlySet<number>;
  /** The newest group of a room's forward extremities, by room; a room without any is not there. */
  readonly newest: ReadonlyMap<string, number>;
  /** Rooms that are known in part. */
  readonly partial: ReadonlySet<string>;
}

/** Asks the main database about leaves of the other one. */
export async function selectNamedState(main: Db, leaves: readonly LeafGroup[]): Promise<NamedState> {
  const roomIds = [...new Set(leaves.map((leaf) => leaf.room_id))];
  const named = await main.query<{ state_group: number }>(
    `SELECT DISTINCT state_group FROM event_to_state_groups WHERE ${main.dialect.anyOf('state_group')}`,
    [leaves.map((leaf) => leaf.id)],
  );
  const newest = await main.query<{ room_id: string; newest: number }>(
    `SELECT f.room_id, MAX(h.state_group) AS newest FROM event_forward_extremities f
     JOIN event_to_state_groups h ON h.event_id = f.event_id WHERE ${main.dialect.anyOf('f.room_id')} GROUP BY f.room_id`,
    [roomIds],
  );
  const partial = await main.query<{ room_id: string }>(
    `SELECT room_id FROM partial_state_rooms WHERE ${main.dialect.anyOf('room_id')}`,
    [roomIds],
  );
  return {
    named: new Set(named.map((row) => row.state_group)),
    newest: new Map(newest.map((row) => [row.room_id, row.newest])),
    partial: new Set(partial.map((row) => row.room_id)),
  };
}
