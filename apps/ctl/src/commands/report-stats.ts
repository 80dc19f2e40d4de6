import type { Command } from 'commander';
import { loadConfig, SystemClock } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp } from './common.js';
import { readingDatabase } from './database-at.js';

interface ReportOptions {
  readonly config?: readonly string[];
  readonly print?: boolean;
}

/** `rookery report-stats` */
export function registerReportStatsCommand(program: Command, terminal: Terminal): void {
  program
    .command('report-stats')
    .description(
      'Shows what the server would report of its use (report_stats), without sending it. The server may run; its memory and processor time are those of this command.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .option('--print', 'show the report; the default, as nothing else is done')
    .action((options: ReportOptions) => show(options, terminal));
}

async function show({ config: files = ['homeserver.yaml'] }: ReportOptions, terminal: Terminal): Promise<void> {
  const config = loadConfig(files);
  const { usageReport } = await import('@rookery/admin');
  await readingDatabase(config, async (db) => {
    if (db === undefined) throw new CommandError('There is no database yet: the first start of the server makes one.');
    const report = await usageReport(db, config, new SystemClock().nowMs(), {
      uptimeSeconds: process.uptime(),
      residentBytes: process.memoryUsage.rss(),
      cpuPercent: 0,
    });
    terminal.out(JSON.stringify(report, null, 2));
  });
  terminal.note(
    config.get('report_stats') === true
      ? `This goes to ${config.get('report_stats_endpoint')} every three hours.`
      : 'Nothing of this is sent: report_stats is not true.',
  );
}
