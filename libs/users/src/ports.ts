import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Port } from '@rookery/platform';
import type { Profile } from './common/profile.js';

/** Fetches the profile of another server's user; `undefined` when that server has none or cannot be asked. */
export type RemoteProfileSource = (userId: string, field: string | undefined) => Promise<Profile | undefined>;

/** What this lib needs to know of an application service. */
export interface AppserviceIdentity {
  readonly id: string;
  /** The user it acts as when it names nobody. */
  readonly senderUserId: string;
  /** Whether the limits of the client API hold for it. */
  readonly rateLimited: boolean;
  /** Whether a user id lies in one of its namespaces (or is its own user). */
  covers(userId: string): boolean;
}

/** The application services that the server knows. */
export interface AppserviceSource {
  /** @param ip whence the request came: a service may say from where its token is taken */
  byToken(token: string, ip: string): AppserviceIdentity | undefined;
  byId(id: string): AppserviceIdentity | undefined;
  /** The service that alone may use a user id. */
  exclusiveOwner(userId: string): AppserviceIdentity | undefined;
}

/** Asks one other server about its users, all of them; rejects when it cannot be asked. */
export type RemoteStatusSource = (server: string, userIds: readonly string[]) => Promise<JsonObject>;

/** Whether a user can confirm an operation by single sign-on; told by the lib that does that. */
export type SsoCapability = (userId: string) => Promise<boolean>;

/** What a client is told beside a session that began with a login token; `undefined` for nothing more. */
export type LoginTokenFields = (token: string) => Promise<JsonObject | undefined>;

/** What this lib needs of those above it. */
@Injectable()
export class UserPorts {
  /** Without federation, users of other servers have no profiles. */
  readonly remoteProfiles = new Port<RemoteProfileSource>('remote_profiles', 'required');
  /** Empty where there are no application services. */
  readonly appservices = new Port<AppserviceSource>('appservices', 'optional');
  readonly loginTokenFields = new Port<LoginTokenFields>('login_token_fields', 'required');
  readonly singleSignOn = new Port<SsoCapability>('single_sign_on', 'required');
  readonly remoteAccountStatuses = new Port<RemoteStatusSource>('remote_account_statuses', 'optional');
}
