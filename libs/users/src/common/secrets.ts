import { createHash } from 'node:crypto';
import type { Ids } from '@rookery/platform';

/** What a secret is for. It is the secret's prefix, so that a leaked one can be recognized by scanners. */
export type SecretKind = 'access' | 'refresh' | 'login' | 'openid' | 'uia' | 'mail' | 'renew';

const prefixes: Readonly<Record<SecretKind, string>> = {
  access: 'rka_',
  refresh: 'rkr_',
  login: 'rkl_',
  openid: 'rko_',
  uia: 'rku_',
  mail: 'rkm_',
  renew: 'rkn_',
};

/** The longest secret that is looked at; longer ones are unknown without hashing megabytes. */
const longestSecret = 1024;

/** A new secret with 192 random bits, safe in URLs. */
export function newSecret(ids: Ids, kind: SecretKind): string {
  return prefixes[kind] + ids.bytes(24).toString('base64url');
}

/**
 * What is stored of a secret and how it is found again. Secrets are long and random, so a plain hash keeps a stolen
 * database from yielding them; looking one up by its hash leaks nothing through timing either.
 */
export function secretHash(secret: string): string {
  return createHash('sha256')
    .update(secret.length > longestSecret ? secret.slice(0, longestSecret + 1) : secret)
    .digest('base64url');
}
