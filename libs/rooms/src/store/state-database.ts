import { type DataStores, type Db, forgetPart, partOf } from '@rookery/database';
import {
  deleteStateLink,
  hasGroups,
  insertStateLink,
  insertStateMark,
  selectExistingGroups,
  selectMainTables,
  selectNamedGroups,
  selectStateLink,
  selectStateMark,
  selectStillNamed,
} from './state-database.query.js';

const groupsAtOnce = 5_000;
const page = 'docs/operators/state-database.md says how state is moved.';

/** Databases that are only looked at. */
interface LookedAt {
  readonly main: Db;
  readonly state: Db;
  readonly isSplit: boolean;
}

/**
 * Whether two databases belong together, or a single one has its state itself: before anything is served or written.
 * @returns what is wrong and what to do; nothing when all is well
 */
export async function stateProblem(stores: LookedAt, serverName: string): Promise<string | undefined> {
  const { main, state, isSplit } = stores;
  const link = await selectStateLink(main);
  if (!isSplit) {
    if (link === undefined || (await lacksNothing(stores))) return undefined;
    return (
      'the state lies in a database of its own, by which these settings do not know: write it into databases again ' +
      `(data_stores: [state]), or move the state back into the main database. ${page}`
    );
  }
  if ((await selectMainTables(state)).size > 0)
    return `the database with data_stores: [state] is a main database, with tables of events: give state one of its own. ${page}`;
  const mark = await selectStateMark(state);
  if (mark !== undefined && mark.link !== link) {
    return (
      `the database with data_stores: [state] belongs to another main database, of ${mark.server_name}` +
      `${mark.server_name === serverName ? ' (an earlier one, or it was put back to another day)' : ''}: two servers must not ` +
      `share one. Give an empty one, and move the state there. ${page}`
    );
  }
  if (await lacksNothing(stores)) return undefined;
  return (await hasGroups(state))
    ? 'the database with data_stores: [state] lacks state groups which events in the main one name: one of the two was ' +
        'put back to another day than the other. Put both back from the same backup.'
    : 'the database with data_stores: [state] is empty, and the main one has events with state groups: move the tables ' +
        `state_groups, state_group_edges and state_groups_state there first. ${page}`;
}

/** Whether the state groups are there that tell: of the oldest event, of the newest, and where each room stands. */
async function lacksNothing({ main, state }: LookedAt): Promise<boolean> {
  const named = await selectNamedGroups(main);
  for (let at = 0; at < named.length; at += groupsAtOnce) {
    const some = named.slice(at, at + groupsAtOnce);
    const found = await selectExistingGroups(state, some);
    const missing = some.filter((group) => !found.has(group));
    // Another process may have deleted a room meanwhile.
    if (missing.length > 0 && (await selectStillNamed(main, missing)).length > 0) return false;
  }
  return true;
}

/**
 * Notes in both databases that they belong together, or that a single one has its state itself. Only after {@link stateProblem}
 * found nothing.
 * @param newLink a name that nobody else has
 */
export async function joinState(stores: DataStores, serverName: string, newLink: string): Promise<void> {
  const { main, state, isSplit } = stores;
  const known = await selectStateLink(main);
  if (!isSplit) {
    if (known !== undefined) await main.write((tx) => deleteStateLink(tx), { name: 'join_state' });
    return;
  }
  const link = known ?? newLink;
  // The main one first: a state database that nobody has may be taken later, one that has another's name never.
  if (known === undefined) await main.write((tx) => insertStateLink(tx, link), { name: 'join_state' });
  if ((await partOf(state)) !== undefined) await state.write((tx) => forgetPart(tx), { name: 'join_state' });
  if ((await selectStateMark(state)) === undefined)
    await state.write((tx) => insertStateMark(tx, { link, server_name: serverName }), { name: 'join_state' });
}
