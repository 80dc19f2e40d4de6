import type { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock, Config, Ids, Logger } from '@rookery/platform';
import { Mailer, mailerOptionsOf, Pages, pagesOptionsOf } from '@rookery/templates';

const maxBytes = 1_048_576;

/** What {@link createModuleMail} needs. */
export interface ModuleMailParts {
  readonly config: Config;
  readonly database: Database;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  /** Works off the queue that these mails go to; absent when the server sends no mail. */
  readonly mailer: Mailer | undefined;
  /** Aborts when the server stops. */
  readonly stopping: AbortSignal;
}

/** The texts of a mail that is finished already, where a mailer asks for rendered ones. */
class FinishedTexts extends Pages {
  override text(name: string, values: Readonly<Record<string, unknown>> = {}): string {
    return String(values[name] ?? '');
  }
}

/** Queues mails that modules wrote. `undefined` when the server sends no mail. */
export function createModuleMail({
  config,
  database,
  clock,
  ids,
  logger,
  mailer,
  stopping,
}: ModuleMailParts): ((recipient: string, subject: string, html: string, text: string) => Promise<void>) | undefined {
  const options = mailerOptionsOf(config);
  if (!options || !mailer) return undefined;
  const templates = { ...options.templates, notif: { html: 'html', text: 'text' } };
  // Never started: it puts mails into the queue that the server's mailer works off.
  const writer = new Mailer(
    { ...options, templates },
    new FinishedTexts(pagesOptionsOf(config), ids, logger),
    database,
    clock,
    ids,
    logger,
  );
  return async (to, subject, html, text) => {
    if (Buffer.byteLength(html) + Buffer.byteLength(text) > maxBytes) {
      throw MatrixError.tooLarge(`A mail may not be larger than ${maxBytes} bytes`);
    }
    await writer.send({ to, kind: 'notif', subject, values: { html, text } });
    // To start a mailer that runs makes it look at the queue.
    if (!stopping.aborted) mailer.start();
  };
}
