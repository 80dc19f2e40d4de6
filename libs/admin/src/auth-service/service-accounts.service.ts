import { Injectable } from '@nestjs/common';
import { CrossSigningService } from '@rookery/e2ee';
import { type Field, type Infer, json } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type RequestOrigin } from '@rookery/platform';
import {
  type Account,
  AccountService,
  canonicalAddress,
  checkProfileField,
  DeactivationService,
  type Origin,
  ProfileService,
  qualifyUserId,
  type ThreepidEvent,
  ThreepidService,
} from '@rookery/users';

/** Whom the authentication service speaks of. */
export const localpart: Field<string, true> = json.required(
  'The localpart of the user id.',
  json.string({ minLength: 1 }),
);

/** How the authentication service wants an account to be. Of each pair at most one may be given. */
export const provisionSchema = json.object({
  localpart,
  set_displayname: json.optional('The display name from now on.', json.string()),
  unset_displayname: json.optional('Whether the display name is taken away.', json.boolean()),
  set_avatar_url: json.optional('The `mxc:` address of the avatar from now on.', json.string()),
  unset_avatar_url: json.optional('Whether the avatar is taken away.', json.boolean()),
  set_emails: json.optional(
    'All email addresses that the user has from now on.',
    json.array(json.string(), { maxItems: 100 }),
  ),
  unset_emails: json.optional('Whether all email addresses are taken away.', json.boolean()),
  locked: json.optional('Whether the account is locked from now on.', json.nullable(json.boolean())),
});
type ProvisionBody = Infer<typeof provisionSchema>;

/** How long a user may replace the cross-signing keys. */
const resetMs = 600_000;

/** Accounts as the service that authenticates users has them. */
@Injectable()
export class ServiceAccounts {
  constructor(
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly profiles: ProfileService,
    private readonly threepids: ThreepidService,
    private readonly deactivation: DeactivationService,
    private readonly crossSigning: CrossSigningService,
  ) {}

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async describe(localpart: string): Promise<object> {
    const { userId, suspended, deactivated } = await this.find(localpart);
    const profile = await this.profiles.get(userId);
    return {
      user_id: userId,
      display_name: profile?.displayname ?? null,
      avatar_url: profile?.avatar_url ?? null,
      is_suspended: suspended,
      is_deactivated: deactivated,
    };
  }

  /**
   * Makes an account, or changes it. Whose an address is, the service knows: one that another account has goes over to this one.
   * @returns whether it is new
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_INVALID_USERNAME`, `M_USER_IN_USE`
   */
  async provision(body: ProvisionBody, request: RequestOrigin): Promise<boolean> {
    for (const what of ['displayname', 'avatar_url', 'emails'] as const)
      if (body[`set_${what}`] !== undefined && body[`unset_${what}`] === true)
        throw MatrixError.invalidParam(`Only one of 'set_${what}' and 'unset_${what}' may be given`);
    const profile = {
      ...changeOf('displayname', body.set_displayname, body.unset_displayname),
      ...changeOf('avatar_url', body.set_avatar_url, body.unset_avatar_url),
    };
    const emails = body.unset_emails
      ? []
      : body.set_emails && [...new Set(body.set_emails.map((email) => canonicalAddress('email', email)))];
    const origin: Origin = { request, byAdmin: true };
    const userId = qualifyUserId(body.localpart, this.config.serverName);
    const locked = body.locked ?? undefined;
    if ((await this.accounts.find(userId)) === undefined) {
      await this.#make(body, emails ?? [], locked, origin);
      return true;
    }
    // First: whatever becomes of the rest, who is to be locked out is.
    if (locked !== undefined) await this.accounts.setFlags(userId, { locked });
    if (Object.keys(profile).length > 0) await this.profiles.update(userId, profile, { origin, byAdmin: true });
    if (emails) await this.threepids.replace(userId, 'email', emails, this.clock.nowMs(), origin);
    return false;
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async delete(localpart: string, erase: boolean, request: RequestOrigin): Promise<void> {
    const { userId } = await this.find(localpart);
    await this.deactivation.deactivate(userId, erase, false, { request });
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async reactivate(localpart: string, request: RequestOrigin): Promise<void> {
    const { userId } = await this.find(localpart);
    await this.deactivation.reactivate(userId, { request });
  }

  /** An empty text takes the field away. @throws MatrixError 404 `M_NOT_FOUND`, 400 `M_INVALID_PARAM` */
  async setProfile(localpart: string, change: { readonly displayname: string }, request: RequestOrigin): Promise<void> {
    const { userId } = await this.find(localpart);
    const checked = { displayname: checkProfileField('displayname', change.displayname) };
    await this.profiles.update(userId, checked, { origin: { request }, byAdmin: true });
  }

  /** Lets a user replace the cross-signing keys for a while, where there are any. @throws MatrixError 404 `M_NOT_FOUND` */
  async allowKeyReset(localpart: string): Promise<void> {
    const { userId } = await this.find(localpart);
    await this.crossSigning.allowReplacement(userId, this.clock.nowMs() + resetMs);
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async find(localpart: string): Promise<Account> {
    const userId = qualifyUserId(localpart, this.config.serverName);
    const account = userId.includes('\0') ? undefined : await this.accounts.find(userId);
    if (!account) throw MatrixError.noSuchUser();
    return account;
  }

  async #make(
    body: ProvisionBody,
    emails: readonly string[],
    locked: boolean | undefined,
    origin: Origin,
  ): Promise<void> {
    await this.accounts.checkAvailable(body.localpart, { exact: true });
    const validatedMs = this.clock.nowMs();
    let released: ThreepidEvent[] = [];
    await this.accounts.register({
      localpart: body.localpart,
      displayName: body.set_displayname || undefined,
      avatarUrl: body.set_avatar_url || undefined,
      threepids: emails.map((address) => ({ medium: 'email', address, validatedMs })),
      locked,
      inTransaction: async (tx) => void (released = await this.threepids.release(tx, 'email', emails)),
      origin,
    });
    await this.threepids.released(released, origin);
  }
}

const changeOf = (
  field: 'displayname' | 'avatar_url',
  set: string | undefined,
  unset: boolean | undefined,
): Readonly<Record<string, unknown>> => {
  if (set === undefined && unset !== true) return {};
  return { [field]: checkProfileField(field, set ?? '') };
};
