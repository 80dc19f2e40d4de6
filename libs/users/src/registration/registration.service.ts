import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { isJsonObject, type JsonObject, localpartOf, MatrixError } from '@rookery/matrix-types';
import type { RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';
import { secretHash } from '../common/secrets.js';
import type { TokenCarrier } from '../sessions/access-token.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { UiaService } from '../uia/uia.service.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { GuestRegistration } from './guest-registration.js';
import { RegistrationAnswers } from './registration-answers.js';
import type { RegistrationBody } from './registration-body.js';
import { RegistrationFlows } from './registration-flows.js';
import { RegistrationPlans } from './registration-plans.js';

/** Registrations of ordinary users over the client API. */
@Injectable()
export class RegistrationService {
  // Ten parameters: who may register, what they prove, what account that becomes and what is answered, with limits between.
  constructor(
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly uia: UiaService,
    private readonly appservices: AppserviceDirectory,
    private readonly guests: GuestRegistration,
    private readonly flows: RegistrationFlows,
    private readonly plans: RegistrationPlans,
    private readonly answers: RegistrationAnswers,
    private readonly limiter: RateLimiter,
    private readonly participation: ParticipationGate,
  ) {}

  /**
   * Makes an ordinary account, once interactive auth is complete. A client that lost the answer may ask again: it gets
   * the same account and device, unless a session of the account has been ended or its password changed since.
   * @throws InteractiveAuthRequired until then
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`, `M_MISSING_PARAM`, `M_WEAK_PASSWORD`...; 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`; 429
   */
  async register(request: RequestOrigin & TokenCarrier, given: RegistrationBody): Promise<JsonObject> {
    this.flows.assertEnabled();
    if (this.appservices.isSender(request))
      throw MatrixError.missingParam("Application services register with type 'm.login.application_service'");
    const { body, outcome } = await this.uia.recall(request, given);
    if (outcome !== undefined) return this.#answer(request, outcome, body);
    try {
      return await this.#register(request, body);
    } catch (error) {
      // A request beside this one may have been faster: what it made is the answer to both.
      const { outcome: made } = await this.uia.recall(request, body);
      if (made === undefined || !MatrixError.is(error)) throw error;
      return this.#answer(request, made, body);
    }
  }

  async #register(request: RequestOrigin, body: RegistrationBody): Promise<JsonObject> {
    // The requests that merely go through the stages cost nothing, so that a full bucket is one registration each.
    if (!(await this.limiter.mayTake('rc_registration', request.ip)))
      await this.limiter.take('rc_registration', request.ip);
    await this.participation.assertRoomForSomebody();
    const guest = await this.guests.upgradedBy(body);
    const username = guest === undefined ? (body.username ?? undefined) : undefined;
    await this.plans.check(username, body);
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
      const plan = await this.plans.of(request, { ...body, username }, proof.results, proof.addresses);
      const userId = await this.accounts.register({
        ...plan,
        ...(guest === undefined ? {} : { localpart: localpartOf(guest), upgradedGuest: guest }),
        registrationToken,
        passwordHash: await this.passwords.hash(body.password!),
        origin: { request },
        inTransaction: async (tx, userId) => {
          if (!(await this.uia.settle(tx, proof, userId)))
            throw MatrixError.authStageFailed('The session has been used');
        },
      });
      return await this.#answer(request, userId, body, proof.sessionId);
    } catch (error) {
      // Full buckets empty again, and the session is as good as before. Any other refusal ends it, so that the token's use
      // does not stay open for those who never come back.
      if (MatrixError.is(error) && error.status !== 429) await this.uia.giveUp(proof);
      throw error;
    }
  }

  #answer(
    request: RequestOrigin,
    userId: string,
    body: RegistrationBody,
    sessionId = sessionOf(body),
  ): Promise<JsonObject> {
    const proof = sessionId === undefined ? undefined : { registrationHash: secretHash(sessionId) };
    return this.answers.for(userId, sameDevice(body, sessionId), request, proof);
  }
}

/** The device of a client that names none follows from its session, so that asking again makes no second one. */
function sameDevice(body: RegistrationBody, sessionId: string | undefined): RegistrationBody {
  if (sessionId === undefined || typeof body.device_id === 'string') return body;
  const digest = createHash('sha256').update(`device of ${sessionId}`).digest();
  return {
    ...body,
    device_id: Array.from(digest.subarray(0, 10), (byte) => String.fromCharCode(65 + (byte % 26))).join(''),
  };
}

const sessionOf = ({ auth }: RegistrationBody): string | undefined =>
  isJsonObject(auth) && typeof auth['session'] === 'string' ? auth['session'] : undefined;
