import { existsSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The folder of the specification's data, which are not part of the repository: they are looked for in `ROOKERY_SPEC` and beside
 * the checkout. Where there are none, what is held against them is not.
 */
export function specificationFolder(): string | undefined {
  const candidates = [process.env['ROOKERY_SPEC'], join(process.cwd(), '../shared/spec/matrix/data')];
  return candidates.find((folder) => folder !== undefined && existsSync(join(folder, 'api')));
}
