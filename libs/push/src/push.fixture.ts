import { type Database, databaseMigrations } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { roomsMigrations, RoomsWriterModule } from '@rookery/rooms';
import { isMailAddress, type MailRequest } from '@rookery/templates';
import { createTestModule } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { pushMigrations } from './migrations/index.js';
import { PushModule, PushSenderModule } from './push.module.js';

/** Every table that this lib's modules need. */
export const fixtureMigrations = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...pushMigrations,
];

/** The lib's own Nest modules, as the app builds them, over a given database. For this lib's tests. */
export interface PushFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  /** Mails that were queued. */
  readonly mails: MailRequest[];
  close(): Promise<void>;
}

export async function buildPush(parts: {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
}): Promise<PushFixture> {
  const mails: MailRequest[] = [];
  const test = await createTestModule({
    imports: [RoomsWriterModule, PushModule, PushSenderModule],
    mailer: {
      subject: (name: string, values?: object) => `${name} ${JSON.stringify(values)}`,
      queue: async (_tx: unknown, mail: MailRequest) => {
        if (!isMailAddress(mail.to)) throw MatrixError.invalidParam('That is not an email address');
        mails.push(mail);
      },
    },
    ...parts,
  });
  return { ...test, mails };
}
