import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type InferQuery,
  JsonBody,
  param,
  Query,
  queryOf,
  stable,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { RegistrationFlows } from '../registration/registration-flows.js';
import { AppserviceRegistration } from '../registration/appservice-registration.js';
import { GuestRegistration } from '../registration/guest-registration.js';
import { type RegistrationBody, registrationSchema } from '../registration/registration-body.js';
import { RegistrationService } from '../registration/registration.service.js';

const registerQuery = queryOf({
  kind: param.choice('What sort of account to make.', ['guest', 'user']),
});

const availableQuery = queryOf({
  username: param.string('The local part that somebody would like to have.', { required: true }),
});

const tokenValidityQuery = queryOf({
  token: param.string('The registration token.', { required: true }),
});

@Controller()
export class RegistrationController {
  constructor(
    private readonly registrations: RegistrationService,
    private readonly guests: GuestRegistration,
    private readonly appservices: AppserviceRegistration,
    private readonly registrationFlows: RegistrationFlows,
  ) {}

  /** GET /_matrix/client/v3/register: the flows of a registration */
  @Get(stable('/register'))
  @Access({ ownAuth: true, auth: 'none' })
  flows(): object {
    this.registrationFlows.assertEnabled();
    return { flows: this.registrationFlows.list().map((stages) => ({ stages })) };
  }

  /** POST /_matrix/client/v3/register */
  @Post(stable('/register'))
  @Access({ ownAuth: 'users', auth: 'none', limiter: 'rc_registration' })
  register(
    @Inbound() request: InboundRequest,
    @Query(registerQuery) query: InferQuery<typeof registerQuery>,
    @JsonBody(registrationSchema, { optional: true }) body: RegistrationBody,
  ): Promise<object> {
    if (query.kind === 'guest') return this.guests.register(request, body);
    // The old property is refused rather than ignored: ignored, it would make an account with another name.
    if (body['user'] !== undefined) throw MatrixError.invalidParam("Send 'username' instead of 'user'");
    if (body.type === 'm.login.application_service') return this.appservices.register(request, body);
    return this.registrations.register(request, body);
  }

  /** GET /_matrix/client/v3/register/available */
  @Get(stable('/register/available'))
  @Access({ ownAuth: true, auth: 'none' })
  async available(
    @Inbound() request: InboundRequest,
    @Query(availableQuery) query: InferQuery<typeof availableQuery>,
  ): Promise<object> {
    await this.registrationFlows.checkAvailable(query.username, request);
    return { available: true };
  }

  /** GET /_matrix/client/v1/register/m.login.registration_token/validity */
  @Get([
    ...client(['v1'], '/register/m.login.registration_token/validity'),
    ...client(['unstable'], '/org.matrix.msc3231/register/org.matrix.msc3231.login.registration_token/validity'),
  ])
  @Access({ ownAuth: true, auth: 'none' })
  async tokenValidity(
    @Inbound() request: InboundRequest,
    @Query(tokenValidityQuery) query: InferQuery<typeof tokenValidityQuery>,
  ): Promise<object> {
    return { valid: await this.registrationFlows.tokenIsValid(query.token, request) };
  }
}
