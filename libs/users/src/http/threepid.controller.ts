import { Controller, Get, Post } from '@nestjs/common';
import { Access, client, Inbound, type InboundRequest, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { authField } from '../uia/auth-field.js';
import { threepidCredentials } from '../uia/threepid-stages.js';
import { UserAuthGate } from '../uia/user-auth-gate.js';
import { EmailVerification } from '../threepids/email-verification.service.js';
import { IdentityServer } from '../threepids/identity-server.js';
import { MsisdnVerification } from '../threepids/msisdn-verification.service.js';
import {
  type EmailTokenBody,
  emailTokenSchema,
  type MsisdnTokenBody,
  msisdnTokenSchema,
  RequestTokenService,
} from '../threepids/request-token.service.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { checkClientSecret } from '../threepids/verification-rules.js';

const text = json.string({ maxLength: 2000 });
const addressSchema = json.object({
  medium: json.required('The kind of the address: `email` or `msisdn`.', text),
  address: json.required('The address.', text),
  id_server: json.optional('The identity server that forgets whose it is; each that knows unless given.', text),
});
const clientSecret = json.required('The secret of the client that the session was begun with.', text);
const sid = json.required('The id of the session in which the address was confirmed.', text);

type AddressBody = Infer<typeof addressSchema>;

const submitCodeBody = json.object({
  client_secret: clientSecret,
  sid: json.required('The id of the session.', text),
  token: json.required('The code that was sent to the number.', text),
});
const addBody = json.object({ auth: authField, client_secret: clientSecret, sid });
const formerAddBody = json.object({
  auth: authField,
  three_pid_creds: json.optional(
    'The `client_secret` and `sid` of the session in which the address was confirmed.',
    json.unknown(),
  ),
});
const bindBody = json.object({
  client_secret: clientSecret,
  id_access_token: json.required('A token of the identity server.', json.string()),
  id_server: json.required('The identity server that is to know whose the address is.', text),
  sid,
});

/** Email addresses and phone numbers of accounts. */
@Controller()
export class ThreepidController {
  constructor(
    private readonly threepids: ThreepidService,
    private readonly requests: RequestTokenService,
    private readonly emails: EmailVerification,
    private readonly numbers: MsisdnVerification,
    private readonly identity: IdentityServer,
    private readonly gate: UserAuthGate,
    private readonly config: Config,
  ) {}

  /** POST /_matrix/client/v3/register/email/requestToken */
  @Post(stable('/register/email/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  registerByEmail(
    @Inbound() request: InboundRequest,
    @JsonBody(emailTokenSchema) body: EmailTokenBody,
  ): Promise<object> {
    return this.requests.forEmail('registration', body, request);
  }

  /** POST /_matrix/client/v3/register/msisdn/requestToken */
  @Post(stable('/register/msisdn/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  registerByNumber(
    @Inbound() request: InboundRequest,
    @JsonBody(msisdnTokenSchema) body: MsisdnTokenBody,
  ): Promise<object> {
    return this.requests.forMsisdn('registration', body, request);
  }

  /** POST /_matrix/client/v3/account/password/email/requestToken */
  @Post(stable('/account/password/email/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  resetByEmail(@Inbound() request: InboundRequest, @JsonBody(emailTokenSchema) body: EmailTokenBody): Promise<object> {
    return this.requests.forEmail('password_reset', body, request);
  }

  /** POST /_matrix/client/v3/account/password/msisdn/requestToken */
  @Post(stable('/account/password/msisdn/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  resetByNumber(
    @Inbound() request: InboundRequest,
    @JsonBody(msisdnTokenSchema) body: MsisdnTokenBody,
  ): Promise<object> {
    return this.requests.forMsisdn('password_reset', body, request);
  }

  /** POST /_matrix/client/v3/account/3pid/email/requestToken */
  @Post(stable('/account/3pid/email/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  addEmail(@Inbound() request: InboundRequest, @JsonBody(emailTokenSchema) body: EmailTokenBody): Promise<object> {
    return this.requests.forEmail('add_threepid', body, request);
  }

  /** POST /_matrix/client/v3/account/3pid/msisdn/requestToken */
  @Post(stable('/account/3pid/msisdn/requestToken'))
  @Access({ ownAuth: true, auth: 'none', limiter: 'rc_3pid_validation' })
  addNumber(@Inbound() request: InboundRequest, @JsonBody(msisdnTokenSchema) body: MsisdnTokenBody): Promise<object> {
    return this.requests.forMsisdn('add_threepid', body, request);
  }

  /** POST /_matrix/client/unstable/add_threepid/msisdn/submit_token: the code from the text message */
  @Post(client(['unstable'], '/add_threepid/msisdn/submit_token'))
  @Access({ auth: 'none', limiter: 'rc_ui_auth' })
  submitCode(
    @Inbound() request: InboundRequest,
    @JsonBody(submitCodeBody) body: Infer<typeof submitCodeBody>,
  ): Promise<object> {
    return this.numbers.submit(body.sid, body.client_secret, body.token, request);
  }

  /** GET /_matrix/client/v3/account/3pid */
  @Get(stable('/account/3pid'))
  @Access({ auth: 'required' })
  async list(@Who() requester: Requester): Promise<object> {
    const threepids = await this.threepids.list(requester.userId);
    return {
      threepids: threepids.map(({ medium, address, validatedMs, addedMs }) => ({
        medium,
        address,
        validated_at: validatedMs,
        added_at: addedMs,
      })),
    };
  }

  /** POST /_matrix/client/v3/account/3pid/add */
  @Post(stable('/account/3pid/add'))
  @Access({ ownAuth: true, auth: 'required' })
  async add(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(addBody)
    body: Infer<typeof addBody>,
  ): Promise<object> {
    await this.#add(requester, request, body, body.sid, body.client_secret);
    return {};
  }

  /**
   * POST /_matrix/client/v3/account/3pid
   *
   * NOTSPEC: the deprecated form asks for interactive auth as its successor does. Whoever gets hold of a token could
   * otherwise add an address, and with it set a new password.
   */
  @Post(stable('/account/3pid'))
  @Access({ ownAuth: true, auth: 'required' })
  async addTheOldWay(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(formerAddBody) body: Infer<typeof formerAddBody>,
  ): Promise<object> {
    const { sid, clientSecret } = threepidCredentials(body);
    await this.#add(requester, request, body, sid, clientSecret);
    return {};
  }

  /** POST /_matrix/client/v3/account/3pid/bind */
  @Post(stable('/account/3pid/bind'))
  @Access({ auth: 'required' })
  async bind(
    @Who() requester: Requester,
    @JsonBody(bindBody)
    body: Infer<typeof bindBody>,
  ): Promise<object> {
    if (!this.config.get('enable_3pid_lookup'))
      throw MatrixError.forbidden('Identity servers are not used by this server');
    const { medium, address } = await this.identity.bind(
      body.id_server,
      body.id_access_token,
      body.sid,
      checkClientSecret(body.client_secret),
      requester.userId,
    );
    await this.threepids.published(requester.userId, medium, address, body.id_server);
    return {};
  }

  /** POST /_matrix/client/v3/account/3pid/delete */
  @Post(stable('/account/3pid/delete'))
  @Access({ ownAuth: true, auth: 'required' })
  async delete(@Who() requester: Requester, @JsonBody(addressSchema) body: AddressBody): Promise<object> {
    if (!this.config.get('enable_3pid_changes'))
      throw MatrixError.forbidden('Addresses cannot be changed on this server');
    const { userId } = requester;
    await this.threepids.remove(userId, body.medium, body.address, { requester });
    // It is gone from the account, whatever an identity server makes of it.
    const unbound = await this.threepids
      .unpublish(userId, body.medium, body.address, body.id_server)
      .catch((error: unknown) => {
        if (MatrixError.is(error)) return false;
        throw error;
      });
    return unbindResult(unbound);
  }

  /** POST /_matrix/client/v3/account/3pid/unbind */
  @Post(stable('/account/3pid/unbind'))
  @Access({ auth: 'required' })
  async unbind(@Who() requester: Requester, @JsonBody(addressSchema) body: AddressBody): Promise<object> {
    return unbindResult(await this.threepids.unpublish(requester.userId, body.medium, body.address, body.id_server));
  }

  async #add(
    requester: Requester,
    request: InboundRequest,
    body: JsonObject,
    sid: string,
    clientSecret: string,
  ): Promise<void> {
    if (!this.config.get('enable_3pid_changes'))
      throw MatrixError.forbidden('Addresses cannot be changed on this server');
    checkClientSecret(clientSecret);
    await this.gate.require(requester, request, body, { description: 'add an address to your account' });
    // The identity server for numbers is asked about nothing that is ours.
    if (!this.numbers.available || (await this.emails.isBegun(sid, clientSecret))) {
      const email = await this.emails.proved(sid, clientSecret, 'add_threepid').catch(rejectUnproved);
      await this.threepids.add(requester.userId, 'email', email.address, email.validatedMs, { requester }, (tx) =>
        this.emails.use(tx, email.sid),
      );
    } else {
      const number = await this.numbers.proved(sid, clientSecret).catch(rejectUnproved);
      await this.threepids.add(requester.userId, 'msisdn', number.address, number.validatedMs, { requester }, (tx) =>
        this.numbers.use(tx, number),
      );
    }
  }
}

const unbindResult = (unbound: boolean): object => ({ id_server_unbind_result: unbound ? 'success' : 'no-support' });

/** A missing proof is 401 in a stage of interactive auth; elsewhere clients would take that for a logout. */
function rejectUnproved(error: unknown): never {
  if (!MatrixError.is(error) || (error.status !== 400 && error.status !== 401)) throw error;
  throw MatrixError.threepidAuthFailed(error.message);
}
