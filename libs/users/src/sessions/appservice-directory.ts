import { Injectable } from '@nestjs/common';
import type { RequestOrigin } from '@rookery/platform';
import { type AppserviceIdentity, UserPorts } from '../ports.js';
import { accessTokenOf, type TokenCarrier } from './access-token.js';

/** The application services that the server knows. */
@Injectable()
export class AppserviceDirectory {
  constructor(private readonly ports: UserPorts) {}

  /** @param ip whence the request came */
  byToken(token: string, ip: string): AppserviceIdentity | undefined {
    return this.ports.appservices.given?.byToken(token, ip);
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
    return this.ports.appservices.given?.byId(id);
  }
  exclusiveOwner(userId: string): AppserviceIdentity | undefined {
    return this.ports.appservices.given?.exclusiveOwner(userId);
  }
}
