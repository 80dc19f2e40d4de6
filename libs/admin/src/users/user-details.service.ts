import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Config } from '@rookery/platform';
import {
  type Account,
  ClientActivity,
  ExternalIds,
  isErased,
  lastSeenOf,
  ProfileService,
  ThreepidService,
} from '@rookery/users';

/** Everything that is known of an account, as administrators see it. */
@Injectable()
export class UserDetails {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly profiles: ProfileService,
    private readonly threepids: ThreepidService,
    private readonly activity: ClientActivity,
    private readonly externalIds: ExternalIds,
  ) {}

  /** The object on the wire. Its creation is in seconds, all other times are in milliseconds. */
  async of(account: Account): Promise<object> {
    const { userId } = account;
    await this.activity.flush();
    const [profile, threepids, externalIds, erased, seen] = await Promise.all([
      this.profiles.get(userId),
      this.threepids.list(userId),
      this.externalIds.of(userId),
      isErased(this.database, userId),
      lastSeenOf(this.database, [userId]),
    ]);
    return {
      name: userId,
      displayname: profile?.displayname ?? null,
      avatar_url: profile?.avatar_url ?? null,
      admin: account.isAdmin,
      deactivated: account.deactivated,
      erased,
      locked: account.locked,
      suspended: account.suspended,
      shadow_banned: account.shadowBanned,
      is_guest: account.isGuest,
      user_type: account.userType ?? null,
      appservice_id: account.appserviceId ?? null,
      creation_ts: Math.floor(account.createdMs / 1000),
      last_seen_ts: seen.get(userId) ?? null,
      consent_version: account.consentVersion ?? null,
      consent_ts: account.consentMs ?? null,
      consent_server_notice_sent: account.consentNoticeSent ?? null,
      threepids: threepids.map(({ medium, address, validatedMs, addedMs }) => ({
        medium,
        address,
        validated_at: validatedMs,
        added_at: addedMs,
      })),
      external_ids: externalIds.map(({ auth_provider, external_id }) => ({ auth_provider, external_id })),
      ...(this.config.get('experimental_features.msc3866')?.enabled === true && { approved: account.approved }),
    };
  }
}
