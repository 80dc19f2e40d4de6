import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { UserIpAndAgent } from '@rookery/module-api';
import { Clock } from '@rookery/platform';
import { activeUsersByService, addressesOf, ClientActivity, type UserAddress } from '@rookery/users';

/** What modules may know of when and whence accounts are used. */
@Injectable()
export class ModuleAccountActivity {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly activity: ClientActivity,
  ) {}

  async getUserIpAndAgents(userId: string, sinceMs = 0): Promise<readonly UserIpAndAgent[]> {
    await this.activity.flush();
    return latestByPlace(await addressesOf(this.database, userId, sinceMs));
  }

  async getMonthlyActiveUsersByService(
    startMs = 0,
    endMs = this.clock.nowMs(),
  ): Promise<readonly (readonly [service: string, userId: string])[]> {
    await this.activity.flush();
    const active = await activeUsersByService(this.database, startMs, endMs);
    return active.map(({ service, userId }) => [service, userId] as const);
  }
}

/** One entry per address and agent; the rows come newest first. */
function latestByPlace(rows: readonly UserAddress[]): UserIpAndAgent[] {
  const places = new Map<string, UserIpAndAgent>();
  for (const row of rows) {
    const place = `${row.ip}\n${row.user_agent}`;
    if (!places.has(place)) places.set(place, { ip: row.ip, userAgent: row.user_agent, lastSeenMs: row.last_seen });
  }
  return [...places.values()];
}
