import { roomsStateMigrations } from './migrations/state-database.migration.js';
import { joinState, stateProblem } from './store/state-database.js';
import { selectDeletions, stateTables } from './store/state-database.query.js';
import { stateGroupEdges } from './upkeep/state-group-edges.update.js';

/** The rows of state groups, for those who handle whole databases: these may have one of their own. */
export const stateStore = {
  /** The tables that move with them. */
  tables: stateTables,
  /** The tables of this lib in a database that holds nothing but state. */
  migrations: roomsStateMigrations,
  /** Edges that restored data may have twice. */
  edges: stateGroupEdges,
  problem: stateProblem,
  join: joinState,
  deletions: selectDeletions,
} as const;
