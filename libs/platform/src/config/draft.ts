import type { ReadContext } from './kinds.js';
import type { SettingName, SettingValue } from './table.js';

/** Settings being made: read, but old forms, dependent defaults and rules still to come. */
export interface Draft {
  readonly values: Map<SettingName, unknown>;
  /** Names of settings and sections that the files name. */
  readonly given: Set<string>;
  /** Under which old name the files set what they do not name itself, for messages. */
  readonly writtenAs: Map<SettingName, SettingName>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly context: ReadContext;
  readonly baseDir: string;
}

/** The typed value so far. */
export const valueOf = <K extends SettingName>(draft: Draft, name: K): SettingValue<K> =>
  draft.values.get(name) as SettingValue<K>;

/** Sets a value, as if the file had said so; `old` is the name under which it did. */
export function put<K extends SettingName>(draft: Draft, name: K, value: SettingValue<K>, old: SettingName): void {
  if (!draft.given.has(name)) draft.writtenAs.set(name, old);
  draft.values.set(name, value);
  draft.given.add(name);
}
