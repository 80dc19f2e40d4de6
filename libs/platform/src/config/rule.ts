import type { SettingName, SettingValue } from './table.js';

/** What a rule looks at. */
export interface RuleView {
  get<K extends SettingName>(name: K): SettingValue<K>;
  /** Whether the files name a setting, or any setting of a section. */
  given(name: string): boolean;
}

/** A condition over several settings. */
export interface Rule {
  /** What it looks at. The message is placed at the first one that the files name. Skipped when one of them is unreadable. */
  readonly about: readonly [SettingName, ...SettingName[]];
  /** What is wrong, if anything. */
  check(view: RuleView): string | undefined;
}
