import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  JsonBody,
  queryChoice,
  requiredQueryString,
  stable,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { RegistrationFlows } from '../registration/registration-flows.js';
import {
  type RegistrationBody,
  registrationSchema,
  RegistrationService,
} from '../registration/registration.service.js';

@Controller()
export class RegistrationController {
  constructor(
    private readonly registrations: RegistrationService,
    private readonly registrationFlows: RegistrationFlows,
  ) {}

  /** GET /_matrix/client/v3/register: the flows of a registration */
  @Get(stable('/register'))
  @Access({ auth: 'none' })
  flows(): object {
    this.registrationFlows.assertEnabled();
    return { flows: this.registrationFlows.list().map((stages) => ({ stages })) };
  }

  /** POST /_matrix/client/v3/register */
  @Post(stable('/register'))
  @Access({ auth: 'none', limiter: 'rc_registration' })
  register(
    @Inbound() request: InboundRequest,
    @JsonBody(registrationSchema, { optional: true }) body: RegistrationBody,
  ): Promise<object> {
    if (queryChoice(request, 'kind', ['guest', 'user']) === 'guest')
      return this.registrations.registerGuest(request, body);
    // The old property is refused rather than ignored: ignored, it would make an account with another name.
    if (body['user'] !== undefined) throw MatrixError.invalidParam("Send 'username' instead of 'user'");
    if (body.type === 'm.login.application_service') return this.registrations.registerByAppservice(request, body);
    return this.registrations.register(request, body);
  }

  /** GET /_matrix/client/v3/register/available */
  @Get(stable('/register/available'))
  @Access({ auth: 'none' })
  async available(@Inbound() request: InboundRequest): Promise<object> {
    await this.registrations.checkAvailable(requiredQueryString(request, 'username'), request);
    return { available: true };
  }

  /** GET /_matrix/client/v1/register/m.login.registration_token/validity */
  @Get([
    ...client(['v1'], '/register/m.login.registration_token/validity'),
    ...client(['unstable'], '/org.matrix.msc3231/register/org.matrix.msc3231.login.registration_token/validity'),
  ])
  @Access({ auth: 'none' })
  async tokenValidity(@Inbound() request: InboundRequest): Promise<object> {
    return { valid: await this.registrationFlows.tokenIsValid(requiredQueryString(request, 'token'), request) };
  }
}
