import { Injectable } from '@nestjs/common';
import { type Infer, json } from '@rookery/http';
import { localpartOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester, type RequestOrigin } from '@rookery/platform';
import {
  type Account,
  AccountService,
  canonicalAddress,
  checkProfileField,
  DeactivationService,
  ExternalIds,
  type Origin,
  PasswordService,
  ProfileService,
  ThreepidService,
} from '@rookery/users';

const text = json.nullable(json.string());
const id = json.string({ minLength: 1, maxLength: 255, pattern: '^[^\\u0000]*$' });

/** What an administrator wants an account to be; what is absent stays, and so do a password, addresses and ids of `null`. */
export const userChange = json.object({
  password: json.optional('The new password.', json.nullable(json.string({ maxLength: 512 }))),
  logout_devices: json.optional(
    'Whether a new password signs all devices out; it does unless this is `false`.',
    json.boolean(),
  ),
  displayname: json.optional('The display name; `null` or an empty one takes it away.', text),
  avatar_url: json.optional('The `mxc:` address of the avatar; `null` or an empty one takes it away.', text),
  threepids: json.optional(
    'All email addresses and telephone numbers of the account.',
    json.nullable(
      json.arrayOrNothing(
        json.object({
          medium: json.required('The kind: `email` or `msisdn`.', json.string()),
          address: json.required('The address or number.', json.string()),
        }),
        { maxItems: 100 },
      ),
    ),
  ),
  external_ids: json.optional(
    'All identities at sign-in providers that are those of the account.',
    json.nullable(
      json.arrayOrNothing(
        json.object({
          auth_provider: json.required('The id of the provider.', id),
          external_id: json.required('Who the user is there.', id),
        }),
        { maxItems: 100 },
      ),
    ),
  ),
  admin: json.optional('Whether the user may administer the server.', json.boolean()),
  deactivated: json.optional('Whether the account is out of use.', json.boolean()),
  locked: json.optional('Whether the account is locked: signed in, but refused.', json.boolean()),
  user_type: json.optional('The type of the account, or `null` for an ordinary one.', text),
  approved: json.optional('Whether an administrator has approved of the account.', json.boolean()),
});
type UserChange = Infer<typeof userChange>;

/** Scripts write `{}` for a list of nothing. */
const listed = <T>(given: readonly T[] | object | null | undefined): readonly T[] | undefined =>
  given ? (Array.isArray(given) ? (given as readonly T[]) : []) : undefined;

/** The fields of the profile that are named, as they are stored. @throws MatrixError 400 `M_INVALID_PARAM` */
function profileOf(change: UserChange): Readonly<Record<string, unknown>> {
  const named = (['displayname', 'avatar_url'] as const).filter((field) => change[field] !== undefined);
  return Object.fromEntries(named.map((field) => [field, checkProfileField(field, change[field])]));
}

interface Address {
  readonly medium: string;
  readonly address: string;
}

/**
 * Makes accounts and changes them at an administrator's word. Whatever may be refused is asked for before anything is changed: the
 * values, modules, the rules of avatars, and last the identity servers that are to forget addresses; one that has done so does not
 * learn them again where another refuses.
 */
@Injectable()
export class UserChanges {
  // Eight parameters: one for each part of an account that the admin API changes in one request.
  constructor(
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly profiles: ProfileService,
    private readonly threepids: ThreepidService,
    private readonly deactivation: DeactivationService,
    private readonly externalIds: ExternalIds,
  ) {}

  /**
   * @param userId of this server
   * @returns whether the account is new
   * @throws MatrixError 400 `M_UNKNOWN`, `M_INVALID_PARAM`, `M_INVALID_USERNAME`, `M_THREEPID_IN_USE`...; 403 `M_FORBIDDEN`,
   *   for a new account also where an authentication service makes them; 409 `M_UNKNOWN` (an external id is another account's); 500 `M_UNKNOWN` (an identity server keeps an address)
   */
  async apply(requester: Requester, request: RequestOrigin, userId: string, change: UserChange): Promise<boolean> {
    const account = await this.accounts.find(userId);
    // One that the service does not know nobody could log in to, and its name would be taken there.
    if (account === undefined && this.config.get('matrix_authentication_service.enabled'))
      throw MatrixError.forbidden('Accounts are made by the authentication service');
    const origin: Origin = { requester, request, byAdmin: true };
    const wanted = await this.#check(requester, userId, change);
    const profile = profileOf(change);
    await this.profiles.checkUpdate(userId, profile, { origin, byAdmin: true });
    const closes = change.deactivated === true && account?.deactivated !== true;
    if (closes) await this.deactivation.checkAllowed(userId, true, origin);
    if (account === undefined) await this.#create(userId, change, wanted, origin);
    else {
      // First: whatever becomes of the rest, who is to be locked out is.
      if (change.locked === true) await this.accounts.setFlags(userId, { locked: true });
      await this.#change(account, change, { ...wanted, profile }, origin);
    }
    const externalIds = listed(change.external_ids);
    if (externalIds) await this.externalIds.replace(userId, externalIds);
    if (closes) await this.deactivation.close(userId, false, true, origin);
    if (change.deactivated === false && account?.deactivated === true)
      await this.deactivation.reactivate(userId, origin);
    // Last: whatever becomes of the rest, who is locked out stays so.
    if (change.locked === false && account !== undefined) await this.accounts.setFlags(userId, { locked: false });
    return account === undefined;
  }

