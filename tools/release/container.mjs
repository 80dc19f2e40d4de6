// What an image is built from: the container file beside the server's packages. Where Docker or Podman run, the image is built and tried.
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
  const engine = ['docker', 'podman'].find((one) => spawnSync(one, ['info'], { stdio: 'ignore' }).status === 0);
  if (engine === undefined) {
    console.log('(neither Docker nor Podman run here: the image itself was not built) ');
    return;
  }
  const image = `rookery:${version}`;
  command(engine, ['build', '-t', image, '-f', join(context, 'Containerfile'), context]);
  const run = ['run', '--rm', '--read-only', '--tmpfs', '/tmp', '--entrypoint'];
  for (const name of ['rookery', 'rookery-homeserver']) command(engine, [...run, name, image, '--version']);
  await tryImage(engine, image);
}

/** Starts a server as the compose file does, until it says of itself that it is well. @throws Error with its log when it does not */
async function tryImage(engine, image) {
  const more = ['--cap-drop', 'ALL', '--security-opt', 'no-new-privileges', '-e', 'ROOKERY_SERVER_NAME=release.test'];
  const id = command(engine, ['run', '-d', '--read-only', '--tmpfs', '/tmp', ...more, image]).trim();
  try {
    for (let tries = 0; ; tries++) {
      const { status } = spawnSync(engine, ['exec', id, 'node', '/opt/rookery/health.mjs']);
      if (status === 0) break;
      if (tries === 60) throw new Error(`the container does not become well:\n${command(engine, ['logs', id])}`);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
    const account = ['--config', '/data/homeserver.yaml', '--user', 'root', '--password', 'secret', '--admin'];
    command(engine, ['exec', id, 'rookery', 'register-user', ...account]);
    command(engine, ['stop', '-t', '30', id]);
    const { stdout } = spawnSync(engine, ['inspect', '-f', '{{.State.ExitCode}}', id], { encoding: 'utf8' });
    if (stdout.trim() !== '0') throw new Error(`the container ended with ${stdout.trim()}`);
  } finally {
    spawnSync(engine, ['rm', '-f', '-v', id]);
  }
}
