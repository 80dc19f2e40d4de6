// `npm run build`, after the compiler: the code that every start loads, ours and that of packages, in a few files (ADR 0027), in
// `apps/homeserver/dist/bundle`. What only some settings, requests or modules need stays in files and packages of its own.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';
import { root, serverProgram } from './lib.mjs';

const app = join(root, 'apps', 'homeserver');
const out = join(serverProgram, '..');
const { dependencies, rookery } = JSON.parse(readFileSync(join(app, 'package.json'), 'utf8'));
const { optionalParts } = await import(pathToFileURL(join(app, 'dist', 'optional-parts.js')).href);

/** What the frameworks ask for where they are used in ways in which we do not use them. */
const notOurs = [
  '@fastify/ajv-compiler',
  '@fastify/cors',
  '@fastify/fast-json-stringify-compiler',
  '@fastify/multipart',
  '@fastify/static',
  '@fastify/view',
  '@nestjs/microservices',
  '@nestjs/platform-express',
  '@nestjs/websockets',
  'class-transformer',
  'class-validator',
  'file-type',
  'light-my-request',
  'pino-pretty',
];
/** Loaded from packages of their own: what is native, shared with modules, or needed by few. */
const apart = new Set([...rookery.runtimeDependencies, ...optionalParts.map(({ name }) => name), ...notOurs]);
const packageOf = (id) => id.split('/', id.startsWith('@') ? 2 : 1).join('/');

/** Code of ours with its map, and with the place that it would have in its package: there lie its threads, templates and versions. */
const ownCode = {
  name: 'own-code',
  load: {
    filter: { id: /[/\\](libs|apps)[/\\][^/\\]+[/\\]dist[/\\].*\.js$/ },
    handler(path) {
      const [, folder, ...file] = relative(root, path).replaceAll('\\', '/').split('/');
      const place = `const ownUrl = new URL("./${file.slice(1).join('/')}", import.meta.resolve("@rookery/${folder}")).href;`;
      const code = readFileSync(path, 'utf8');
      const placed = code
        .replaceAll('import.meta.url', 'ownUrl')
        .replaceAll('import.meta.filename', 'process.getBuiltinModule("node:url").fileURLToPath(ownUrl)');
      return {
        // In the first line, so that the map still holds.
        code: placed === code ? code : place + placed,
        map: readFileSync(`${path}.map`, 'utf8'),
      };
    },
  },
};

/** One character beyond ASCII, and the engine keeps two bytes of each. Outside of texts there are none. */
const inAscii = {
  name: 'in-ascii',
  generateBundle(_options, files) {
    for (const file of Object.values(files)) {
      if (file.type !== 'chunk') continue;
      file.code = file.code.replace(
        /[^\x00-\x7f]/g,
        (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
    }
  },
};

rmSync(out, { recursive: true, force: true });
const bundle = await rolldown({
  cwd: root,
  input: join(app, 'dist', 'main.js'),
  platform: 'node',
  external: (id) => apart.has(packageOf(id)),
  plugins: [ownCode, inAscii],
  onLog(_level, { message }) {
    throw new Error(message);
  },
});
const { output } = await bundle.write({
  dir: out,
  format: 'esm',
  chunkFileNames: '[name]-[hash].js',
  // Files run in the order of the language: metadata before the decorators that write it.
  strictExecutionOrder: true,
  // Errors, logs and metrics show names of classes.
  keepNames: true,
  comments: false,
  // Read by `mapStacks` when an error is shown.
  sourcemap: 'hidden',
  sourcemapExcludeSources: true,
});
await bundle.close();

const files = new Set(output.map(({ fileName }) => fileName));
const declared = new Set([...Object.keys(dependencies), ...apart]);
for (const { fileName, imports = [], dynamicImports = [] } of output)
  for (const id of [...imports, ...dynamicImports])
    if (!files.has(id) && !id.startsWith('node:') && !builtinModules.includes(id) && !declared.has(packageOf(id)))
      throw new Error(`${fileName} of the bundle loads ${id}, which is no dependency of the homeserver`);

/** The packages whose code is in the bundle, each with its licence: what is handed on with code must be handed on with these. */
const places = new Set(
  output.flatMap(({ moduleIds = [] }) =>
    moduleIds.flatMap((id) => /^.*[/\\]node_modules[/\\](?:@[^/\\]+[/\\])?[^/\\]+/.exec(id)?.[0] ?? []),
  ),
);
const licences = [...places].map((place) => {
  const { name, version, license } = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8'));
  const file = readdirSync(place).find((entry) => /^(licen[cs]e|copying)/i.test(entry));
  const text = file === undefined ? '' : `\n\n${readFileSync(join(place, file), 'utf8').trim()}`;
  return `${name} ${version} (${license})${text}\n`;
});
writeFileSync(join(out, 'LICENSES.txt'), licences.toSorted().join(`\n${'-'.repeat(80)}\n`));
