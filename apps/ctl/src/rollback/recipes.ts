import type { Db, SchemaState, Tx } from '@rookery/database';

/** One thing that a recipe does. */
export interface RecipeStep {
  readonly text: string;
  /** Done in the database, all of a recipe in one transaction. */
  readonly inDatabase?: (tx: Tx) => Promise<void>;
  /** A setting to write into the settings file. */
  readonly setting?: { readonly path: readonly [section: string, name: string]; readonly value: boolean };
  /** Removes the write-ahead log of a metrics collector. */
  readonly collectorLog?: true;
}

/** A way back from a release of the servers of this family that is known by name. */
export interface Recipe {
  /** The release that is left, and the one that is gone back to. */
  readonly from: string;
  readonly to: string;
  /** The schema version that the database has to have; nothing where the database stays as it is. */
  readonly schemaVersion?: number;
  readonly steps: readonly RecipeStep[];
  /** What to know when upgrading again. */
  readonly later?: string;
}

const setVersion = (version: number): RecipeStep => ({
  text: `set schema_version to ${version}`,
  inDatabase: async (tx) => void (await tx.run('UPDATE schema_version SET version = ?', [version])),
});

const emptied = (table: string): RecipeStep => ({
  text: `empty ${table}`,
  inDatabase: async (tx) =>
    void (await tx.run(tx.dialect.name === 'postgres' ? `TRUNCATE ${table}` : `DELETE FROM ${table}`)),
});

/** The ways back that need more than an older program. */
export const recipes: readonly Recipe[] = [
  {
    from: '1.26.0',
    to: '1.25.0',
    schemaVersion: 59,
    steps: [
      setVersion(58),
      {
        text: 'drop the table ignored_users, if it is there',
        inDatabase: async (tx) => void (await tx.run('DROP TABLE IF EXISTS ignored_users')),
      },
      {
        text: 'set has_auth_chain_index to false on all rows of rooms',
        inDatabase: async (tx) => void (await tx.run('UPDATE rooms SET has_auth_chain_index = FALSE')),
      },
      emptied('event_auth_chain_links'),
      emptied('event_auth_chains'),
      {
        text: 'forget that 59/01ignored_user.py and 59/06chain_cover_index.sql were applied',
        inDatabase: async (tx) =>
          void (await tx.run('DELETE FROM applied_schema_deltas WHERE version = 59 AND file IN (?, ?)', [
            '59/01ignored_user.py',
            '59/06chain_cover_index.sql',
          ])),
      },
    ],
  },
  { from: '1.13.0', to: '1.12.4', schemaVersion: 58, steps: [setVersion(57)] },
  {
    from: '1.4.0',
    to: '1.3.1',
    steps: [
      {
        text: 'set stats.enabled to false in the settings: the older release stops updating the statistics of rooms, and would log errors',
        setting: { path: ['stats', 'enabled'], value: false },
      },
    ],
    later: 'When you upgrade again, set stats.enabled to true.',
  },
  {
    from: '1.32.0',
    to: '1.31.0',
    steps: [
      {
        text: 'remove the excess write-ahead log of the metrics collector, which this release has overwhelmed (samples of the last hours that are in no block yet go with it)',
        collectorLog: true,
      },
    ],
  },
];

/** A recipe by the release that is left, or by the one to go to; `1.26` stands for `1.26.0`. */
export function recipeFor({ from, to }: { readonly from?: string; readonly to?: string }): Recipe | undefined {
  const plain = (text: string): string => text.replace(/^v/, '');
  const isSame = (name: string, text: string | undefined): boolean =>
    text !== undefined && (name === plain(text) || name === `${plain(text)}.0`);
  return recipes.find((recipe) => isSame(recipe.from, from) || isSame(recipe.to, to));
}

/** Why a recipe does not fit a database; nothing when it does. */
export function misfit(recipe: Recipe, state: SchemaState): string | undefined {
  if (recipe.schemaVersion === undefined) return undefined;
  if (state.madeBy === 'rookery')
    return `The database is one of Rookery's, and ${recipe.from} is a release of another server: see rookery rollback plan --to rookery-VERSION`;
  if (state.version === undefined) return 'The database has no schema_version: it is empty, or no homeserver made it';
  if (state.version === recipe.schemaVersion) return undefined;
  return state.version < recipe.schemaVersion
    ? `The database has schema version ${state.version} already; this way back begins at ${recipe.schemaVersion}`
    : `The database has schema version ${state.version}, and there is no way back from there: ${recipe.from} left ${recipe.schemaVersion}. Restore the backup made before the upgrade`;
}

/** How many rows the steps touch, for who reads the plan. */
export async function rowsTouched(recipe: Recipe, db: Db): Promise<readonly string[]> {
  if (recipe.from !== '1.26.0') return [];
  const lines: string[] = [];
  for (const table of ['rooms', 'event_auth_chains', 'event_auth_chain_links']) {
    const row = await db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM ${table}`);
    lines.push(`${table}: ${Number(row?.total ?? 0).toLocaleString('en-US')} rows`);
  }
  return lines;
}
