import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, extname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Size and time of each file with code, by path. */
type Files = ReadonlyMap<string, string>;

/**
 * The files of each module when it was imported, by URL of its entry. Of the process, like the imported code itself: what was
 * imported once stays the same until the process ends.
 */
const imported = new Map<string, Files>();
const code = new Set(['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.json', '.node', '.wasm']);
const maxFiles = 1_000;

/** Remembers what a module's code looks like, the first time it is imported. @param anew it is imported once more, as it is now */
export function rememberCode(url: string, anew = false): void {
  if (anew || !imported.has(url)) imported.set(url, filesOf(url));
}

/** A file of a module's code that is not as it was when the module was imported; `undefined` while all are. */
export function changedCode(url: string): string | undefined {
  const before = imported.get(url);
  if (!before) return undefined;
  const now = filesOf(url);
  for (const [path, stamp] of before) if (now.get(path) !== stamp) return path;
  for (const path of now.keys()) if (!before.has(path)) return path;
  return undefined;
}

/** All code of the package that the entry belongs to, without the packages it uses; the entry alone where it is no package. */
function filesOf(url: string): Files {
  const entry = fileURLToPath(url);
  const files = new Map<string, string>();
  const note = (path: string): void => {
    const found = statSync(path, { throwIfNoEntry: false });
    files.set(path, found ? `${found.size} ${found.mtimeMs}` : 'gone');
  };
  note(entry);
  const root = packageOf(dirname(entry));
  const pending = root === undefined ? [] : [root];
  for (let folder = pending.pop(); folder !== undefined && files.size < maxFiles; folder = pending.pop()) {
    for (const found of readdirSync(folder, { withFileTypes: true })) {
      if (found.name === 'node_modules' || found.name.startsWith('.')) continue;
      const path = join(folder, found.name);
      if (found.isDirectory()) pending.push(path);
      else if (code.has(extname(found.name)) && files.size < maxFiles) note(path);
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
