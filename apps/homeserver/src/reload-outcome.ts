import { renameSync, writeFileSync } from 'node:fs';
import type { ReloadReport } from './create-homeserver.js';

/** What became of a reload. */
export type ReloadOutcome = { readonly report: ReloadReport } | { readonly problem: string };

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
