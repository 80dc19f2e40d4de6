// The npm package of the server: one package with the two programs, in which our own libraries lie as they were built.
// Others' libraries are named with the versions that were tested, and come from the registry at installation.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../lib.mjs';

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

/** What a server does without, until a setting asks for it; the server says so then. */
const optionalLibraries = {
  pg: 'PostgreSQL (database.name: psycopg2)',
  sharp: 'thumbnails',
  nodemailer: 'mail (email)',
  'openid-client': 'OpenID Connect (oidc_providers)',
  '@node-saml/node-saml': 'SAML (saml2_config)',
};

/** Every package of this repository by name, with its folder. */
function ownPackages() {
  const found = new Map();
  for (const group of ['libs', 'apps']) {
    for (const name of readdirSync(join(root, group))) {
      const folder = join(root, group, name);
      if (existsSync(join(folder, 'package.json'))) found.set(readJson(join(folder, 'package.json')).name, folder);
    }
  }
  return found;
}

/** Copies what runs of a package: neither types nor what only the compiler reads. */
function copyBuilt(from, to, files) {
  for (const entry of files) {
    if (entry.startsWith('!')) continue;
    cpSync(join(from, entry), join(to, entry), {
      recursive: true,
      filter: (path) => !/\.d\.ts(\.map)?$|\.tsbuildinfo$|\.spec\.js|\.fixture\.js/.test(path),
    });
  }
}

/**
 * Lays out the package in a folder, ready for `npm pack`.
 * @returns its manifest
 */
export function layOutPackage(folder) {
  const own = ownPackages();
  const server = readJson(join(own.get('@rookery/homeserver'), 'package.json'));
  const rootManifest = readJson(join(root, 'package.json'));
  const bundled = new Set();
  const others = new Map();
  const visit = (name) => {
    const manifest = readJson(join(own.get(name), 'package.json'));
    for (const [dependency, version] of Object.entries(manifest.dependencies ?? {})) {
      if (!own.has(dependency)) others.set(dependency, version);
      else if (dependency !== server.name && !bundled.has(dependency)) {
        bundled.add(dependency);
        visit(dependency);
      }
    }
  };
  visit(server.name);
  bundled.add('@rookery/ctl');
  visit('@rookery/ctl');
  // Loaded by name at run time, by Nest.
  for (const name of ['@nestjs/platform-fastify', 'reflect-metadata', 'rxjs'])
    others.set(name, rootManifest.dependencies[name]);

  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  copyBuilt(own.get(server.name), folder, ['dist']);
  const versions = {};
  for (const name of [...bundled].sort()) {
    const from = own.get(name);
    const manifest = readJson(join(from, 'package.json'));
    const to = join(folder, 'node_modules', name);
    mkdirSync(to, { recursive: true });
    copyBuilt(from, to, manifest.files);
    const { version, type, exports, license, description } = manifest;
    writeFileSync(
      join(to, 'package.json'),
      JSON.stringify({ name, version, description, license, type, exports }, null, 2) + '\n',
    );
    versions[name] = version;
  }
  const pick = (wanted) =>
    Object.fromEntries([...others].filter(([name]) => wanted(name)).sort(([a], [b]) => (a < b ? -1 : 1)));
  const manifest = {
    name: server.name,
    version: server.version,
    description: rootManifest.description,
    license: rootManifest.license,
    ...(rootManifest.repository ? { repository: rootManifest.repository } : {}),
    keywords: ['matrix', 'homeserver', 'chat', 'federation'],
    type: 'module',
    engines: { node: '>=22.19' },
    bin: { rookery: 'bin/rookery.mjs', 'rookery-homeserver': 'bin/rookery-homeserver.mjs' },
    exports: { '.': './dist/index.js', './package.json': './package.json' },
    files: ['bin', 'dist', 'README.md', 'LICENSE', 'CHANGELOG.md'],
    dependencies: { ...versions, ...pick((name) => !(name in optionalLibraries)) },
    optionalDependencies: pick((name) => name in optionalLibraries),
    bundleDependencies: Object.keys(versions),
    publishConfig: { access: 'public', provenance: true },
  };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest, null, 2) + '\n');
  mkdirSync(join(folder, 'bin'));
  writeFileSync(join(folder, 'bin', 'rookery.mjs'), program('../node_modules/@rookery/ctl/dist/main.js'), {
    mode: 0o755,
  });
  writeFileSync(join(folder, 'bin', 'rookery-homeserver.mjs'), program('../dist/main.js'), { mode: 0o755 });
  for (const file of ['LICENSE', 'CHANGELOG.md']) cpSync(join(root, file), join(folder, file));
  writeFileSync(join(folder, 'README.md'), readme());
  return manifest;
}

/** Says in one line when Node.js is too old for what it would load. */
const program = (main) => `#!/usr/bin/env node
const [major, minor] = process.versions.node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 19)) {
  process.setSourceMapsEnabled(true);
  await import(new URL('${main}', import.meta.url).href);
} else {
  console.error(\`Rookery needs Node.js 22.19 or newer, and this is \${process.versions.node}\`);
  process.exitCode = 1;
}
`;

const readme = () => `# Rookery

A fast Matrix homeserver that hosts typed modules.

\`\`\`
npm install -g @rookery/homeserver
rookery-homeserver --server-name example.org     # writes homeserver.yaml on the first run, then serves
rookery register-user --help
\`\`\`

Needs Node.js 22.19 or newer. SQLite is built in. These come along as optional libraries and may be left out (\`--omit=optional\`):

${Object.entries(optionalLibraries)
  .map(([name, what]) => `- \`${name}\`: ${what}`)
  .join('\n')}
`;
