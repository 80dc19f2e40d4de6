import type { SettingPath } from './kinds.js';
import type { ConfigProblem } from './problem.js';
import type { SettingName } from './table.js';

/** What a {@link Config} is made of. */
export interface ConfigParts {
  readonly values: ReadonlyMap<SettingName, unknown>;
  /** Settings that the files name themselves. */
  readonly given: ReadonlySet<string>;
  /** Folder of the first settings file. */
  readonly configDir: string;
  /** Settings files and folders, as they were given; none for settings from an object. */
  readonly paths: readonly string[];
  /** Warnings met on the way. */
  readonly warnings: readonly ConfigProblem[];
  /** Where a value stands: `homeserver.yaml:12`; the file alone for what is in none; nothing without files. */
  readonly locate: (path: SettingPath) => string | undefined;
}
