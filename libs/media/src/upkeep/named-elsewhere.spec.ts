import type { Database } from '@rookery/database';
import { type BackgroundTasks, Config, SilentLogger, SystemClock } from '@rookery/platform';
import { MediaRetention } from './retention.service.js';
import { StrayFiles } from './stray-files.service.js';

/** Tasks run where is written. Whom the settings name for them, that process would wait for in vain. */
describe.each([undefined, 'main', 'media_worker'])('Upkeep of media with %s named for it', (named) => {
  it('is a task of the process that has it', () => {
    const config = Config.fromObject({
      redis: { enabled: true },
      database: { name: 'psycopg2', args: { database: 'x' } },
      instance_map: { main: { host: 'localhost', port: 1 }, media_worker: { host: 'localhost', port: 2 } },
      ...(named !== undefined && { media_instance_running_background_jobs: named }),
    });
    const added: string[] = [];
    const tasks = {
      add: ({ name }: { name: string }) => {
        added.push(name);
        return { start: () => undefined };
      },
    } as unknown as BackgroundTasks;
    const [database, clock, logger, none] = [{} as Database, new SystemClock(), new SilentLogger(), {} as never];
    new MediaRetention(config, database, clock, none, none, logger, tasks).onModuleInit();
    new StrayFiles(database, clock, none, logger, tasks).onModuleInit();
    expect(added).toEqual(['media_retention', 'remove_stray_media']);
  });
});
