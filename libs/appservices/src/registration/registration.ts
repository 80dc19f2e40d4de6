import type { ProxiedPaths } from '@rookery/http';
import { type BlockList, isIP } from 'node:net';
import { liesIn, liesInExclusive, type Namespaces } from './namespaces.js';

/** What a registration file says. */
export interface RegistrationFields {
  readonly id: string;
  /** Base address without a slash at its end; absent for a service that wants no traffic. */
  readonly url: string | undefined;
  /** With which the service makes requests. */
  readonly asToken: string;
  /** With which it is asked. */
  readonly hsToken: string;
  readonly senderUserId: string;
  readonly rateLimited: boolean;
  readonly namespaces: Namespaces;
  /** Third-party protocols that it speaks. */
  readonly protocols: readonly string[];
  /** It wants typing, receipts and presence: under their present names, and under those of MSC2409. */
  readonly ephemeral: { readonly stable: boolean; readonly unstable: boolean };
  /** It wants device lists and key counts (MSC3202). */
  readonly extensions: boolean;
  /** What it may do beyond the usual (MSC4502). */
  readonly scopes: readonly string[];
  /** Paths of this server that it answers, and where (MSC4512); absent for most. */
  readonly proxied: ProxiedPaths | undefined;
  /** Addresses from which its token is taken; absent for all. */
  readonly sources: BlockList | undefined;
}

/** An application service that the server knows. */
export class Registration {
  readonly id: string;
  readonly senderUserId: string;
  readonly rateLimited: boolean;

  constructor(
    readonly fields: RegistrationFields,
    private readonly serverName: string,
  ) {
    this.id = fields.id;
    this.senderUserId = fields.senderUserId;
    this.rateLimited = fields.rateLimited;
  }

  /** Whether a user is its own, or a user of this server in one of its namespaces. */
  covers(userId: string): boolean {
    if (userId === this.senderUserId) return true;
    return this.#isLocal(userId) && liesIn(userId, this.fields.namespaces.users);
  }

  /** Whether it alone may use a user id. */
  owns(userId: string): boolean {
    if (userId === this.senderUserId) return true;
    return this.#isLocal(userId) && liesInExclusive(userId, this.fields.namespaces.users);
  }

  coversAlias(alias: string): boolean {
    return liesIn(alias, this.fields.namespaces.aliases);
  }
  ownsAlias(alias: string): boolean {
    return liesInExclusive(alias, this.fields.namespaces.aliases);
  }
  coversRoom(roomId: string): boolean {
    return liesIn(roomId, this.fields.namespaces.rooms);
  }

  /** Whether its token is taken from an address. */
  accepts(ip: string): boolean {
    const { sources } = this.fields;
    const family = isIP(ip);
    return sources === undefined || (family !== 0 && sources.check(ip, family === 4 ? 'ipv4' : 'ipv6'));
  }

  #isLocal(userId: string): boolean {
    return userId.endsWith(this.serverName) && userId.indexOf(':') === userId.length - this.serverName.length - 1;
  }
}
