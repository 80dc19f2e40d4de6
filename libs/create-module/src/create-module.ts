import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { templateOf } from './template.js';

/** The package cannot be written; the message is the one line that its author reads. */
export class CreateModuleError extends Error {}

const packageName = /^(@[a-z0-9][a-z0-9._-]*\/)?[a-z0-9][a-z0-9._-]{0,63}$/;

/**
 * Writes a typed module with a test that starts a real server, ready to publish.
 * @param place a new or empty folder
 * @param name name of the package; default: the folder's name
 * @returns the files written, relative to the folder
 * @throws CreateModuleError
 */
export function createModule(place: string, name = basename(resolve(place))): string[] {
  const folder = resolve(place);
  if (!packageName.test(name)) {
    throw new CreateModuleError(
      `${name} is no name of a package: use a-z, 0-9, ".", "_" and "-", for example word-filter`,
    );
  }
  if (existsSync(folder) && readdirSync(folder).length > 0) {
    throw new CreateModuleError(`${folder} is not empty`);
  }
  const files = templateOf(name);
  for (const [path, content] of files) {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content, { flag: 'wx' });
  }
  return [...files.keys()];
}
