import type { Config } from '@rookery/platform';
import type { Terminal } from '../../terminal.js';

/** What a check found. */
export interface Finding {
  readonly level: 'ok' | 'warning' | 'error';
  /** What is wrong, or right, in a line. */
  readonly text: string;
  /** What to do. */
  readonly remedy?: string;
}

/** One thing that is looked at. */
export interface Check {
  readonly name: string;
  /** Asks other machines. */
  readonly isRemote?: boolean;
  run(config: Config, files: readonly string[]): Promise<readonly Finding[]>;
}

export const ok = (text: string): Finding => ({ level: 'ok', text });
export const warning = (text: string, remedy?: string): Finding => ({
  level: 'warning',
  text,
  ...(remedy !== undefined && { remedy }),
});
export const error = (text: string, remedy?: string): Finding => ({
  level: 'error',
  text,
  ...(remedy !== undefined && { remedy }),
});

/** Shows findings, a line each and what to do below it. */
export function showFindings(name: string, findings: readonly Finding[], terminal: Terminal): void {
  const marks = { ok: 'ok     ', warning: 'warning', error: 'WRONG  ' };
  for (const { level, text, remedy } of findings) {
    terminal.out(`${marks[level]} ${name}: ${text}`);
    if (remedy !== undefined) terminal.out(`        ${remedy}`);
  }
}
