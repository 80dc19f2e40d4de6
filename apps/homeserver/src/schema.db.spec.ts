import type { Database, DialectName, Migration, SqlValue, Tx } from '@rookery/database';
import { migrate, tablesAmong } from '@rookery/database';
import { eachDatabase } from '@rookery/testing';
import { backgroundUpdates, migrations } from './schema.js';

/** Tables over whose rows a statement goes. */
function gonesOver(sql: string): string[] {
  const text = sql.replaceAll(/\s+/g, ' ').trim();
  if (/^(?:INSERT|UPDATE|DELETE|SELECT|WITH) ?/i.test(text)) {
    // A look for a single row, or for the newest by an index, costs nothing.
    if (/LIMIT 1$|^SELECT MAX\(stream_ordering\)/.test(text)) return [];
    const from = [...text.matchAll(/(?:FROM|JOIN|^UPDATE) ([a-z_0-9]+)/g)].map(([, table = '']) => table);
    return text.startsWith('INSERT') && !text.includes('SELECT') ? [] : from;
  }
  const [, indexed] = /^CREATE (?:UNIQUE )?INDEX [a-z_0-9]+ ON ([a-z_0-9]+)/.exec(text) ?? [];
  const [, keyed] = /^ALTER TABLE ([a-z_0-9]+) ADD (?:PRIMARY KEY|CONSTRAINT|UNIQUE)/.exec(text) ?? [];
  return [indexed ?? keyed ?? ''].filter((table) => table !== '');
}

/** A migration that notes which tables from before it goes over. */
function watched(migration: Migration, noted: Map<string, Set<string>>): Migration {
  return {
    ...migration,
    async up(tx) {
      const statements: string[] = [];
      const made = new Set<string>();
      const note = (sql: string): void => {
        statements.push(sql);
        const [, table] = /CREATE (?:VIRTUAL )?TABLE ([a-z_0-9]+)/.exec(sql) ?? [];
        if (table !== undefined) made.add(table);
      };
      const names = ['run', 'query', 'get', 'exec'] as const;
      const proxy = new Proxy(tx, {
        get(target, key) {
          const value = Reflect.get(target, key) as unknown;
          if (typeof value !== 'function') return value;
          const call = value.bind(target) as (...args: unknown[]) => unknown;
          if (!names.some((name) => name === key)) return call;
          return (sql: string, params?: readonly SqlValue[]) => {
            note(sql);
            return call(sql, params);
          };
        },
      });
      const before = await allTables(tx);
      await migration.up(proxy);
      const over = statements.flatMap(gonesOver).filter((table) => before.has(table));
      noted.set(migration.name, new Set(over));
    },
  };
}

async function allTables(tx: Tx): Promise<ReadonlySet<string>> {
  const rows = await tx.query<{ name: string }>(
    tx.dialect.name === 'sqlite'
      ? "SELECT name FROM sqlite_master WHERE type = 'table'"
      : 'SELECT table_name AS name FROM information_schema.tables WHERE table_schema = current_schema()',
  );
  return new Set(rows.map((row) => row.name));
}

/** Of the bookkeeping itself, a handful of rows. */
const small = new Set(['stream_positions', 'background_updates', 'schema_version', 'push_read_marks_new']);

const statedFor = (migration: Migration, kind: DialectName): ReadonlySet<string> =>
  new Set((migration.cost ?? []).filter(({ on = kind }) => on === kind).flatMap(({ tables }) => tables));

eachDatabase('the schema', (open, kind) => {
  let db: Database;
  beforeEach(async () => (db = (await open()).database));

  it('says of each step over which rows it goes', async () => {
    const noted = new Map<string, Set<string>>();
    await migrate(
      db,
      migrations.map((migration) => watched(migration, noted)),
    );
    const silent = migrations.flatMap((migration) => {
      const stated = statedFor(migration, kind);
      const left = [...(noted.get(migration.name) ?? [])].filter((table) => !stated.has(table) && !small.has(table));
      return left.length > 0 ? [`${migration.name}: ${left.join(' ')}`] : [];
    });
    expect(silent).toEqual([]);
    expect(noted.size).toBe(migrations.length);
    const named = new Set(migrations.flatMap((migration) => [...statedFor(migration, kind)]));
    named.delete('event_push_defaults');
    expect([...named].sort()).toEqual([...(await tablesAmong(db, [...named]))].sort());
  });
});

describe('the schema', () => {
  it('says of each step behind the first version what it costs programs of before, and the way back', () => {
    const later = migrations.filter((migration) => migration.version > 1);
    expect(later.filter((migration) => migration.back === undefined).map(({ name }) => name)).toEqual([]);
    expect(later.filter((migration) => migration.servedFrom === undefined).map(({ name }) => name)).toEqual([]);
  });

  it('queues background updates that exist', () => {
    const known = new Set(backgroundUpdates.map((update) => update.name));
    expect(migrations.flatMap((migration) => migration.queues ?? []).filter((name) => !known.has(name))).toEqual([]);
  });
});
