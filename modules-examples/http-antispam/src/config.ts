import { ConfigError } from '@rookery/module-api';

/** What the service may be asked about. */
export const subjects = ['event', 'invite', 'join', 'registration', 'login'] as const;
export type Subject = (typeof subjects)[number];

export interface HttpAntispamConfig {
  readonly url: string;
  /** Sent as a bearer token. */
  readonly token: string | undefined;
  readonly ask: ReadonlySet<Subject>;
  /** What becomes of a request when the service does not answer. */
  readonly onFailure: 'allow' | 'deny';
  readonly timeoutMs: number;
}

/** Checks the module's `config`: `url`, `token`, `ask`, `on_failure`, `timeout_ms`. @throws ConfigError */
export function parseConfig(raw: unknown): HttpAntispamConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with url');
  const {
    url,
    token,
    ask = ['event'],
    on_failure: onFailure,
    timeout_ms: timeoutMs = 3000,
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) {
    throw new ConfigError('is unknown; there are url, token, ask, on_failure, timeout_ms', [name]);
  }
  if (typeof url !== 'string' || !/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new ConfigError('expected an http or https URL', ['url']);
  }
  if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token))) {
    throw new ConfigError('expected a text without spaces', ['token']);
  }
  if (!Array.isArray(ask)) throw new ConfigError(`expected a list of ${subjects.join(', ')}`, ['ask']);
  for (const [i, subject] of ask.entries()) {
    if (!subjects.includes(subject as Subject))
      throw new ConfigError(`expected one of ${subjects.join(', ')}`, ['ask', i]);
  }
  // No default: whether spam or silence is worse is the operator's to say.
  if (onFailure !== 'allow' && onFailure !== 'deny') throw new ConfigError('expected allow or deny', ['on_failure']);
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 100 && timeoutMs <= 4000)) {
    throw new ConfigError('expected a number of milliseconds from 100 to 4000', ['timeout_ms']);
  }
  return { url, token, ask: new Set(ask as Subject[]), onFailure, timeoutMs };
}
