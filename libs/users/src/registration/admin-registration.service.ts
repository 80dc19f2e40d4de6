import { createHmac, timingSafeEqual } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { type Infer, json } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, type RequestOrigin } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { AccountService } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';
import { RegistrationAnswers } from './registration-answers.js';

const nonceLifetimeMs = 60_000;
/** Nonces kept; more push out the oldest. */
const maxNonces = 10_000;

const text = json.string();
/** The body of a registration by somebody who knows the shared secret. */
export const sharedSecretSchema = json.object({
  nonce: json.optional('The nonce that was asked for before.', text),
  username: json.optional('The localpart of the new user id.', text),
  password: json.optional('The password.', text),
  mac: json.optional('Proves that the shared secret is known.', text),
  admin: json.optional('Whether the user may administer the server.', json.boolean()),
  user_type: json.optional('The type of the account; an ordinary one unless given.', json.nullable(json.string())),
  displayname: json.optional(
    'The display name; the localpart unless given.',
    json.nullable(json.string({ maxLength: 256 })),
  ),
  refresh_token: json.optional('Whether the client can refresh access tokens that end.', json.boolean()),
  device_id: json.optional('The id of the device; it is drawn unless given.', json.string({ maxLength: 255 })),
  initial_device_display_name: json.optional('What the device is called.', text),
  inhibit_login: json.optional('Whether no device is signed in.', json.boolean()),
});
/** The same with everything that it needs. */
export type SharedSecretRegistration = Infer<typeof sharedSecretSchema> &
  Record<'nonce' | 'username' | 'password' | 'mac', string>;

/** Registration with the secret that the operator's tools share with the server. */
@Injectable()
export class AdminRegistrationService {
  readonly #nonces = new LRUCache<string, number>({ maxSize: maxNonces, sizeCalculation: () => 1 });

  constructor(
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly answers: RegistrationAnswers,
  ) {}

  /** A number used once, within a minute. @throws MatrixError 400 `M_UNKNOWN` when there is no shared secret */
  nonce(): string {
    this.#secret();
    const nonce = this.ids.bytes(64).toString('hex');
    this.#nonces.set(nonce, this.clock.nowMs());
    return nonce;
  }

  /**
   * @returns the answer for the client, as for a registration
   * @throws MatrixError 400 `M_UNKNOWN`, `M_INVALID_PARAM`, `M_USER_IN_USE`...; 403 `M_FORBIDDEN` (the MAC is wrong)
   */
  async register(body: SharedSecretRegistration, request: RequestOrigin): Promise<JsonObject> {
    const secret = this.#secret();
    const madeMs = this.#nonces.get(body.nonce);
    // Used up whatever comes of it: a nonce is one attempt.
    this.#nonces.delete(body.nonce);
    if (madeMs === undefined || this.clock.nowMs() - madeMs > nonceLifetimeMs)
      throw MatrixError.badRequest('Unknown nonce');
    for (const name of ['username', 'password'] as const) {
      if (body[name].includes('\0') || body[name].length > 512) throw MatrixError.badRequest(`Not a valid ${name}`);
    }
    const userType = body.user_type ?? undefined;
    if (
      userType !== undefined &&
      !['support', 'bot', ...this.config.get('user_types.extra_user_types')].includes(userType)
    )
      throw MatrixError.unknownUserType();
    if (!macHolds(secret, body)) throw MatrixError.forbidden('The MAC is wrong');
    const localpart = await this.accounts.checkAvailable(body.username);
    this.passwords.assertUsable(body.password);
    const userId = await this.accounts.register({
      localpart,
      passwordHash: await this.passwords.hash(body.password),
      isAdmin: body.admin ?? false,
      userType,
      displayName: body.displayname ?? undefined,
      approved: true,
      origin: { request, byAdmin: true },
    });
    return this.answers.for(userId, body, request);
  }

  #secret(): string {
    const secret = this.config.get('registration_shared_secret');
    if (secret === undefined || secret === '')
      throw MatrixError.badRequest('Shared-secret registration is not enabled on this server');
    return secret;
  }
}

/** The MAC covers the fields as they were sent, separated by NUL, which none of them may hold. */
function macHolds(secret: string, body: SharedSecretRegistration): boolean {
  const parts = [body.nonce, body.username, body.password, body.admin ? 'admin' : 'notadmin'];
  if (body.user_type != null && body.user_type !== '') parts.push(body.user_type);
  const expected = createHmac('sha1', secret).update(parts.join('\0')).digest();
  const given = /^[0-9a-f]{40}$/i.test(body.mac) ? Buffer.from(body.mac, 'hex') : Buffer.alloc(expected.length);
  return timingSafeEqual(given, expected) && body.mac.length === 40;
}
