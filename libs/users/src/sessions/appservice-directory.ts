import { Injectable } from '@nestjs/common';
import { Port, type RequestOrigin } from '@rookery/platform';
import { accessTokenOf, type TokenCarrier } from './access-token.js';

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

/** Where the application service lib, which lies above this one, tells what it knows. Without it there are none. */
@Injectable()
export class AppserviceDirectory {
  readonly port = new Port<AppserviceSource>('appservices', 'optional');
  /** @param ip whence the request came */
  byToken(token: string, ip: string): AppserviceIdentity | undefined {
    return this.port.given?.byToken(token, ip);
  }
  /** Whether a request carries the token of a service. */
  isSender(request: TokenCarrier & Pick<RequestOrigin, 'ip'>): boolean {
    try {
      const found = accessTokenOf(request);
      return found !== undefined && this.byToken(found.token, request.ip) !== undefined;
    } catch {
      return false;
    }
  }
  byId(id: string): AppserviceIdentity | undefined {
    return this.port.given?.byId(id);
  }
  exclusiveOwner(userId: string): AppserviceIdentity | undefined {
    return this.port.given?.exclusiveOwner(userId);
  }
}
