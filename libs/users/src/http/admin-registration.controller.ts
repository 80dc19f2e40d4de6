import { Controller, Get, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { AdminRegistrationService, type SharedSecretRegistration } from '../registration/admin-registration.service.js';

const text = { type: 'string' };
const schema = {
  properties: {
    nonce: text,
    username: text,
    password: text,
    mac: text,
    admin: { type: 'boolean' },
    user_type: { type: ['string', 'null'] },
    displayname: { type: ['string', 'null'], maxLength: 256 },
    refresh_token: { type: 'boolean' },
    device_id: { ...text, maxLength: 255 },
    initial_device_display_name: text,
    inhibit_login: { type: 'boolean' },
  },
};

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
    @JsonBody(schema) body: Partial<SharedSecretRegistration>,
  ): Promise<object> {
    for (const name of ['nonce', 'username', 'password', 'mac'] as const)
      if (body[name] === undefined) throw MatrixError.badJson(`Missing key '${name}'`);
    return this.registrations.register(body as SharedSecretRegistration, request);
  }
}
