import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Makes an empty folder for what a server of a test stores: below `ROOKERY_TEST_FOLDER` where that is set, such as one in memory.
 * @param prefix its name begins so
 */
export function temporaryFolder(prefix: string): Promise<string> {
  return mkdtemp(join(process.env['ROOKERY_TEST_FOLDER'] ?? tmpdir(), prefix));
}
