// What an image is built from: the container file beside the server's packages. Where Docker runs, the image is built and tried.
import { copyFileSync, cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { optionalDependencies } from './npm.mjs';
import { command } from './trial.mjs';

const parts = fileURLToPath(new URL('container/', import.meta.url));

export async function makeContainerContext({ out, work, packages, version }) {
  const context = join(work, `rookery-container-${version}`);
  mkdirSync(join(context, 'packages'), { recursive: true });
  cpSync(parts, context, { recursive: true });
  const dependencies = await optionalDependencies();
  for (const [name, file] of packages) {
    copyFileSync(file, join(context, 'packages', basename(file)));
    dependencies[name] = `file:packages/${basename(file)}`;
  }
  writeFileSync(join(context, 'package.json'), JSON.stringify({ private: true, dependencies }, null, 2) + '\n');
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
