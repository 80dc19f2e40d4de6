// Starts the server on /data/homeserver.yaml. Without one it is made for ROOKERY_SERVER_NAME, listening to the container's network.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const rookery = new URL('node_modules/@rookery/ctl/bin/rookery.mjs', import.meta.url).pathname;
const settings = process.env.ROOKERY_CONFIG ?? '/data/homeserver.yaml';
if (!existsSync(settings)) {
  const name = process.env.ROOKERY_SERVER_NAME;
  if (!name) {
    console.error(`There is no ${settings}. Mount one, or set ROOKERY_SERVER_NAME to the name of the new server.`);
    process.exit(1);
  }
  const args = [
    'config',
    'generate',
    '--server-name',
    name,
    '--data-dir',
    '/data',
    '--bind',
    '0.0.0.0',
    '--output',
    settings,
  ];
  // The loopback address of a container is of use to nobody.
  const { status } = spawnSync(process.execPath, [rookery, ...args], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
process.argv.splice(2, 0, '--config', settings);
await import('@rookery/homeserver/bin/rookery-homeserver.mjs');
