import { ConfigError } from '@rookery/module-api';

export interface AccountValidityConfig {
  readonly periodMs: number;
  /** How long before its end an account's user gets a mail. */
  readonly renewBeforeMs: number;
  readonly subject: string;
}

const dayMs = 86_400_000;

/** Checks the module's `config`: `period_days`, `renew_days_before`, `subject`. @throws ConfigError */
export function parseConfig(raw: unknown): AccountValidityConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with period_days');
  const {
    period_days: period,
    renew_days_before: before = 7,
    subject = 'Renew your account',
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) {
    throw new ConfigError('is unknown; there are period_days, renew_days_before, subject', [name]);
  }
  if (typeof period !== 'number' || !(period >= 1 && period <= 36_500)) {
    throw new ConfigError('expected a number of days from 1 to 36500', ['period_days']);
  }
  if (typeof before !== 'number' || !(before > 0 && before < period)) {
    throw new ConfigError('expected a number of days, less than period_days', ['renew_days_before']);
  }
  if (typeof subject !== 'string' || /[\r\n]/.test(subject))
    throw new ConfigError('expected one line of text', ['subject']);
  return { periodMs: period * dayMs, renewBeforeMs: before * dayMs, subject };
}
