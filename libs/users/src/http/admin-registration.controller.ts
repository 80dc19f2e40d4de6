import { Controller, Get, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, type Infer, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import {
  AdminRegistrationService,
  type SharedSecretRegistration,
  sharedSecretSchema,
} from '../registration/admin-registration.service.js';

@Controller()
export class AdminRegistrationController {
  constructor(private readonly registrations: AdminRegistrationService) {}

  /** GET /_synapse/admin/v1/register */
  @Get('/_synapse/admin/v1/register')
  @Access({ ownAuth: true, auth: 'none' })
  nonce(): object {
    return { nonce: this.registrations.nonce() };
  }

  /** POST /_synapse/admin/v1/register */
  @Post('/_synapse/admin/v1/register')
  @Access({ ownAuth: true, auth: 'none' })
  register(
    @Inbound() request: InboundRequest,
    @JsonBody(sharedSecretSchema) body: Infer<typeof sharedSecretSchema>,
  ): Promise<object> {
    for (const name of ['nonce', 'username', 'password', 'mac'] as const)
      if (body[name] === undefined) throw MatrixError.badJson(`Missing key '${name}'`);
    return this.registrations.register(body as SharedSecretRegistration, request);
  }
}
