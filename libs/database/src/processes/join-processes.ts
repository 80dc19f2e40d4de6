import type { PostgresOptions } from '../options.js';
import type { ProcessOptions, ProcessRegistry } from './process-registry.js';

export type { ProcessRegistry, ProcessView } from './process-registry.js';

/**
 * Registers this process beside the others of the server. Needs the migrated schema.
 * @throws DatabaseError when the database cannot be reached, or another process of this name runs
 */
export async function joinProcesses(options: PostgresOptions, own: ProcessOptions): Promise<ProcessRegistry> {
  // The driver stays in memory once it is loaded.
  const { ProcessRegistry } = await import('./process-registry.js');
  return ProcessRegistry.join(options, own);
}
