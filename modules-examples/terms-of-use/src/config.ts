import { ConfigError } from '@rookery/module-api';

/** Something to agree to. */
export interface TermsDocument {
  readonly name: string;
  readonly url: string;
}

export interface TermsConfig {
  /** Another one has everybody asked again. */
  readonly version: string;
  readonly documents: readonly TermsDocument[];
  /** What a client shows where somebody has not agreed yet. */
  readonly message: string;
  /** User ids that need not agree. */
  readonly exempt: ReadonlySet<string>;
}

const names = ['version', 'documents', 'message', 'exempt'];

/** Checks the module's `config`: `version`, `documents`, `message`, `exempt`. @throws ConfigError */
export function parseConfig(raw: unknown): TermsConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with version and documents');
  const {
    version: given,
    documents,
    message = 'Please read and accept the terms of use of this server before you write',
    exempt = [],
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  const version = typeof given === 'number' ? String(given) : given;
  if (typeof version !== 'string' || !/^[\w.-]{1,40}$/.test(version))
    throw new ConfigError('expected a text of letters, digits, - and .', ['version']);
  if (!Array.isArray(documents) || documents.length === 0 || documents.length > 20)
    throw new ConfigError('expected a list of 1 to 20 documents', ['documents']);
  if (typeof message !== 'string') throw new ConfigError('expected a text', ['message']);
  if (!Array.isArray(exempt) || !exempt.every((one) => typeof one === 'string' && /^@[^:]*:./.test(one)))
    throw new ConfigError('expected a list of user ids', ['exempt']);
  return {
    version,
    documents: documents.map((document: unknown, i) => documentAt(document, ['documents', i])),
    message,
    exempt: new Set(exempt as string[]),
  };
}

function documentAt(raw: unknown, path: readonly (string | number)[]): TermsDocument {
  const { name, url } = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>;
  if (typeof name !== 'string' || name === '' || name.length > 200)
    throw new ConfigError('expected a text', [...path, 'name']);
  const address = typeof url === 'string' ? URL.parse(url) : null;
  if (address?.protocol !== 'https:' && address?.protocol !== 'http:')
    throw new ConfigError('expected an http or https address', [...path, 'url']);
  return { name, url: address.href };
}
