import type { Change, Condition, Release } from './register.js';
import { since191 } from './since-1-91.js';
import { standing } from './standing.js';
import { until129 } from './until-1-29.js';
import { until159 } from './until-1-59.js';
import { until190 } from './until-1-90.js';

export type { Change, ChangeKind, Condition, Release } from './register.js';
export { standing };

/** Every release that changes something for somebody, the oldest first; ours come after those of the servers of this family. */
export const releases: readonly Release[] = [...until129, ...until159, ...until190, ...since191];

/** `v1.62.0` as the register calls it: `1.62`. Ours may be written `rookery-0.1.0` or `Rookery 0.1.0`. */
export function releaseName(text: string): string | undefined {
  const own = /^rookery[- ]v?(\d+\.\d+\.\d+)$/i.exec(text)?.[1];
  if (own !== undefined) return `rookery-${own}`;
  const [, major, minor] = /^v?(\d+)\.(\d+)(?:\.\d+)?(?:rc\d+)?$/.exec(text) ?? [];
  return major === undefined || minor === undefined ? undefined : `${Number(major)}.${Number(minor)}`;
}

/** Compares names of releases: below 0 when the first is older. */
export function compareReleases(left: string, right: string): number {
  const key = (name: string): number[] => [
    name.startsWith('rookery-') ? 1 : 0,
    ...name.replace('rookery-', '').split('.').map(Number),
  ];
  const [a, b] = [key(left), key(right)];
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The releases behind one up to another, the oldest first. */
export const releasesBetween = (from: string, to: string): readonly Release[] =>
  releases.filter(({ version }) => compareReleases(version, from) > 0 && compareReleases(version, to) <= 0);

/** A setting as a file says it. */
export interface WrittenSetting {
  readonly value: unknown;
  readonly file: string;
  readonly line: number;
}

/** Looks a setting up by its path with dots; nothing when no file has it. */
export type SettingsLookup = (path: string) => WrittenSetting | undefined;

/** Whether a change concerns a server, and the settings by which one sees it; a change without a condition concerns everybody. */
export function concerns(
  condition: Condition | undefined,
  find: SettingsLookup,
): readonly (WrittenSetting & { readonly setting: string })[] | undefined {
  if (condition === undefined) return [];
  const { settings, when = 'given' } = condition;
  const found = settings.flatMap((setting) => {
    const written = find(setting);
    return written === undefined ? [] : [{ setting, ...written }];
  });
  if (when === 'missing') return found.length === 0 ? [] : undefined;
  const matching = when === 'given' ? found : found.filter(({ value }) => when(value));
  return matching.length > 0 ? matching : undefined;
}

/** A change as text: what, what to do, and how it is here. */
export function textOf({ what, remedy, here }: Change): string {
  return [what, remedy && `To do: ${remedy}`, here && `Here: ${here}`].filter(Boolean).join(' ');
}
