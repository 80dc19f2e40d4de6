import { createRequire } from 'node:module';
import type { Config } from '@rookery/platform';

/** A package that the server does without unless the settings ask for what it is for. */
export interface OptionalPart {
  readonly name: string;
  /** The version to install, as npm takes it behind `@`. */
  readonly version: string;
  /** Our package that loads it. */
  readonly usedBy: string;
  /** What it is for. */
  readonly purpose: string;
  readonly isWanted: (config: Config) => boolean;
}

/** What npm installs only when it is named; whatever else carries the server brings it along. */
export const optionalParts: readonly OptionalPart[] = [
  {
    ...{ name: 'pg', version: '8', usedBy: '@rookery/database', purpose: 'PostgreSQL (database.name)' },
    isWanted: (config) => !config.get('database.name').startsWith('sqlite'),
  },
  {
    ...{ name: '@redis/client', version: '6', usedBy: '@rookery/replication', purpose: 'Redis (redis.enabled)' },
    isWanted: (config) => config.get('redis.enabled'),
  },
  {
    ...{ name: '@node-saml/node-saml', version: '5', usedBy: '@rookery/sso', purpose: 'SAML (saml2_config)' },
    isWanted: (config) =>
      config.get('saml2_config.enabled') &&
      (config.get('saml2_config.sp_config') ?? config.get('saml2_config.config_path')) !== undefined,
  },
  {
    ...{ name: 'nodemailer', version: '10', usedBy: '@rookery/templates', purpose: 'mail (email)' },
    isWanted: (config) => config.get('email.notif_from') !== undefined,
  },
];

/** The line for an operator about parts that settings ask for and nobody installed; nothing where all are there. */
export function missingParts(
  config: Config,
  isThere: (part: OptionalPart) => boolean = isInstalled,
): string | undefined {
  const missing = optionalParts.filter((part) => part.isWanted(config) && !isThere(part));
  if (missing.length === 0) return undefined;
  const needs = missing.map(({ purpose, name }) => `${purpose} needs the package ${name}`).join(', ');
  const names = missing.map(({ name, version }) => `${name}@${version}`).join(' ');
  return `${needs}: install it beside the server, npm install -g ${names}`;
}

/** The same for a command that came upon such a part; nothing for any other error. */
export function missingPartOf(error: unknown): string | undefined {
  const { code, message = '' } = error as NodeJS.ErrnoException;
  if (code !== 'ERR_MODULE_NOT_FOUND') return undefined;
  const part = optionalParts.find(({ name }) => message.startsWith(`Cannot find package '${name}'`));
  return part && `${part.purpose} needs the package ${part.name}: npm install -g ${part.name}@${part.version}`;
}

/** As the package that uses it would find it. */
function isInstalled({ name, usedBy }: OptionalPart): boolean {
  try {
    createRequire(import.meta.resolve(usedBy)).resolve(name);
    return true;
  } catch (error) {
    // One that can only be imported is there.
    return (error as NodeJS.ErrnoException).code !== 'MODULE_NOT_FOUND';
  }
}
