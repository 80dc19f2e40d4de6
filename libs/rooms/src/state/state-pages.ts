import type { Db } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { stateKeyOf, type StateMap } from '@rookery/state-res';
import {
  selectCurrentEntries,
  selectCurrentPage,
  selectCurrentState,
  selectStateDeltas,
  type StateDelta,
  type StateRow,
  type WantedEntry,
} from './room-state.query.js';
import { filterState, type StateFilter } from './state-filter.js';
import { spansOf, type StateSpan, type StateSpans } from './state-filter.query.js';
import { type ChainLink, selectChain, selectGroupPage, selectStates } from './state-groups.query.js';

/** Entries that are read in one turn of the event loop, of however many rooms; and of one of which there are more. */
const [entriesAtOnce, entriesPerPage] = [4_000, 2_000];
/** Entries that are looked for one by one in a turn of the event loop. */
const searchesPerTurn = 1_000;
/** A chain is read once more when it was written anew meanwhile, which seldom happens twice. */
const maxAttempts = 5;

type Page<Row extends StateRow> = (span: StateSpan, after: readonly [string, string] | undefined) => Promise<Row[]>;

/** The rows of stretches of a state, a page in a turn of the event loop. */
async function* pagesOf<Row extends StateRow>(spans: readonly StateSpan[], read: Page<Row>): AsyncGenerator<Row[]> {
  for (const span of spans) {
    let after: readonly [string, string] | undefined;
    for (;;) {
      const rows = await read(span, after);
      yield rows;
      const last = rows.at(-1);
      if (last === undefined || rows.length < entriesPerPage) break;
      after = [last.type, last.state_key];
      await ownTurn();
    }
  }
}

/** All of a room's current state as rows, a page in a turn of the event loop: what is written meanwhile may be among them. */
export const currentPages = <Row extends StateRow>(db: Db, roomId: string): AsyncGenerator<Row[]> =>
  pagesOf<Row>([{}], (span, after) => selectCurrentPage<Row>(db, roomId, span, after, entriesPerPage));

/** The rows of a single group, not of its chain, a page in a turn of the event loop. */
export const groupPages = (db: Db, group: number): AsyncGenerator<StateRow[]> =>
  pagesOf<StateRow>([{}], (span, after) => selectGroupPage(db, group, span, after, entriesPerPage));

/** Entries of current state, by room and {@link stateKeyOf}, some in a turn of the event loop; rooms without any of them are absent. */
export async function readCurrentEntries(
  db: Db,
  wanted: Iterable<WantedEntry>,
): Promise<Map<string, Map<string, string>>> {
  const rooms = new Map<string, Map<string, string>>();
  const read = async (part: readonly WantedEntry[]): Promise<void> => {
    for (const [roomId, found] of await selectCurrentEntries(db, part)) {
      const known = rooms.get(roomId);
      if (known === undefined) rooms.set(roomId, found);
      else for (const [key, eventId] of found) known.set(key, eventId);
    }
  };
  let part: WantedEntry[] = [];
  for (const entry of wanted) {
    if (part.length === searchesPerTurn) {
      await read(part);
      part = [];
      await ownTurn();
    }
    part.push(entry);
  }
  if (part.length > 0) await read(part);
  return rooms;
}

function* crossed(roomIds: readonly string[], types: NonNullable<StateFilter['types']>): Generator<WantedEntry> {
  for (const roomId of roomIds) for (const [type, stateKey = ''] of types) yield [roomId, type, stateKey];
}

/** The entries that a filter names in rooms, where it names each of them, and they are too many for a turn of the event loop. */
function manyEntries(roomIds: readonly string[], filter: StateFilter | undefined): Iterable<WantedEntry> | undefined {
  const { types, members, withoutMembers } = filter ?? {};
  if (types === undefined || members !== undefined || withoutMembers) return undefined;
  if (roomIds.length * types.length <= searchesPerTurn) return undefined;
  return crossed(roomIds, types);
}

/**
 * Current state of rooms, by {@link stateKeyOf}, as it was at one moment; much of it is read in several turns of the event loop. Rooms without any matching
 * entry are absent. Of more entries than can be looked for in a turn, which are named one by one, each is as it is when it is looked for.
 * @param position up to which events are known to be stored by now
 */
