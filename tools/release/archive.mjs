// One archive for this platform that needs nothing: the server with its Node.js.
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { command, tryServer } from './trial.mjs';
import { programIn } from './install.mjs';

export async function makeArchive({ out, work, tree, version }) {
  const name = `rookery-${version}-${process.platform}-${process.arch}`;
  const file = join(out, `${name}.tar.gz`);
  const reproducible = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--mtime=2020-01-01'];
  command('tar', ['czf', file, ...reproducible, '-C', tree, '--transform', `s,^\\.,${name},`, '.']);
  const empty = join(work, 'unpacked');
  rmSync(empty, { recursive: true, force: true });
  mkdirSync(empty, { recursive: true });
  command('tar', ['xzf', file, '-C', empty]);
  const programs = join(empty, name);
  // With nothing in the path but the system's own programs.
  const env = { ...process.env, PATH: '/usr/bin:/bin' };
  await tryServer([programIn(programs, 'rookery-homeserver')], [programIn(programs, 'rookery')], env);
}
