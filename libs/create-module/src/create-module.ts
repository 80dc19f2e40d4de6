import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Sources, type Style, templateOf } from './template.js';

/** The package cannot be written; the message is the one line that its author reads. */
export class CreateModuleError extends Error {}

/** The module API that new modules are written against. */
const published: Sources = { api: '^0.1.0', testing: '^0.1.0', nest: '^0.1.0' };
/** What a new repository holds before anything is written. */
const harmless = new Set(['.git']);
const packageName = /^(@[a-z0-9][a-z0-9._-]*\/)?[a-z0-9][a-z0-9._-]{0,63}$/;

/**
 * Writes a typed module with a test that starts a real server, ready to publish.
 * @param place a new or empty folder
 * @param name name of the package; default: the folder's name
 * @param style `nest`: as a Nest module, by `@rookery/nest`
 * @returns the files written, relative to the folder
 * @throws CreateModuleError
 */
export function createModule(place: string, name = basename(resolve(place)), style: Style = 'plain'): string[] {
  const folder = resolve(place);
  if (!packageName.test(name)) {
    throw new CreateModuleError(
      `${name} is no name of a package: use a-z, 0-9, ".", "_" and "-", for example word-filter`,
    );
  }
  try {
    if (existsSync(folder) && readdirSync(folder).some((found) => !harmless.has(found))) {
      throw new CreateModuleError(`${folder} is not empty`);
    }
    const files = templateOf(name, sourcesFor(folder), style);
    for (const [path, content] of files) {
      const file = join(folder, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content, { flag: 'wx' });
    }
    return [...files.keys()];
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    throw new CreateModuleError(`${folder} cannot be written: ${code === 'ENOTDIR' ? 'it is no folder' : code}`);
  }
}

/** The checkout that this program is part of; `undefined` where it was installed as a package. */
export function checkout(): string | undefined {
  const root = fileURLToPath(new URL('../../../', import.meta.url));
  return existsSync(join(root, 'libs/testing/package.json')) ? root : undefined;
}

/** A module that a checkout wrote is tried against what lies there, whether or not that is published. */
function sourcesFor(folder: string): Sources {
  const root = checkout();
  if (root === undefined) return published;
  const linked = (lib: string): string =>
    `file:${relative(folder, join(root, 'libs', lib))
      .split(sep)
      .join('/')}`;
  return { api: linked('module-api'), testing: linked('testing'), nest: linked('nest') };
}
