import type { SettingName } from './table.js';

/** Settings that are understood and checked, but that nothing reads yet. The list may only shrink. */
export const withoutEffect: ReadonlySet<SettingName> = new Set<SettingName>([
  'stream_writers.events',
  'stream_writers.presence',
  'stream_writers.typing',
]);
