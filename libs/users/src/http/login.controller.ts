import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  RateLimiter,
  stable,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { authField } from '../uia/auth-field.js';
import { UserAuthGate } from '../uia/user-auth-gate.js';
import { LoginService } from '../login/login.service.js';
import { LoginTokens } from '../login/login-tokens.js';

const loginSchema = json.object({
  type: json.required('The way to sign in.', json.string({ maxLength: 255 })),
  identifier: json.optional('Who signs in.', json.anyObject()),
  device_id: json.optional('The id of the device; it is drawn unless given.', json.string({ maxLength: 255 })),
  initial_device_display_name: json.optional('What the device is called when it is new.', json.nullable(json.string())),
  refresh_token: json.optional('Whether the client can refresh access tokens that end.', json.boolean()),
});

const tokenBody = json.object({ auth: authField });

/** What a login may ask for; also part of a registration. */
type LoginBody = Infer<typeof loginSchema>;

@Controller()
export class LoginController {
  constructor(
    private readonly logins: LoginService,
    private readonly tokens: LoginTokens,
    private readonly gate: UserAuthGate,
    private readonly config: Config,
    private readonly limiter: RateLimiter,
  ) {}

  /** GET /_matrix/client/v3/login */
  @Get([...stable('/login'), ...client(['api/v1'], '/login')])
  @Access({ ownAuth: true, auth: 'none' })
  flows(): object {
    return { flows: this.logins.flows() };
  }

  /** POST /_matrix/client/v3/login */
  @Post([...stable('/login'), ...client(['api/v1'], '/login')])
  @Access({ ownAuth: 'users', auth: 'none', limiter: 'rc_login.address' })
  login(@Inbound() request: InboundRequest, @JsonBody(loginSchema) body: LoginBody): Promise<object> {
    return this.logins.login(request, body, {
      deviceId: body.device_id,
      initialDisplayName: body.initial_device_display_name ?? undefined,
      refreshable: body.refresh_token,
    });
  }

  /** POST /_matrix/client/v1/login/get_token */
  @Post([...client(['v1'], '/login/get_token'), ...client(['unstable'], '/org.matrix.msc3882/login/token')])
  @Access({ ownAuth: true, auth: 'required' })
  async createToken(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(tokenBody, { optional: true }) body: Infer<typeof tokenBody>,
  ): Promise<object> {
    if (!this.config.get('login_via_existing_session.enabled')) throw MatrixError.unrecognized();
    if (requester.puppetedBy !== undefined) throw MatrixError.forbidden('Not while acting as another user');
    if (this.config.get('login_via_existing_session.require_ui_auth'))
      await this.gate.require(requester, request, body, { description: 'log in on another device' });
    await this.limiter.take('login_via_existing_session', requester.userId, requester);
    const lifetimeMs = this.config.get('login_via_existing_session.token_timeout');
    return {
      login_token: await this.tokens.create(requester.userId, lifetimeMs, undefined, requester),
      expires_in_ms: lifetimeMs,
      expires_in: Math.floor(lifetimeMs / 1000),
    };
  }
}
