import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type AccessOptions, type InboundRequest, RequestAuthenticator } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';
import { findDevice } from '../store/device.query.js';
import { AccountValidity } from '../accounts/account-validity.js';
import { assertApproved } from '../accounts/approval.js';
import { assertServerOpen } from '../common/server-gate.js';
import { isLocalUser, qualifyUserId } from '../common/user-names.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { accessTokenOf } from '../sessions/access-token.js';
import { AuthenticationService } from './authentication-service.js';
import type { AppserviceIdentity } from '../ports.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { ClientActivity } from '../sessions/client-activity.js';
import { SessionService, unknownToken } from '../sessions/session.service.js';
import type { TokenOwner } from '../sessions/token.query.js';

/** Whose a token is, whoever has issued it. */
type Owner = Pick<
  TokenOwner,
  'userId' | 'deviceId' | 'isGuest' | 'isAdmin' | 'shadowBanned' | 'suspended' | 'locked' | 'deactivated' | 'approved'
> &
  Partial<Pick<TokenOwner, 'tokenId' | 'puppetedBy' | 'validUntilMs'>>;

const requesterFor = (owner: Owner, request: InboundRequest): Requester => ({
  userId: owner.userId,
  deviceId: owner.deviceId,
  accessTokenId: owner.tokenId,
  isGuest: owner.isGuest,
  isAdmin: owner.isAdmin,
  shadowBanned: owner.shadowBanned,
  suspended: owner.suspended,
  locked: owner.locked,
  puppetedBy: owner.puppetedBy,
  ip: request.ip,
  userAgent: request.userAgent,
  requestId: request.requestId,
});

/** Turns a request's access token into a {@link Requester}. A request of an active session costs no query. */
@Injectable()
export class UserRequestAuthenticator extends RequestAuthenticator {
  // Nine parameters: who may act is asked of sessions, services, validity and participation, in one call on every
  // request.
  constructor(
    private readonly sessions: SessionService,
    private readonly appservices: AppserviceDirectory,
    private readonly validity: AccountValidity,
    private readonly activity: ClientActivity,
    private readonly participation: ParticipationGate,
    private readonly service: AuthenticationService,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
  ) {
    super();
  }

  override get isDelegated(): boolean {
    return this.service.isEnabled;
  }

  override isOfAppservice(request: InboundRequest): boolean {
    return this.appservices.isSender(request);
  }

  async authenticate(request: InboundRequest, access: AccessOptions): Promise<Requester | undefined> {
    if (access.auth === 'none') return undefined;
    const found = accessTokenOf(request);
    if (!found) {
      if (access.auth === 'optional') return undefined;
      throw MatrixError.missingToken();
    }
    const appservice = this.appservices.byToken(found.token, request.ip);
    if (appservice) return this.#asAppservice(request, access, appservice);
    return this.#asUser(request, access, found.token);
  }

  async #asUser(request: InboundRequest, access: AccessOptions, token: string): Promise<Requester> {
    const owner = this.service.isEnabled ? await this.#introspect(token) : await this.sessions.findOwner(token);
    if (!owner || owner.deactivated) throw unknownToken('Unknown access token', false);
    // Administrators keep their ways in: they open the server again.
    if (!owner.isAdmin) assertServerOpen(this.config);
    const nowMs = this.clock.nowMs();
    if (owner.validUntilMs !== undefined && owner.validUntilMs <= nowMs)
      throw unknownToken('The access token has expired', true);
    if (owner.locked && !access.locked) throw MatrixError.userLocked();
    if (owner.puppetedBy === undefined && !access.locked) assertApproved(this.config, owner);
    if (owner.isGuest && !access.guests) throw MatrixError.guestAccessForbidden();
    if (owner.suspended && access.suspended === false) throw MatrixError.userSuspended();
    if (access.admin && !owner.isAdmin) throw MatrixError.notAdmin();
    const requester = requesterFor(owner, request);
    if (!access.expired && (await this.validity.isExpired(owner.userId, { requester })))
      throw MatrixError.accountExpired();
    if (access.active) await this.participation.assertActive(owner);
    if (owner.puppetedBy === undefined || this.config.get('track_puppeted_user_ips'))
      this.activity.seen(owner.userId, owner.deviceId, request.ip, request.userAgent, nowMs);
    return requester;
  }

  /** The same for a token of the authentication service. */
  async #introspect(token: string): Promise<Owner | undefined> {
    const introspected = await this.service.introspect(token);
    if (!introspected) return undefined;
    const { deviceId, isAdmin, localpart } = introspected;
    const account = await this.sessions.findAccount(qualifyUserId(localpart, this.config.serverName));
    if (!account) return undefined;
    if (deviceId !== undefined && !(await findDevice(this.database, account.userId, deviceId))) return undefined;
    return { ...account, deviceId, isAdmin, tokenId: undefined };
  }

  /** @spec application-service-api#identity-assertion */
  async #asAppservice(
    request: InboundRequest,
    access: AccessOptions,
    appservice: AppserviceIdentity,
  ): Promise<Requester> {
    assertServerOpen(this.config);
    const userId = single(request, 'user_id') ?? appservice.senderUserId;
    const deviceId = single(request, 'device_id') ?? single(request, 'org.matrix.msc3202.device_id');
    if (userId !== appservice.senderUserId) {
      if (!isLocalUser(userId, this.config.serverName) || !appservice.covers(userId))
        throw MatrixError.forbidden('The application service may not act as this user');
    }
    const account = await this.sessions.findAccount(userId);
    if (userId !== appservice.senderUserId && (!account || account.deactivated))
      throw MatrixError.forbidden('The application service has not registered this user');
    if (account?.locked && !access.locked) throw MatrixError.userLocked();
    if (account?.suspended && access.suspended === false) throw MatrixError.userSuspended();
    if (access.admin && !account?.isAdmin) throw MatrixError.notAdmin();
    if (deviceId !== undefined && !(await findDevice(this.database, userId, deviceId)))
      throw MatrixError.unknownDevice();
    if (access.active) await this.participation.assertActive({ userId, appserviceId: appservice.id });
    if (this.config.get('track_appservice_user_ips'))
      this.activity.seen(userId, deviceId, request.ip, request.userAgent, this.clock.nowMs());
    return {
      userId,
      deviceId,
      isGuest: false,
      isAdmin: account?.isAdmin ?? false,
      shadowBanned: account?.shadowBanned ?? false,
      suspended: account?.suspended ?? false,
      locked: account?.locked ?? false,
      appserviceId: appservice.id,
      // The service's own user is never limited, only those that it acts as.
      rateLimitExempt: !appservice.rateLimited || userId === appservice.senderUserId,
      ip: request.ip,
      userAgent: request.userAgent,
      requestId: request.requestId,
    };
  }
}

function single(request: InboundRequest, name: string): string | undefined {
  const value = request.query[name];
  if (value === undefined || typeof value === 'string') return value;
  throw MatrixError.invalidParam(`The query parameter '${name}' is repeated`);
}