export async function readCurrentState(
  db: Db,
  roomIds: readonly string[],
  filter: StateFilter | undefined,
  position: () => number,
): Promise<Map<string, Map<string, string>>> {
  const spans = spansOf(filter);
  if (spans === undefined) {
    const many = manyEntries(roomIds, filter);
    return many === undefined ? selectCurrentState(db, roomIds, filter) : readCurrentEntries(db, many);
  }
  const few = await selectCurrentState(db, roomIds, filter, entriesAtOnce);
  if (few !== undefined) return few;
  const rooms = new Map<string, Map<string, string>>();
  for (const roomId of roomIds) {
    await ownTurn();
    const state = await readLarge(db, roomId, filter, spans, position());
    if (state.size > 0) rooms.set(roomId, state);
  }
  return rooms;
}

async function readLarge(
  db: Db,
  roomId: string,
  filter: StateFilter | undefined,
  { spans, rest }: StateSpans,
  since: number,
): Promise<Map<string, string>> {
  const state = new Map<string, string>();
  const read: Page<StateRow> = (span, after) => selectCurrentPage(db, roomId, span, after, entriesPerPage);
  for await (const page of pagesOf(spans, read)) add(state, page);
  if (rest !== undefined)
    for (const [key, eventId] of (await selectCurrentState(db, [roomId], rest)).get(roomId) ?? [])
      state.set(key, eventId);
  // What changed between the pages is in some of them and not in others.
  for (const { type, stateKey, eventId } of await selectStateDeltas(db, [roomId], since, Number.MAX_SAFE_INTEGER)) {
    const key = stateKeyOf(type, stateKey);
    if (filterState(new Map([[key, '']]), filter).size === 0) continue;
    if (eventId === undefined) state.delete(key);
    else state.set(key, eventId);
  }
  return state;
}

/** {@link selectStateDeltas}; many are read in several turns of the event loop, as when the state of a large room has come. */
export async function readStateDeltas(
  db: Db,
  roomIds: readonly string[],
  after: number,
  upTo: number,
): Promise<StateDelta[]> {
  const deltas: StateDelta[] = [];
  for (let from = after; ;) {
    const some = await selectStateDeltas(db, roomIds, from, upTo, entriesPerPage);
    const last = some.at(-1)?.streamId;
    if (last === undefined || some.length < entriesPerPage) return deltas.concat(some);
    // Of the last there may be more than the page holds.
    for (const delta of some) if (delta.streamId < last) deltas.push(delta);
    await ownTurn();
    for (const delta of await selectStateDeltas(db, roomIds, last - 1, last)) deltas.push(delta);
    from = last;
    await ownTurn();
  }
}

/**
 * The state of groups; much of it is read in several turns of the event loop. Groups that do not exist come back empty.
 */
export async function readStates(
  db: Db,
  groups: readonly number[],
  filter?: StateFilter,
): Promise<Map<number, StateMap>> {
  const spans = spansOf(filter);
  if (spans === undefined) return selectStates(db, groups, filter);
  const few = await selectStates(db, groups, filter, entriesAtOnce);
  if (few !== undefined) return few;
  const states = new Map<number, StateMap>();
  for (const group of groups) states.set(group, await readLargeGroup(db, group, spans));
  return states;
}

async function readLargeGroup(db: Db, group: number, { spans, rest }: StateSpans): Promise<StateMap> {
  let chain = await selectChain(db, group);
  for (let attempt = 1; ; attempt++) {
    const state = new Map<string, string>();
    for (const link of chain.toReversed()) {
      await ownTurn();
      const read: Page<StateRow> = (span, after) => selectGroupPage(db, link.group, span, after, entriesPerPage);
      for await (const page of pagesOf(spans, read)) add(state, page);
    }
    if (rest !== undefined)
      for (const [key, eventId] of (await selectStates(db, [group], rest)).get(group)!) state.set(key, eventId);
    // A state never changes, but what it is written as a difference to may go.
    const now = await selectChain(db, group);
    if (isSame(chain, now)) return state;
    if (attempt === maxAttempts) throw new Error(`State group ${group} was written anew whenever it was read`);
    chain = now;
  }
}

const isSame = (one: readonly ChainLink[], other: readonly ChainLink[]): boolean =>
  one.length === other.length && one.every(({ group }, index) => group === other[index]?.group);

function add(state: Map<string, string>, rows: readonly StateRow[]): void {
  for (const row of rows) state.set(stateKeyOf(row.type, row.state_key), row.event_id);
}
