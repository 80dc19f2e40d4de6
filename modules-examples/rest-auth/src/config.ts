import { ConfigError } from '@rookery/module-api';

export interface RestAuthConfig {
  readonly url: string;
  readonly token: string | undefined;
  /** Whether an account is made for a user whom the service knows and this server does not. */
  readonly createAccounts: boolean;
  readonly timeoutMs: number;
}

/** Checks the module's `config`: `url`, `token`, `create_accounts`, `timeout_ms`. @throws ConfigError */
export function parseConfig(raw: unknown): RestAuthConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with url');
  const {
    url,
    token,
    create_accounts: createAccounts = false,
    timeout_ms: timeoutMs = 5000,
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) {
    throw new ConfigError('is unknown; there are url, token, create_accounts, timeout_ms', [name]);
  }
  // Passwords travel there: without encryption only inside this machine.
  const { protocol, hostname } = (typeof url === 'string' && URL.parse(url)) || { protocol: '', hostname: '' };
  const local = hostname === 'localhost' || hostname === '127.0.0.1' || hostname === '[::1]';
  if (protocol !== 'https:' && !(protocol === 'http:' && local)) {
    throw new ConfigError('expected an https URL, or http on this machine', ['url']);
  }
  if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token))) {
    throw new ConfigError('expected a text without spaces', ['token']);
  }
  if (typeof createAccounts !== 'boolean') throw new ConfigError('expected true or false', ['create_accounts']);
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 100 && timeoutMs <= 15_000)) {
    throw new ConfigError('expected a number of milliseconds from 100 to 15000', ['timeout_ms']);
  }
  return { url: url as string, token, createAccounts, timeoutMs };
}