  /** @throws MatrixError 400 `M_UNKNOWN` for a type that this server does not know */
  checkUserType(userType: string | null | undefined): void {
    if (userType === undefined || userType === null) return;
    if (!['support', 'bot', ...this.config.get('user_types.extra_user_types')].includes(userType))
      throw MatrixError.unknownUserType();
  }

  /** @throws MatrixError 403 `M_FORBIDDEN` where this server keeps no passwords, 400 `M_INVALID_PARAM`, `M_WEAK_PASSWORD` */
  checkPassword(password: string | null | undefined): void {
    if (password === undefined || password === null) return;
    if (!this.passwords.mayBeChanged) throw MatrixError.forbidden('Passwords are not kept on this server');
    this.passwords.assertUsable(password);
  }

  /** @throws MatrixError 400 `M_UNKNOWN` when administrators would take their own rights away */
  checkDemotion(requester: Requester, userId: string, admin: boolean | undefined): void {
    if (admin === false && requester.userId === userId)
      throw MatrixError.badRequest('You may not take your own rights away');
  }

  async #check(requester: Requester, userId: string, change: UserChange): Promise<{ readonly threepids?: Address[] }> {
    this.checkUserType(change.user_type);
    this.checkPassword(change.password);
    this.checkDemotion(requester, userId, change.admin);
    if (change.deactivated === true && change.locked === true)
      throw MatrixError.badRequest('An account cannot be both deactivated and locked');
    for (const { auth_provider, external_id } of listed(change.external_ids) ?? []) {
      const owner = await this.externalIds.userOf(auth_provider, external_id);
      if (owner !== undefined && owner !== userId) throw MatrixError.externalIdInUse();
    }
    const wanted = listed(change.threepids);
    if (!wanted) return {};
    const threepids = new Map<string, Address>();
    for (const { medium, address } of wanted) {
      const canonical = canonicalAddress(medium, address);
      const owner = await this.threepids.userOf(medium, canonical);
      if (owner !== undefined && owner !== userId) throw MatrixError.threepidInUse();
      threepids.set(`${medium} ${canonical}`, { medium, address: canonical });
    }
    return { threepids: [...threepids.values()] };
  }

  async #create(
    userId: string,
    change: UserChange,
    { threepids = [] }: { readonly threepids?: Address[] },
    origin: Origin,
  ): Promise<void> {
    const localpart = localpartOf(userId);
    // The account gets the very id that was named, or none.
    await this.accounts.checkAvailable(localpart, { exact: true });
    const { password, user_type, displayname, avatar_url, admin, approved, locked } = change;
    const validatedMs = this.clock.nowMs();
    await this.accounts.register({
      localpart,
      passwordHash: password === undefined || password === null ? undefined : await this.passwords.hash(password),
      isAdmin: admin,
      userType: user_type ?? undefined,
      displayName: displayname || undefined,
      avatarUrl: avatar_url || undefined,
      threepids: threepids.map((one) => ({ ...one, validatedMs })),
      approved,
      locked,
      origin,
    });
  }

  async #change(
    account: Account,
    change: UserChange,
    { threepids, profile }: { readonly threepids?: Address[]; readonly profile: Readonly<Record<string, unknown>> },
    origin: Origin,
  ): Promise<void> {
    const { userId } = account;
    if (threepids) await this.#replaceThreepids(userId, threepids, origin);
    if (Object.keys(profile).length > 0) await this.profiles.update(userId, profile, { origin, byAdmin: true });
    if (typeof change.password === 'string')
      await this.accounts.setPassword(userId, change.password, change.logout_devices ?? true);
    const { admin, user_type, approved } = change;
    await this.accounts.setFlags(userId, {
      ...(admin !== undefined && { isAdmin: admin }),
      ...(user_type !== undefined && { userType: user_type }),
      ...(approved !== undefined && { approved }),
    });
  }

  async #replaceThreepids(userId: string, wanted: readonly Address[], origin: Origin): Promise<void> {
    const keyOf = ({ medium, address }: Address): string => `${medium} ${address}`;
    const before = await this.threepids.list(userId);
    const known = new Set(before.map(keyOf));
    const kept = new Set(wanted.map(keyOf));
    const leaving = before.filter((old) => !kept.has(keyOf(old)));
    for (const one of leaving) await this.#unpublish(userId, one);
    for (const one of leaving) await this.threepids.remove(userId, one.medium, one.address, origin);
    const nowMs = this.clock.nowMs();
    for (const one of wanted.filter((next) => !known.has(keyOf(next))))
      await this.threepids.add(userId, one.medium, one.address, nowMs, origin);
  }

  async #unpublish(userId: string, { medium, address }: Address): Promise<void> {
    try {
      await this.threepids.unpublish(userId, medium, address);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      throw MatrixError.internal(`An identity server keeps an address: ${error.message}`);
    }
  }
}
