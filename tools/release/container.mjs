// What an image is built from: the container file beside the server's package. Where Docker runs, the image is built and tried.
import { copyFileSync, cpSync, mkdirSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { command } from './trial.mjs';

const parts = fileURLToPath(new URL('container/', import.meta.url));

export function makeContainerContext({ out, work, server, version }) {
  const context = join(work, `rookery-container-${version}`);
  mkdirSync(context, { recursive: true });
  cpSync(parts, context, { recursive: true });
  copyFileSync(server, join(context, basename(server)));
  command('tar', ['czf', join(out, `rookery-container-${version}.tar.gz`), '-C', work, basename(context)]);
  const hasDocker = spawnSync('docker', ['version'], { stdio: 'ignore' }).status === 0;
  if (!hasDocker) {
    console.log('(Docker does not run here: the image itself was not built) ');
    return;
  }
  const image = `rookery:${version}`;
  command('docker', ['build', '-t', image, '-f', join(context, 'Containerfile'), context]);
  const run = ['run', '--rm', '--read-only', '--tmpfs', '/tmp', '--entrypoint'];
  for (const name of ['rookery', 'rookery-homeserver']) command('docker', [...run, name, image, '--version']);
}
