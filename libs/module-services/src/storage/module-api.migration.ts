import type { Migration } from '@rookery/database';

/** What modules keep: their documents, their jobs, and which steps of their own tables were taken. */
export const moduleApiMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'module_api_01_documents_and_jobs',
    async up(tx) {
      // Documents are listed in the byte order of their keys, whatever the database's own order is.
      const byteOrder = tx.dialect.name === 'postgres' ? 'COLLATE "C"' : '';
      for (const statement of [
        `CREATE TABLE module_documents (
          module TEXT NOT NULL, doc_key TEXT ${byteOrder} NOT NULL, json TEXT NOT NULL, PRIMARY KEY (module, doc_key))`,
        `CREATE TABLE module_jobs (
          job_id TEXT NOT NULL PRIMARY KEY, handler TEXT NOT NULL, payload TEXT NOT NULL, period_ms BIGINT,
          due_ms BIGINT NOT NULL, lease TEXT, attempts INTEGER NOT NULL DEFAULT 0)`,
        'CREATE INDEX module_jobs_handler ON module_jobs (handler, due_ms)',
        'CREATE INDEX module_jobs_due ON module_jobs (due_ms)',
        `CREATE TABLE applied_module_schemas (
          module_name TEXT NOT NULL, file TEXT NOT NULL, PRIMARY KEY (module_name, file))`,
      ]) {
        await tx.run(statement);
      }
    },
  },
  {
    version: 1,
    name: 'module_api_02_tables',
    async up(tx) {
      await tx.run('CREATE TABLE module_tables (table_name TEXT NOT NULL PRIMARY KEY, module_name TEXT NOT NULL)');
      await tx.run('CREATE INDEX module_tables_module ON module_tables (module_name)');
    },
  },
];
