import { renameSync, writeFileSync } from 'node:fs';
import type { ReloadReport } from './create-homeserver.js';

/** What became of a reload. */
export type ReloadOutcome =
  | { readonly report: ReloadReport }
  /** `partly`: some of its processes took it over. */
  | { readonly problem: string; readonly partly?: boolean };

/** What became of a reload in several processes, as of one server. */
export function joinedOutcome(outcomes: readonly ReloadOutcome[]): ReloadOutcome {
  const problems = outcomes.flatMap((one) => ('problem' in one ? [one.problem] : []));
  const reports = outcomes.flatMap((one) => ('report' in one ? [one.report] : []));
  if (problems.length > 0) return { problem: [...new Set(problems)].join('; '), partly: reports.length > 0 };
  const all = (of: (report: ReloadReport) => readonly string[]): string[] => [...new Set(reports.flatMap(of))];
  return {
    report: {
      changed: all(({ changed }) => changed),
      modules: {
        added: all(({ modules }) => modules.added),
        changed: all(({ modules }) => modules.changed),
        removed: all(({ modules }) => modules.removed),
      },
      left: all(({ left }) => left),
    },
  };
}

/** Where the server says what became of a reload: beside its pid file, so that whoever finds one finds the other. */
export const reloadOutcomeFile = (pidFile: string): string => `${pidFile}.reload`;

/** Writes down what became of a reload, as a whole. Never throws: the reload is over, whoever reads of it. */
export function writeReloadOutcome(pidFile: string, outcome: ReloadOutcome): void {
  const file = reloadOutcomeFile(pidFile);
  try {
    writeFileSync(`${file}.new`, `${JSON.stringify(outcome)}\n`);
    renameSync(`${file}.new`, file);
  } catch (error) {
    process.stderr.write(`${file} could not be written: ${(error as Error).message}\n`);
  }
}
