import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from '@rookery/testing/internal';
import { isRunning } from './reload.js';

it('finds a worker by its own pid file', async () => {
  const folder = await temporaryFolder('rookery-reload-');
  const [main, worker] = [join(folder, 'homeserver.yaml'), join(folder, 'worker.yaml')];
  writeFileSync(
    main,
    'server_name: rookery.test\nreport_stats: false\npid_file: main.pid\nredis: {enabled: true}\ninstance_map: {main: {host: 127.0.0.1, port: 9093}}\ndatabase: {name: psycopg2, args: {database: a}}\n',
  );
  writeFileSync(worker, 'worker_app: synapse.app.generic_worker\nworker_name: one\nworker_pid_file: one.pid\n');
  expect(isRunning([main, worker])).toBe(false);
  writeFileSync(join(folder, 'one.pid'), `${process.pid}\n`);
  expect(isRunning([main, worker])).toBe(true);
  expect(isRunning([main])).toBe(false);
});

it('finds a server that belongs to another user', async () => {
  const folder = await temporaryFolder('rookery-reload-');
  const file = join(folder, 'homeserver.yaml');
  writeFileSync(file, 'server_name: rookery.test\nreport_stats: false\npid_file: main.pid\n');
  // The system's first process, which only its administrator may signal.
  writeFileSync(join(folder, 'main.pid'), '1\n');
  expect(isRunning([file])).toBe(true);
});
