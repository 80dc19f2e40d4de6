import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * A folder in which a module is installed as it comes from a registry: with a package.json that knows `import` only.
 * @returns the folder, to be named as `configDir` and removed in the end
 */
export async function installedModule(name: string, source: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `${name}-`));
  const own = join(folder, 'node_modules', name);
  await mkdir(own, { recursive: true });
  const exports = { '.': { import: './index.js' } };
  await writeFile(join(own, 'package.json'), JSON.stringify({ name, type: 'module', exports }));
  await writeFile(join(own, 'index.js'), source);
  return folder;
}
