// `npm run test:workers -- [FILES]`: end-to-end tests and the models of sync against servers of four processes, each request at one of
// them by chance; `--processes N`. Without files: all that talk to a server from outside as clients do. PostgreSQL comes along; the bus is in memory here.
// The parts that need a real Redis (test/e2e/processes) are part of `npm test`, and say where they did not run.
import { parseArgs } from 'node:util';
import { helpWhereAsked } from './lib.mjs';

helpWhereAsked(import.meta.url);
const { values, positionals } = parseArgs({
  options: { processes: { type: 'string', default: '4' } },
  allowPositionals: true,
});
const all = [
  ...['client-api', 'rooms', 'accounts', 'admin', 'appservices', 'media', 'processes'].map(
    (name) => `test/e2e/${name}/`,
  ),
  'test/sync-model',
];
process.env.ROOKERY_TEST_PROCESSES = values.processes;
// On SQLite a server is a single process.
process.argv.splice(2, Infinity, ...(positionals.length > 0 ? positionals : all), '-t', 'postgres|processes');
await import('./test.mjs');
