import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type Infer, json, RateLimiter } from '@rookery/http';
import { isJsonObject, type JsonObject, localpartOf, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { assertServerOpen } from '../common/server-gate.js';
import { accessTokenOf, type TokenCarrier } from '../sessions/access-token.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import type { DeviceRequest } from '../login/login.service.js';
import { LoginService } from '../login/login.service.js';
import { SessionService, unknownToken } from '../sessions/session.service.js';
import { checkAllowedThreepid } from '../threepids/threepid-rules.js';
import { authField } from '../uia/auth-field.js';
import { provedAddress } from '../uia/stages.js';
import { type UiaProof, UiaService } from '../uia/uia.service.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { RegistrationFlows } from './registration-flows.js';
import { abandonUse } from '../store/registration-token.query.js';
import { qualifyUserId } from '../common/user-names.js';
import { assertApproved } from '../accounts/approval.js';
import { AccountService, type Registration } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';

const text = json.nullable(json.string());
const flag = json.nullable(json.boolean());

/** The body of a registration, but for what proves who registers. */
export const registrationSchema = json.object({
  auth: authField,
  type: json.optional('`m.login.application_service` from an application service.', json.string()),
  username: json.optional('The localpart of the new user id; it is drawn unless given.', text),
  password: json.optional('The password.', text),
  device_id: json.optional(
    'The id of the device; it is drawn unless given.',
    json.nullable(json.string({ maxLength: 255 })),
  ),
  initial_device_display_name: json.optional('What the device is called.', text),
  inhibit_login: json.optional('Whether no device is signed in.', flag),
  refresh_token: json.optional('Whether the client can refresh access tokens that end.', flag),
  guest_access_token: json.optional('The access token of a guest who becomes this user.', text),
});
export type RegistrationBody = Infer<typeof registrationSchema> & JsonObject;

/** Registrations over the client API. */
@Injectable()
export class RegistrationService {
  // Twelve parameters: guests, application services and everybody else end in the same answer, by different proofs.
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly logins: LoginService,
    private readonly sessions: SessionService,
    private readonly uia: UiaService,
    private readonly appservices: AppserviceDirectory,
    private readonly modules: AccountModules,
    private readonly flows: RegistrationFlows,
    private readonly limiter: RateLimiter,
    private readonly participation: ParticipationGate,
  ) {}

  /**
   * Whether a name may be registered.
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`; 403 `M_FORBIDDEN`; 429
   */
  async checkAvailable(username: string, request: RequestOrigin): Promise<void> {
    this.flows.assertEnabled();
    if (this.config.get('inhibit_user_in_use_error')) {
      await this.accounts.checkAvailable(username, undefined, { tellInUse: false });
      return;
    }
    await this.limiter.take('rc_registration', request.ip);
    await this.accounts.checkAvailable(username);
  }

  /**
   * Makes a guest account. Guests get what they ask for least: everything but the device's name is ignored.
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`; 429
   */
  async registerGuest(request: RequestOrigin, body: RegistrationBody): Promise<JsonObject> {
    assertServerOpen(this.config);
    if (!this.config.get('allow_guest_access')) throw MatrixError.forbidden('Guests are not allowed on this server');
    await this.limiter.take('rc_registration', request.ip);
    await this.participation.assertRoomFor({});
    const shadowBanned = await this.modules.checkRegistration(
      {
        email: undefined,
        username: undefined,
        requests: [{ ip: request.ip, userAgent: request.userAgent }],
        authProviderId: undefined,
      },
      { request },
    );
    const userId = await this.accounts.register({ isGuest: true, shadowBanned, origin: { request } });
    const session = await this.sessions.open({
      userId,
      isGuest: true,
      initialDisplayName: body.initial_device_display_name ?? undefined,
    });
    return this.logins.response(session);
  }

  /**
   * Makes an account for an application service.
   * @spec application-service-api#server-admin-style-permissions
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_USERNAME`, `M_EXCLUSIVE`, `M_USER_IN_USE`; 401
   */
  async registerByAppservice(request: RequestOrigin & TokenCarrier, body: RegistrationBody): Promise<JsonObject> {
    const found = accessTokenOf(request);
    if (!found) throw MatrixError.missingToken('The token of an application service is required');
    const appservice = this.appservices.byToken(found.token, request.ip);
    if (!appservice) throw unknownToken('Not the token of an application service', false);
    if (this.config.get('matrix_authentication_service.enabled') && body.inhibit_login !== true) {
      throw MatrixError.appserviceLoginUnsupported();
    }
    if (typeof body.username !== 'string') throw MatrixError.missingParam("Missing parameter 'username'");
    const localpart = await this.accounts.checkAvailable(body.username, appservice.id);
    if (!appservice.covers(qualifyUserId(localpart, this.config.serverName)))
      throw MatrixError.exclusive('The user name lies outside the namespaces of the application service');
    const userId = await this.accounts.register({ localpart, appserviceId: appservice.id, origin: { request } });
    return this.#answer(userId, body, request);
  }

  /**
   * Makes an ordinary account, once interactive auth is complete. A client that lost the answer may ask again: it gets
   * the same account and device.
   * @throws InteractiveAuthRequired until then
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`, `M_MISSING_PARAM`, `M_WEAK_PASSWORD`...; 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`; 429
   */
  async register(request: RequestOrigin & TokenCarrier, given: RegistrationBody): Promise<JsonObject> {
    this.flows.assertEnabled();
    if (this.appservices.isSender(request))
      throw MatrixError.missingParam("Application services register with type 'm.login.application_service'");
    const { body, outcome } = await this.uia.recall(request, given);
    if (outcome !== undefined) return this.#answer(outcome, sameDevice(body), request);
    try {
      return await this.#register(request, body);
    } catch (error) {
      // A request beside this one may have been faster: what it made is the answer to both.
      const { outcome: made } = await this.uia.recall(request, body);
      if (made === undefined || !MatrixError.is(error)) throw error;
      return this.#answer(made, sameDevice(body), request);
    }
  }

  async #register(request: RequestOrigin, body: RegistrationBody): Promise<JsonObject> {
    // The requests that merely go through the stages cost nothing, so that a full bucket is one registration each.
    if (!(await this.limiter.mayTake('rc_registration', request.ip)))
      await this.limiter.take('rc_registration', request.ip);
    await this.participation.assertRoomForSomebody();
    const guest = await this.#guestOf(body);
    const username = guest === undefined ? (body.username ?? undefined) : undefined;
    const password = body.password ?? undefined;
    // Told before anybody goes through the stages in vain.
    if (username !== undefined)
      await this.accounts.checkAvailable(username, undefined, {
        tellInUse: !this.config.get('inhibit_user_in_use_error'),
      });
    if (password !== undefined) this.passwords.assertAcceptable(password);
    else if (body['auth'] !== undefined && body['auth'] !== null)
      throw MatrixError.missingParam("Missing parameter 'password'");
    const proof = await this.uia.prove({
      request,
      body,
      flows: this.flows.list(),
      description: 'create an account',
      mayChange: true,
    });
    const registrationToken = proof.results['m.login.registration_token'] as string | undefined;
    try {
      await this.limiter.take('rc_registration', request.ip);
      const plan = await this.#plan(request, { ...body, username }, proof.results, proof.addresses);
      const userId = await this.accounts.register({
        ...plan,
        ...(guest === undefined ? {} : { localpart: localpartOf(guest), upgradedGuest: guest }),
        registrationToken,
        passwordHash: await this.passwords.hash(password!),
        origin: { request },
        inTransaction: async (tx, userId) => {
          if (!(await this.uia.settle(tx, proof, userId)))
            throw MatrixError.authStageFailed('The session has been used');
        },
      });
      return await this.#answer(userId, sameDevice(body, proof.sessionId), request);
    } catch (error) {
      // Full buckets empty again, and the session is as good as before. Any other refusal ends it, so that the token's use
      // does not stay open for those who never come back.
      if (MatrixError.is(error) && error.status !== 429) await this.#giveUp(proof, registrationToken);
      throw error;
    }
  }

  async #giveUp(proof: UiaProof, registrationToken: string | undefined): Promise<void> {
    await this.database.write(
      async (tx) => {
        if ((await this.uia.settle(tx, proof, '')) && registrationToken !== undefined)
          await abandonUse(tx, registrationToken);
      },
      { name: 'registration_abandon' },
    );
  }

  /**
   * The guest who registers to become an ordinary user of the same name.
   * @throws MatrixError 403 `M_FORBIDDEN` where the token is no guest's, or the name another one's
   */
  async #guestOf({ guest_access_token: token, username }: RegistrationBody): Promise<string | undefined> {
    if (token === undefined || token === null) return undefined;
    const owner = await this.sessions.findOwner(token);
    if (!owner?.isGuest || (username !== undefined && username !== null && username !== localpartOf(owner.userId)))
      throw MatrixError.forbidden('This is not the token of a guest with that name');
    return owner.userId;
  }

  async #plan(
    request: RequestOrigin,
    body: RegistrationBody,
    results: JsonObject,
    addresses: readonly { ip: string; userAgent: string }[],
  ): Promise<Omit<Registration, 'origin'>> {
    const origin = { request };
    const email = provedAddress(results['m.login.email.identity']);
    const phone = provedAddress(results['m.login.msisdn']);
    const threepids = [email, phone].filter((one) => one !== undefined);
    await this.participation.assertRoomFor({ threepids });
    for (const { medium, address } of threepids) {
      checkAllowedThreepid(this.config, medium, address);
      await this.modules.checkThreepid(medium, address, true, origin);
    }
    const username =
      (await this.modules.usernameForRegistration(results, withoutSecrets(body), origin)) ?? body.username ?? undefined;
    const localpart = username === undefined ? undefined : await this.accounts.checkAvailable(username);
    const displayName = await this.modules.displayNameForRegistration(results, withoutSecrets(body), origin);
    const shadowBanned = await this.modules.checkRegistration(
      {
        email: email && { medium: 'email', address: email.address },
        username: localpart,
        requests: addresses,
        authProviderId: undefined,
      },
      origin,
    );
    return {
      localpart,
      displayName,
      shadowBanned,
      consentVersion: results['m.login.terms'] === undefined ? undefined : this.config.get('user_consent.version'),
      threepids: threepids.map(({ medium, address, validated_at: validatedMs }) => ({ medium, address, validatedMs })),
    };
  }

  async #answer(userId: string, body: RegistrationBody, request: RequestOrigin): Promise<JsonObject> {
    if (body.inhibit_login) return { user_id: userId, home_server: this.config.serverName };
    const account = await this.accounts.find(userId);
    if (account) assertApproved(this.config, account);
    const device: DeviceRequest = {
      deviceId: body.device_id ?? undefined,
      initialDisplayName: body.initial_device_display_name ?? undefined,
      refreshable: body.refresh_token ?? false,
    };
    const session = await this.sessions.open({ userId, ...device });
    await this.modules.loggedIn(userId, undefined, undefined, { request });
    return this.logins.response(session);
  }
}

/** The device of a client that names none follows from its session, so that asking again makes no second one. */
function sameDevice(body: RegistrationBody, sessionId = sessionOf(body)): RegistrationBody {
  if (sessionId === undefined || typeof body.device_id === 'string') return body;
  const digest = createHash('sha256').update(`device of ${sessionId}`).digest();
  return {
    ...body,
    device_id: Array.from(digest.subarray(0, 10), (byte) => String.fromCharCode(65 + (byte % 26))).join(''),
  };
}

const sessionOf = ({ auth }: RegistrationBody): string | undefined =>
  isJsonObject(auth) && typeof auth['session'] === 'string' ? auth['session'] : undefined;

/** What modules see of the body: no password, no proof. */
function withoutSecrets(body: RegistrationBody): JsonObject {
  const { password: _password, auth: _auth, guest_access_token: _token, ...rest } = body;
  return rest;
}
