import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { abandonUse } from '../store/registration-token.query.js';
import { countUnseenFrom, findStaleDevices } from '../store/device.query.js';
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

/** Deletes, once an hour, what nobody can use anymore. Sessions with all that hangs on them go where everything is written. */
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
    const stale = (): Promise<void> => this.deleteStaleDevices();
    this.tasks.add({ name: 'purge_expired_rows', role: 'background', everyMs, run: () => this.purge() }).start();
    this.tasks.add({ name: 'delete_stale_devices', role: 'writer', everyMs, run: stale }).start();
  }

  /** Each kind in a transaction of its own, so that none is held up for long. */
  async purge(nowMs = this.clock.nowMs()): Promise<void> {
    const steps: Readonly<Record<string, (tx: Tx) => Promise<unknown>>> = {
      purge_uia_sessions: async (tx) => {
        for (const token of await purgeUiaSessions(tx, nowMs - uiaSessionLifetimeMs)) await abandonUse(tx, token);
      },
      purge_validation_sessions: (tx) => purgeSessions(tx, nowMs - 2 * validationLifetimeMs),
      purge_login_tokens: (tx) => purgeLoginTokens(tx, nowMs),
      purge_openid_tokens: (tx) => purgeOpenIdTokens(tx, nowMs),
      // Whoever has one in memory has it as one that has expired.
      purge_access_tokens: (tx) => purgeExpiredTokens(tx, nowMs - expiredTokensKeptMs),
    };
    for (const [name, step] of Object.entries(steps)) await this.database.write(step, { name, anyProcess: true });
    const addressesKeptMs = this.config.get('user_ips_max_age');
    if (addressesKeptMs === undefined) return;
    const options = { name: 'purge_user_ips', anyProcess: true };
    await this.database.write((tx) => pruneAddresses(tx, nowMs - addressesKeptMs), options);
  }

  /** Ends sessions that nobody uses (`delete_stale_devices_after`), also those that nobody ever used, some at a time. */
  async deleteStaleDevices(nowMs = this.clock.nowMs()): Promise<void> {
    const keptMs = this.config.get('delete_stale_devices_after');
    if (keptMs === undefined) return;
    await this.database.write((tx) => countUnseenFrom(tx, nowMs), { name: 'count_unseen_devices' });
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
