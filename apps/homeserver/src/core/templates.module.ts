import { Global, Inject, Module, type OnApplicationBootstrap, Optional } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Ids, Lifecycle, Logger, settingError } from '@rookery/platform';
import { Mailer, mailerOptionsOf, Pages, pagesOptionsOf } from '@rookery/templates';

/** Pages and mails of the server. There is no `Mailer` where the settings name no sender. */
@Global()
@Module({
  providers: [
    {
      provide: Pages,
      inject: [Config, Ids, Logger],
      useFactory: createPages,
    },
    {
      provide: Mailer,
      inject: [Config, Pages, Database, Clock, Ids, Logger],
      useFactory: createMailer,
    },
  ],
  exports: [Pages, Mailer],
})
export class TemplatesModule implements OnApplicationBootstrap {
  constructor(
    private readonly lifecycle: Lifecycle,
    @Optional() @Inject(Mailer) private readonly mailer: Mailer | undefined,
  ) {}

  onApplicationBootstrap(): void {
    const { mailer } = this;
    if (mailer === undefined) return;
    this.lifecycle.on('streams', { name: 'mail queue', start: () => mailer.start(), stop: () => mailer.stop() });
  }
}

/** @throws SettingsError when there is no page of the policy that users are asked to agree to: nobody could */
function createPages(config: Config, ids: Ids, logger: Logger): Pages {
  const pages = new Pages(pagesOptionsOf(config), ids, logger.child('templates'));
  const folder = config.get('user_consent.template_dir');
  const page = `en/${config.get('user_consent.version') ?? ''}.html`;
  if (folder !== undefined && !pages.has(page))
    throw settingError(config, 'user_consent.version', [], `there is no ${page} in ${folder}`);
  return pages;
}

/** @throws SettingsError when the sender is none */
function createMailer(
  config: Config,
  pages: Pages,
  database: Database,
  clock: Clock,
  ids: Ids,
  logger: Logger,
): Mailer | undefined {
  const options = mailerOptionsOf(config);
  if (options === undefined) return undefined;
  try {
    return new Mailer(options, pages, database, clock, ids, logger.child('mail'));
  } catch (error) {
    throw settingError(config, 'email.notif_from', [], (error as Error).message);
  }
}
