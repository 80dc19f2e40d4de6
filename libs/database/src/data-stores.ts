import type { Database } from './database.js';

/** The databases of a server by what lies in them, as the setting `databases` names it: the same one twice, unless it is told otherwise. */
export class DataStores {
  /** Everything but the rows of state groups. */
  readonly main: Database;
  /** The rows of state groups; {@link main} itself where these have no database of their own. */
  readonly state: Database;

  constructor(main: Database, state?: Database) {
    this.main = main;
    this.state = state ?? main;
  }

  /**
   * State has a database of its own: no transaction spans both, and no statement. What main refers to is durable in state
   * before main says so, and goes from state after main has forgotten it.
   */
  get isSplit(): boolean {
    return this.state !== this.main;
  }
}
