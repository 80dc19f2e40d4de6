import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { DeviceListService } from '@rookery/e2ee';
import { atEase, BackgroundTasks, Clock } from '@rookery/platform';
import { cursorOf } from '@rookery/replication';
import { deviceListsCursor } from './device-list-news.js';

const everyMs = 3_600_000;

/**
 * Forgets, once an hour, which devices of somebody changed before the one that changed last. Other servers are told device by device,
 * so this knows up to where nobody needs to know any more; everybody else asks for users.
 */
@Injectable()
export class FormerDeviceChanges implements OnModuleInit {
  /** What changed up to there was looked at, since this process began. */
  #after = 0;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly deviceLists: DeviceListService,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.forget(signal);
    this.tasks.add({ name: 'forget_former_device_changes', role: 'background', everyMs, run }).start();
  }

  /** Does so once, some at a time. */
  async forget(signal?: AbortSignal): Promise<void> {
    const upTo = (await cursorOf(this.database, deviceListsCursor)) ?? 0;
    while (this.#after < upTo && signal?.aborted !== true)
      this.#after = await atEase(this.clock, signal, () => this.deviceLists.forgetFormer(this.#after, upTo));
  }
}
