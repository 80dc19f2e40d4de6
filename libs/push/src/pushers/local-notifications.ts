import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Config } from '@rookery/platform';
import { AccountDataService, UserHooks } from '@rookery/users';

/** Begins the types of account data that say whether a device shows notifications of its own; its id follows. */
const settingsPrefix = 'org.matrix.msc3890.local_notification_settings.';

/** Forgets with a device whether it was to be silent (MSC3890). */
@Injectable()
export class LocalNotificationSettings implements OnModuleInit {
  constructor(
    private readonly hooks: UserHooks,
    private readonly accountData: AccountDataService,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    if (!this.config.get('experimental_features.msc3890_enabled')) return;
    this.hooks.devicesDeleted.subscribe({
      afterCommit: async ({ userId, deviceIds }) => {
        for (const deviceId of deviceIds) {
          const type = settingsPrefix + deviceId;
          const content = await this.accountData.find(userId, undefined, type);
          const isThere = content !== undefined && Object.keys(content).length > 0;
          if (isThere) await this.accountData.set(userId, undefined, type, {}, {});
        }
      },
    });
  }
}
