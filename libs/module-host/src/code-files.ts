import { existsSync, readdirSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Size and time of each file with code, by path. */
export type Code = ReadonlyMap<string, string>;

/** Code of a package, or of a lone file, as this process has imported it last. */
interface Imported {
  code: Code;
  /** How often it was imported anew. */
  generation: number;
}

/** By folder of the package, or by file. Of the process, like the imported code itself. */
const imported = new Map<string, Imported>();
const endings = new Set(['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.json', '.node', '.wasm']);
const maxFiles = 1_000;
const mark = 'rookery-code';

/**
 * The URL to import a module's entry by. Code is imported once by its URL; where a file of it is not as it was then, it is imported anew
 * by another one, and what it imports of its own package with it. The code of before stays in memory.
 */
export function urlOfCode(url: string): string {
  const root = rootOf(url);
  const known = imported.get(root);
  const code = codeOf(url);
  if (!known) {
    imported.set(root, { code, generation: 0 });
    return url;
  }
  if (changedFile(known.code, code) !== undefined) {
    known.code = code;
    known.generation += 1;
    forgetRequired(root);
  }
  return known.generation === 0 ? url : `${url}?${mark}=${known.generation}`;
}

/** The URL of something that a module's code imports: of its own package, what belongs to the same import of it. */
export function urlInCode(url: string, importer: string | undefined): string {
  const generation = importer === undefined ? undefined : /\?rookery-code=(\d+)$/.exec(importer)?.[1];
  if (generation === undefined || !url.startsWith('file:') || url.includes('?')) return url;
  const root = rootOf(importer!.slice(0, importer!.indexOf('?')));
  const path = fileURLToPath(url);
  return isInPackage(path, root) ? `${url}?${mark}=${generation}` : url;
}

/** A line of a stack without what {@link urlOfCode} adds to URLs. */
export const withoutMark = (line: string): string => line.replace(/\?rookery-code=\d+/g, '');

/** What CommonJS has loaded knows no URLs. */
function forgetRequired(root: string): void {
  const { cache } = createRequire(import.meta.url);
  for (const path of Object.keys(cache)) if (path === root || isInPackage(path, root)) delete cache[path];
}

/** A file of a module's code that is not as it was; `undefined` while all are. */
export function changedFile(before: Code, now: Code): string | undefined {
  for (const [path, stamp] of before) if (now.get(path) !== stamp) return path;
  for (const path of now.keys()) if (!before.has(path)) return path;
  return undefined;
}

/** Whether a file is one of a package, and not of one that it uses. */
const isInPackage = (path: string, root: string): boolean =>
  path.startsWith(root + sep) && !path.slice(root.length).includes(`${sep}node_modules${sep}`);

/** Folder of the package that an entry belongs to; the entry itself where it is a lone file. */
export function rootOf(url: string): string {
  const entry = fileURLToPath(url);
  return packageOf(dirname(entry)) ?? entry;
}

/** All code of the package that the entry belongs to, without the packages it uses; the entry alone where it is no package. */
export function codeOf(url: string): Code {
  const entry = fileURLToPath(url);
  const files = new Map<string, string>();
  const note = (path: string): void => {
    const found = statSync(path, { throwIfNoEntry: false });
    // A copy has the time of what it was made from, but for what is less than a microsecond.
    files.set(path, found ? `${found.size} ${Math.floor(found.mtimeMs)}` : 'gone');
  };
  note(entry);
  const root = packageOf(dirname(entry));
  const pending = root === undefined ? [] : [root];
  for (let folder = pending.pop(); folder !== undefined && files.size < maxFiles; folder = pending.pop()) {
    for (const found of readdirSync(folder, { withFileTypes: true })) {
      if (found.name === 'node_modules' || found.name.startsWith('.')) continue;
      const path = join(folder, found.name);
      if (found.isDirectory()) pending.push(path);
      else if (endings.has(extname(found.name)) && files.size < maxFiles) note(path);
    }
  }
  return files;
}

/** The nearest folder with a package.json that stands for the entry: not one that the settings or the server lie in, too. */
function packageOf(folder: string): string | undefined {
  for (let at = folder, up = dirname(at); at !== up; at = up, up = dirname(at)) {
    if (existsSync(join(at, 'homeserver.yaml')) || import.meta.filename.startsWith(at + sep)) return undefined;
    if (existsSync(join(at, 'package.json'))) return at;
    if (existsSync(join(at, 'node_modules'))) return undefined;
  }
  return undefined;
}
