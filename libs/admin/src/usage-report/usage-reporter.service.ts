import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { OutboundHttp } from '@rookery/http';
import { BackgroundTasks, Clock, Config, Logger, type Timer } from '@rookery/platform';
import { forgetDailyVisits, noteDailyVisits } from '@rookery/users';
import { usageReport } from './usage-report.js';

const firstAfterMs = 5 * 60_000;
const reportEveryMs = 3 * 3_600_000;
const visitsEveryMs = 3_600_000;

/**
 * Sends usage figures to `report_stats_endpoint`, through the proxy where one is set, five minutes after the start and every
 * three hours from then on. Without `report_stats: true` nothing is counted and nothing leaves.
 */
@Injectable()
export class UsageReporter implements OnModuleInit, OnModuleDestroy {
  #first: Timer | undefined;
  #startedMs = 0;

  constructor(
    private readonly database: Database,
    private readonly outbound: OutboundHttp,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    if (this.config.get('report_stats') !== true) return;
    this.#startedMs = this.clock.monotonicMs();
    const role = 'background';
    this.tasks.add({ name: 'note_daily_visits', role, everyMs: visitsEveryMs, run: () => this.#noteVisits() }).start();
    const report = this.tasks.add({
      ...({ name: 'report_usage', role, everyMs: reportEveryMs } as const),
      run: (signal) => this.send(signal),
    });
    report.start();
    this.#first = this.clock.after(firstAfterMs, () => void report.run());
  }

  onModuleDestroy(): void {
    this.#first?.cancel();
  }

  /** Sends one report. @throws OutboundError when the collector cannot be reached */
  async send(signal: AbortSignal): Promise<void> {
    await this.#noteVisits();
    const uptimeSeconds = (this.clock.monotonicMs() - this.#startedMs) / 1000;
    const { user, system } = process.cpuUsage();
    const report = await usageReport(this.database, this.config, this.clock.nowMs(), {
      uptimeSeconds,
      residentBytes: process.memoryUsage.rss(),
      cpuPercent: uptimeSeconds > 0 ? (user + system) / 10_000 / uptimeSeconds : 0,
    });
    const answer = await this.outbound.request({
      method: 'PUT',
      url: this.config.get('report_stats_endpoint'),
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(report),
      operatorsChoice: true,
      signal,
    });
    if (answer.status >= 300) this.logger.warn('The usage report was not taken', { status: answer.status });
  }

  async #noteVisits(): Promise<void> {
    const nowMs = this.clock.nowMs();
    await this.database.write(
      async (tx) => {
        await noteDailyVisits(tx, nowMs);
        await forgetDailyVisits(tx, nowMs);
      },
      { name: 'note_daily_visits', anyProcess: true },
    );
  }
}
