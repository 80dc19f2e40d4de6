// `npm run release`: everything that is handed out for this version, each thing tried in an empty place before it counts.
// Writes into `release/` (or `--out FOLDER`): the npm packages, an archive that carries its Node.js, a Debian package, the
// container file with its context, a bill of materials, notes of the version, and SHA256SUMS.
// `--only npm,archive,debian,container` makes a part; `--root` also installs the Debian package into a root of its own
// (debootstrap, as root). `--repository URL` is written into the npm packages, as where their sources lie.
// The empty places lie in the system's folder for temporary files (TMPDIR), which takes about 2 GB.
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build, ensureInstalled, helpWhereAsked, root } from './lib.mjs';
import { makeArchive } from './release/archive.mjs';
import { makeBill } from './release/bill.mjs';
import { makeContainerContext } from './release/container.mjs';
import { makeDebianPackage } from './release/debian.mjs';
import { packAll, serverPackages, tryLean, tryPackages } from './release/npm.mjs';
import { notesOf } from './release/notes.mjs';
import { installInto } from './release/install.mjs';

helpWhereAsked(import.meta.url);
const { values } = parseArgs({
  options: {
    out: { type: 'string', default: join(root, 'release') },
    only: { type: 'string', default: 'npm,archive,debian,container' },
    root: { type: 'boolean', default: false },
    repository: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log('npm run release -- [--out FOLDER] [--only npm,archive,debian,container] [--root] [--repository URL]');
  process.exit(0);
}
const out = resolve(values.out);
const wanted = new Set(values.only.split(','));
// Within the project nothing would be empty: packages that are missing there would be found in its node_modules.
const work = mkdtempSync(join(tmpdir(), 'rookery-release-'));
const { version } = JSON.parse(readFileSync(join(root, 'apps', 'homeserver', 'package.json'), 'utf8'));

const step = async (name, make) => {
  const started = performance.now();
  process.stdout.write(`${name} ... `);
  const made = await make();
  console.log(`${((performance.now() - started) / 1000).toFixed(1)} s`);
  return made;
};

try {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const notes = notesOf(version);
  writeFileSync(join(out, 'NOTES.md'), notes);
  ensureInstalled();
  await step('build, from nothing', () => {
    // What an older source left behind would be handed out, too.
    for (const group of ['libs', 'apps'])
      for (const name of readdirSync(join(root, group)))
        rmSync(join(root, group, name, 'dist'), { recursive: true, force: true });
    build();
  });
  const packed = await step('npm packages', () => packAll(out, values.repository));
  const packages = serverPackages(packed);
  await step('npm packages installed in an empty folder, and the server started', () => tryPackages(packed, work));
  const megabytes = await step('the server alone, without optional parts', () => tryLean(packages, work));
  console.log(`(${megabytes.toFixed(0)} MB)`);
  const tree = await step('a tree of the server and its Node.js, started', () =>
    installInto(join(work, 'tree'), packages),
  );
  await step('bill of materials', () => makeBill({ out, tree, version }));
  if (wanted.has('archive'))
    await step('archive, unpacked and started', () => makeArchive({ out, work, tree, version }));
  if (wanted.has('debian'))
    await step(
      values.root ? 'Debian package, installed into a root of its own' : 'Debian package, unpacked and started',
      () => makeDebianPackage({ out, work, tree, version, inRoot: values.root }),
    );
  if (wanted.has('container'))
    await step('container file', () => makeContainerContext({ out, work, packages, version }));
  const files = readdirSync(out).filter((name) => name !== 'SHA256SUMS' && statSync(join(out, name)).isFile());
  writeFileSync(
    join(out, 'SHA256SUMS'),
    files
      .sort()
      .map(
        (name) =>
          `${createHash('sha256')
            .update(readFileSync(join(out, name)))
            .digest('hex')}  ${name}\n`,
      )
      .join(''),
  );
  console.log(`Rookery ${version} is in ${out}:`);
  for (const name of files) console.log(`  ${name}  ${(statSync(join(out, name)).size / 1e6).toFixed(1)} MB`);
} catch (error) {
  console.error(`\nThis version cannot be released: ${error.message}`);
  process.exitCode = 1;
} finally {
  rmSync(work, { recursive: true, force: true });
}
