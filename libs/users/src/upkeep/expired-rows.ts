import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { abandonUse } from '../store/registration-token.query.js';
import { findStaleDevices } from '../store/device.query.js';
import { purgeOpenIdTokens } from '../openid/openid.query.js';
import { pruneAddresses } from '../sessions/client-activity.query.js';
import { purgeLoginTokens } from '../sessions/login-token.query.js';
import { SessionService } from '../sessions/session.service.js';
import { purgeExpiredTokens } from '../sessions/token.query.js';
import { validationLifetimeMs } from '../threepids/email-verification.service.js';
import { purgeSessions } from '../threepids/validation.query.js';
import { purgeUiaSessions } from '../uia/uia.query.js';
import { uiaSessionLifetimeMs } from '../uia/uia.service.js';

const everyMs = 3_600_000;
const maxStaleDevices = 1_000;
/** Expired refreshable access tokens are kept this long, so that their owners are told to refresh. */
const expiredTokensKeptMs = 14 * 86_400_000;

/** Deletes, once an hour, what nobody can use anymore. */
@Injectable()
export class ExpiredRows implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly sessions: SessionService,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    this.tasks.add({ name: 'purge_expired_rows', role: 'background', everyMs, run: () => this.purge() }).start();
  }

  /** Each kind in a transaction of its own, so that none is held up for long. */
  async purge(nowMs = this.clock.nowMs()): Promise<void> {
    await this.database.write(
      async (tx) => {
        for (const token of await purgeUiaSessions(tx, nowMs - uiaSessionLifetimeMs)) await abandonUse(tx, token);
      },
      { name: 'purge_uia_sessions' },
    );
    await this.database.write((tx) => purgeSessions(tx, nowMs - 2 * validationLifetimeMs), {
      name: 'purge_validation_sessions',
    });
    await this.database.write((tx) => purgeLoginTokens(tx, nowMs), { name: 'purge_login_tokens' });
    await this.database.write((tx) => purgeOpenIdTokens(tx, nowMs), { name: 'purge_openid_tokens' });
    await this.database.write((tx) => purgeExpiredTokens(tx, nowMs - expiredTokensKeptMs), {
      name: 'purge_access_tokens',
    });
    await this.#deleteStaleDevices(nowMs);
    const addressesKeptMs = this.config.get('user_ips_max_age');
    if (addressesKeptMs !== undefined)
      await this.database.write((tx) => pruneAddresses(tx, nowMs - addressesKeptMs), { name: 'purge_user_ips' });
  }

  /** Sessions that nobody uses (`delete_stale_devices_after`), some at a time. */
  async #deleteStaleDevices(nowMs: number): Promise<void> {
    const keptMs = this.config.get('delete_stale_devices_after');
    if (keptMs === undefined) return;
    const devicesOf = new Map<string, string[]>();
    for (const { user_id: userId, device_id: deviceId } of await findStaleDevices(
      this.database,
      nowMs - keptMs,
      maxStaleDevices,
    )) {
      devicesOf.set(userId, [...(devicesOf.get(userId) ?? []), deviceId]);
    }
    for (const [userId, deviceIds] of devicesOf) await this.sessions.closeDevices(userId, deviceIds);
  }
}
