import { ConfigError } from '@rookery/module-api';

export interface ThreepidAuditConfig {
  readonly retentionMs: number;
  /** Domains of email addresses that may be added; `undefined` for all. */
  readonly emailDomains: ReadonlySet<string> | undefined;
}

const dayMs = 86_400_000;

/** Checks the module's `config`: `retention_days`, `email_domains`. @throws ConfigError */
export function parseConfig(raw: unknown = {}): ThreepidAuditConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object');
  const { retention_days: days = 365, email_domains: domains, ...others } = raw as Record<string, unknown>;
  for (const name of Object.keys(others))
    throw new ConfigError('is unknown; there are retention_days, email_domains', [name]);
  if (typeof days !== 'number' || !(days >= 1 && days <= 36_500)) {
    throw new ConfigError('expected a number of days from 1 to 36500', ['retention_days']);
  }
  if (domains === undefined) return { retentionMs: days * dayMs, emailDomains: undefined };
  if (!Array.isArray(domains)) throw new ConfigError('expected a list of domains', ['email_domains']);
  for (const [i, domain] of domains.entries()) {
    if (typeof domain !== 'string' || !/^[\w.-]+$/.test(domain))
      throw new ConfigError('expected a domain', ['email_domains', i]);
  }
  return {
    retentionMs: days * dayMs,
    emailDomains: new Set((domains as string[]).map((domain) => domain.toLowerCase())),
  };
}
