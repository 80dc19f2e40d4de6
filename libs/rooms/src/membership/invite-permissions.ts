import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, type JsonObject, matchesGlob } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { AccountDataService } from '@rookery/users';
import { selectOpenInvites } from './invite-permissions.query.js';

/** What becomes of an invite: it is shown, it looks sent and is never shown, or it is refused. */
export type InviteVerdict = 'allow' | 'ignore' | 'block';

/** What a user wants to become of invites, by their sender. */
export type InviteJudge = (inviter: string) => InviteVerdict;

/** Entries of one list that are looked at, and how long each may be; what is beyond does not count. */
const maxEntries = 1_000;
const maxEntryLength = 255;

const permissionType = 'm.invite_permission_config';
/** Of MSC4155. */
const filtersType = 'org.matrix.msc4155.invite_permission_config';

/** In this order, the first that matches decides (MSC4155). */
const lists = [
  ['allowed_users', 'allow'],
  ['ignored_users', 'ignore'],
  ['blocked_users', 'block'],
  ['allowed_servers', 'allow'],
  ['ignored_servers', 'ignore'],
  ['blocked_servers', 'block'],
] as const;

/** What local users have set about invites. */
@Injectable()
export class InvitePermissions {
  /** Whether users may have filters (MSC4155). Without them nobody is ignored but by the list of ignored users. */
  readonly hasFilters: boolean;

  constructor(
    private readonly database: Database,
    private readonly accountData: AccountDataService,
    config: Config,
  ) {
    this.hasFilters = config.get('experimental_features.msc4155_enabled');
  }

  /**
   * How to judge invites for a local user: all of them are blocked, or their sender is ignored, or what the user's filters
   * (MSC4155, where the server is set so) say.
   * @spec client-server-api#invite-permission
   */
  async of(userId: string): Promise<InviteJudge> {
    const [blocksAll, filters, ignored] = await Promise.all([
      this.#blocksAll(userId),
      this.hasFilters ? this.accountData.find(userId, undefined, filtersType) : undefined,
      this.accountData.ignoredBy(userId),
    ]);
    const ignoredUsers = new Set(ignored);
    return (inviter) => {
      if (blocksAll) return 'block';
      if (ignoredUsers.has(inviter)) return 'ignore';
      return filters === undefined ? 'allow' : judgeInvite(filters, inviter);
    };
  }

  /** How many open invites a local user is shown. One query, unless the user has said something about invites or their senders. */
  async countShown(userId: string): Promise<number> {
    const settings = [permissionType, ...(this.hasFilters ? [filtersType] : [])];
    const invites = await selectOpenInvites(this.database, userId, settings);
    const judge = invites.some((each) => each.is_judged) ? await this.of(userId) : undefined;
    const shown = invites.filter(({ sender }) => judge === undefined || judge(sender) === 'allow');
    return shown.reduce((sum, { rooms }) => sum + Number(rooms), 0);
  }

  /** Whether a local user refuses an invite openly. */
  async blocks(userId: string, inviter: string): Promise<boolean> {
    return this.hasFilters ? (await this.of(userId))(inviter) === 'block' : this.#blocksAll(userId);
  }

  async #blocksAll(userId: string): Promise<boolean> {
    const permission = await this.accountData.find(userId, undefined, permissionType);
    return permission?.['default_action'] === 'block';
  }
}

/** What filters say about an inviter; entries are globs for user ids, and for names of servers without their port (MSC4155). */
export function judgeInvite(filters: Readonly<JsonObject>, inviter: string): InviteVerdict {
  if (filters['enabled'] === false) return 'allow';
  const server = domainOf(inviter).replace(/:\d+$/, '');
  for (const [name, verdict] of lists) {
    const entries = filters[name];
    if (!Array.isArray(entries)) continue;
    const subject = name.endsWith('_users') ? inviter : server;
    const matches = (entry: unknown): boolean =>
      typeof entry === 'string' && entry.length <= maxEntryLength && matchesGlob(entry, subject);
    if (entries.slice(0, maxEntries).some(matches)) return verdict;
  }
  return 'allow';
}
